"""An ImageFolder: one folder for each class, its images below; classes are numbered by name.

The same files get the same labels as with `torchvision.datasets.ImageFolder`. Folders whose names
begin with a dot (`.ipynb_checkpoints`) are no classes here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.datasets import pictures
from benchmarks.datasets.defect import DataError

# Those of torchvision.datasets.folder.IMG_EXTENSIONS.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder:
    """The images below a folder, by number. DataError for a folder that is not a data set."""

    backend = "image_folder"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.classes = tuple(class_folders(folder))
        self.files: list[str] = []
        self.labels: list[int] = []
        for label, name in enumerate(self.classes):
            files = _images_below(folder / name)
            if not files:
                raise DataError(f"{folder / name}: a class folder without images ({_known()})")
            self.files += files
            self.labels += [label] * len(files)
        if not self.classes:
            raise DataError(_without_classes(folder))

    def __len__(self) -> int:
        return len(self.files)

    def image(self, number: int) -> tuple[Any, int]:
        """Return the decoded image, a `PIL.Image`, and its label."""
        file = self.files[number]
        return pictures.decoded(file, file), self.labels[number]


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in it that may be classes, in the order of their labels."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def _images_below(folder: Path) -> list[str]:
    found = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        found += [f"{parent}/{name}" for name in sorted(files) if name.lower().endswith(EXTENSIONS)]
    return found


def _without_classes(folder: Path) -> str:
    files = [path for path in folder.iterdir() if path.is_file()]
    images = [path for path in files if path.suffix.lower() in EXTENSIONS]
    if images:
        return (
            f"{folder}: {len(images)} images, but no class folders; an image_folder has a folder "
            "for each class, with its images inside"
        )
    return f"{folder}: no data set; it is {'without folders' if files else 'empty'}"


def _known() -> str:
    return " ".join(EXTENSIONS)

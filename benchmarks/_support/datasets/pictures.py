"""Images as files: decoding with Pillow, and an ImageFolder (a folder for each class).

Classes are numbered by name, so the same files get the same labels as with
`torchvision.datasets.ImageFolder`. Folders whose names begin with a dot (`.ipynb_checkpoints`) are
not classes here.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import IO, Any

from perfrun import SetupError


class DataError(SetupError):
    """A data set, or a record of it, that cannot be used.

    PyTorch's DataLoader raises a worker process's exception again, with the worker's whole
    traceback as its text; only the last line of that is kept.
    """

    def __init__(self, text: str) -> None:
        line = (text.strip().splitlines() or [""])[-1]
        super().__init__(line.removeprefix(f"{type(self).__module__}.{type(self).__qualname__}: "))


# Statistics of ImageNet's training set, by colour, from 0 to 1; for grey images, their mean.
MEAN = {3: (0.485, 0.456, 0.406), 1: (0.449,)}
DEVIATION = {3: (0.229, 0.224, 0.225), 1: (0.226,)}


def library() -> Any:
    """Return the module `PIL.Image`; DataError names the package where it is missing."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise DataError(f"images need Pillow (pip install pillow): {error}") from None


def decoded(file: str | IO[bytes], what: str) -> Any:
    """Return the `PIL.Image`, all its pixels read; DataError names `what` when it is broken."""
    try:
        with library().open(file) as image:
            return image.copy() if image.mode in ("RGB", "L") else image.convert("RGB")
    except library().UnidentifiedImageError:
        raise DataError(f"{what}: not an image of a format that Pillow knows") from None
    # Pillow's decoders raise all of these for bytes that are no image.
    except (OSError, SyntaxError, ValueError, EOFError, IndexError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{what}: not a whole image ({_one_line(error)})") from None


def fitted(image: Any, channels: int, height: int, width: int) -> Any:
    """Return the image in this many channels (1 or 3) and pixels, resized as a whole."""
    image = image.convert("RGB" if channels == 3 else "L")
    if image.size == (width, height):
        return image
    return image.resize((width, height), library().Resampling.BILINEAR)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width; DataError for a shape that no image has."""
    if len(shape) != 3 or shape[0] not in MEAN:
        sizes = "x".join(map(str, shape))
        raise DataError(f"input {sizes} is no image (1xHxW or 3xHxW); data_dir holds images")
    channels, height, width = shape
    return channels, height, width


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# Those of torchvision.datasets.folder.IMG_EXTENSIONS.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder:
    """The images below a folder, by number; DataError for a folder that is not a data set."""

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
        return decoded(file, file), self.labels[number]


def class_folders(folder: Path) -> list[str]:
    """Return the names of the folders in it that may be classes, in the order of their labels."""
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

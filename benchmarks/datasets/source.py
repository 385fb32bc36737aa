"""A folder of images as a numbered source of pairs, whatever it is stored as."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from benchmarks.datasets import caffe_lmdb
from benchmarks.datasets.caffe_lmdb import CaffeLmdb
from benchmarks.datasets.defect import DataError
from benchmarks.datasets.image_folder import ImageFolder, class_folders
from benchmarks.knobs import Settings

BACKENDS = (CaffeLmdb.backend, ImageFolder.backend)
MAKER = "python -m benchmarks.datasets.make"


class Source(Protocol):
    """Numbered images with labels. `classes` may be empty: an LMDB does not know their names."""

    backend: str
    folder: Path
    classes: tuple[str, ...]

    def __len__(self) -> int: ...

    def image(self, number: int) -> tuple[Any, int]:
        """Return the decoded image, a `PIL.Image`, and its label."""


Opened = ImageFolder | CaffeLmdb


def open_source(data_dir: str | None, backend: str | None, root: str | None = None) -> Opened:
    """Open the data set in a folder; a relative one is looked for below `root` first.

    `backend` is `image_folder` or `caffe_lmdb`; None takes what is there. DataError, one line, for
    a folder that is no data set, or one of the other backend.
    """
    folder = _folder(data_dir, root)
    found = _backend_of(folder)
    if backend is not None and backend not in BACKENDS:
        raise DataError(f"data_backend is {backend!r}; there are {' and '.join(BACKENDS)}")
    if backend is not None and found is not None and backend != found:
        raise DataError(
            f"{folder}: holds {_described(found)}, but data_backend is {backend}; "
            f"give data_backend={found}, or leave it out"
        )
    if CaffeLmdb.backend not in (backend, found):
        return ImageFolder(folder)
    if found is None:
        raise DataError(f"{folder}: no {caffe_lmdb.FILE} in it, so it is no {backend}")
    return CaffeLmdb(folder)


def of(settings: Settings, root: str | None) -> Opened:
    """Open the data set of the knobs `data_dir` and `data_backend`, as `open_source` does."""
    return open_source(settings.value("data_dir"), settings.value("data_backend"), root)


def check_label(images: Source, number: int, label: int, classes: int | None) -> None:
    """Raise DataError for a label that a model of so many classes does not have."""
    if classes is not None and not 0 <= label < classes:
        raise DataError(
            f"{images.folder}: image {number} has label {label}, "
            f"but the model has {classes} classes"
        )


def _folder(data_dir: str | None, root: str | None) -> Path:
    if not data_dir:
        raise DataError(f"data_dir is not given; it names a data set ('{MAKER} FOLDER' makes one)")
    below = Path(root or "", data_dir)
    folder = (below if below.exists() else Path(data_dir)).resolve()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DataError(f"{folder}: {what}; data_dir names the folder of a data set")
    return folder


def _backend_of(folder: Path) -> str | None:
    if (folder / caffe_lmdb.FILE).is_file():
        return CaffeLmdb.backend
    return ImageFolder.backend if class_folders(folder) else None


def _described(backend: str) -> str:
    return f"an LMDB ({caffe_lmdb.FILE})" if backend == CaffeLmdb.backend else "class folders"

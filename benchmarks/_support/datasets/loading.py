"""A data set from its folder to batches: opening it, its order, and the base of all loaders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from benchmarks._support.datasets import caffe_lmdb, pictures
from benchmarks._support.datasets.caffe_lmdb import CaffeLmdb
from benchmarks._support.datasets.pictures import DataError, ImageFolder, class_folders
from benchmarks._support.knobs import Settings

BACKENDS = (CaffeLmdb.backend, ImageFolder.backend)
MAKER = "python -m benchmarks.datasets.make"


class Source(Protocol):
    """Numbered images with labels. `classes` is empty for an LMDB, which has no class names."""

    backend: str
    folder: Path
    classes: tuple[str, ...]

    def __len__(self) -> int: ...

    def image(self, number: int) -> tuple[Any, int]:
        """Return the decoded image, a `PIL.Image`, and its label."""


class Shard:
    """One of `ranks` equal parts of a data set: the images whose number has the rest `rank`."""

    def __init__(self, whole: Source, rank: int, ranks: int) -> None:
        if len(whole) < ranks:
            raise DataError(
                f"{whole.folder}: {len(whole)} images cannot be shared by {ranks} devices"
            )
        self._whole = whole
        self._rank, self._ranks = rank, ranks
        self.backend = whole.backend
        self.folder = whole.folder
        self.classes = whole.classes

    def __len__(self) -> int:
        return len(range(self._rank, len(self._whole), self._ranks))

    def image(self, number: int) -> tuple[Any, int]:
        """Return the decoded image and its label; numbers are the part's own."""
        return self._whole.image(self._rank + number * self._ranks)


Opened = ImageFolder | CaffeLmdb


def open_source(data_dir: str | None, backend: str | None, root: str | None = None) -> Opened:
    """Open the data set in a folder; a relative path is tried below `root` first.

    `backend` is `image_folder` or `caffe_lmdb`; None takes what is there. DataError, one line, is
    raised for a folder that is not a data set, or that is one of the other backend.
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


def open_chosen(settings: Settings, root: str | None) -> Opened:
    """Open the data set of the knobs `data_dir` and `data_backend`, as `open_source` does."""
    return open_source(settings.value("data_dir"), settings.value("data_backend"), root)


def check_label(images: Source, number: int, label: int, classes: int | None) -> None:
    """Raise DataError for a label that a model of `classes` classes does not have."""
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


def endless(count: int, *, shuffle: bool, seed: int) -> Iterator[int]:
    """Yield the numbers 0 to `count` - 1 over and over, in order or shuffled anew in each epoch."""
    import numpy as np  # not before a framework: what importing that takes is measured

    generator = np.random.default_rng(seed)
    while True:
        yield from generator.permutation(count).tolist() if shuffle else range(count)


WORKERS = 4  # processes or threads, unless `num_loader_threads` says otherwise


class Loader(ABC):
    """Batches (images, labels) of a data set without end, as the knobs say.

    `prefetched` is the number of batches that may be ready before the first is asked for. A
    measurement must take so many first, else it times a queue. `burst` is the number that come at
    about the same time. DataError, one line, is raised for a broken image, or for a label that is
    none of the model's `classes`.
    """

    prefetched: int
    burst: int

    def __init__(
        self,
        images: Opened,
        settings: Settings,
        shape: tuple[int, ...],
        batch_size: int,
        *,
        classes: int | None = None,
    ) -> None:
        self.images = images
        self.batch_size = batch_size
        self._shape = pictures.image_shape(shape)
        self._classes = classes
        self._workers: int = settings.value("num_loader_threads", WORKERS)
        self._shuffle: bool = settings.value("data_shuffle", False)
        self._seed: int = settings.value("seed", 0)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self

    @abstractmethod
    def __next__(self) -> tuple[Any, Any]:
        """Return the next batch."""

    @abstractmethod
    def close(self) -> None:
        """Stop what loads in the background; the next batch would be the first again."""

    @property
    def notes(self) -> dict[str, Any]:
        """Return the report's notes on the loader."""
        return {
            "data_dir": str(self.images.folder),
            "data_backend": self.images.backend,
            "data_images": len(self.images),
            "data_shuffle": self._shuffle,
            "loader_prefetched_batches": self.prefetched,
        }

"""What the loaders of all frameworks have in common: the knobs, and what a report says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from benchmarks.datasets import pictures
from benchmarks.datasets.source import Opened
from benchmarks.knobs import Settings

WORKERS = 4  # processes or threads, unless `num_loader_threads` says otherwise


class Loader(ABC):
    """Batches (images, labels) of a data set without end, as the knobs say.

    `prefetched` is how many batches may lie ready before the first is asked for: a measurement
    must have taken so many, else it times a queue. `burst` is how many come at about the same time.
    DataError, one line, for a broken image, or a label that is none of the model's `classes`.
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
        """Return what a report says about it."""
        return {
            "data_dir": str(self.images.folder),
            "data_backend": self.images.backend,
            "data_images": len(self.images),
            "data_shuffle": self._shuffle,
            "loader_prefetched_batches": self.prefetched,
        }

"""A data set as an endless series of batches, by PyTorch's DataLoader.

The order never ends (`Endless`), so the DataLoader's iterator is made once: making it anew at each
turn of the epoch starts all workers again, which on a small data set is most of the time. Every
batch is full; one at the turn holds the last images of an epoch and the first of the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from benchmarks.configured import Configured
from benchmarks.datasets import pictures, source
from benchmarks.datasets.order import endless
from benchmarks.knobs import Settings
from benchmarks.torch.execution import Execution
from benchmarks.torch.framework import torch
from benchmarks.torch.workload import Network, in_layout

LOADER_PROCESSES = 4
PREFETCHED_PER_PROCESS = 2  # batches; DataLoader's default, spelt out because warm-up depends on it


class Images(Dataset[tuple[torch.Tensor, int]]):  # type: ignore[misc]
    """Images of a source in the model's shape (C, H, W): float32, normalised as for ImageNet."""

    def __init__(
        self, images: source.Source, shape: tuple[int, ...], classes: int | None = None
    ) -> None:
        self._images = images
        self._shape = pictures.image_shape(shape)
        self._classes = classes
        channels = self._shape[0]
        self._mean = torch.tensor(pictures.MEAN[channels]).view(channels, 1, 1)
        self._deviation = torch.tensor(pictures.DEVIATION[channels]).view(channels, 1, 1)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        image, label = self._images.image(number)
        source.check_label(self._images, number, label, self._classes)
        channels, height, width = self._shape
        pixels = np.array(pictures.fitted(image, channels, height, width))
        planes = torch.from_numpy(pixels).view(height, width, channels).permute(2, 0, 1)
        scaled = planes.contiguous().to(torch.float32).div_(255)
        return scaled.sub_(self._mean).div_(self._deviation), label


class Endless(Sampler[int]):  # type: ignore[misc]
    """Numbers of images without end."""

    def __init__(
        self, count: int, *, shuffle: bool, seed: int, rank: int = 0, ranks: int = 1
    ) -> None:
        self._count = count
        self._shuffle = shuffle
        self._seed = seed
        self._rank = rank
        self._ranks = ranks

    def __iter__(self) -> Iterator[int]:
        return endless(
            self._count,
            shuffle=self._shuffle,
            seed=self._seed,
            rank=self._rank,
            ranks=self._ranks,
        )


class Loader:
    """Batches (images, labels) without end. `close` stops its processes.

    `prefetched` is how many batches may lie ready before the first is asked for: a measurement
    must have taken so many, else it times a queue. `start_s` is the time to the first batch.
    """

    def __init__(
        self,
        images: source.Source,
        shape: tuple[int, ...],
        batch_size: int,
        *,
        processes: int = LOADER_PROCESSES,
        shuffle: bool = False,
        seed: int = 0,
        pin_memory: bool = False,
        classes: int | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.images = images
        self.processes = processes
        self.shuffle = shuffle
        self.pin_memory = pin_memory
        self.batch_size = batch_size
        self.prefetched = processes * PREFETCHED_PER_PROCESS
        self.burst = max(1, processes)  # each makes whole batches
        self.start_s: float | None = None
        order = Endless(len(images), shuffle=shuffle, seed=seed, rank=rank, ranks=ranks)
        self._batches: Iterator[Any] | None = None
        self._loader: DataLoader[Any] = DataLoader(
            Images(images, shape, classes),
            batch_size=batch_size,
            sampler=order,
            num_workers=processes,
            pin_memory=pin_memory,
            prefetch_factor=PREFETCHED_PER_PROCESS if processes else None,
        )

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return self

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        began = time.perf_counter()
        if self._batches is None:
            self._batches = iter(self._loader)
        try:
            images, labels = next(self._batches)
        except BaseException:
            self.close()
            raise
        if self.start_s is None:
            self.start_s = time.perf_counter() - began
        return images, labels

    def close(self) -> None:
        """Stop the processes; the next batch would start them again, from the beginning."""
        batches, self._batches = self._batches, None
        # What its destructor calls: that one may run much later, and time something else.
        stop = getattr(batches, "_shutdown_workers", None)
        if stop is not None:
            stop()

    @property
    def notes(self) -> dict[str, Any]:
        """What a report says about it."""
        return {
            "data_dir": str(self.images.folder),
            "data_backend": self.images.backend,
            "data_images": len(self.images),
            "data_shuffle": self.shuffle,
            "loader_processes": self.processes,
            "loader_prefetched_batches": self.prefetched,
            "pinned_memory": self.pin_memory,
            "epoch_turnover": "none: the order is endless, the loader is never made anew",
        }


def open_loader(
    settings: Settings,
    input_shape: tuple[int, ...],
    batch_size: int,
    *,
    classes: int | None = None,
    root_data_dir: str | None = None,
    pin_memory: bool = False,
    rank: int = 0,
    ranks: int = 1,
) -> Loader:
    """Open the data set of the knob `data_dir` as batches of (N, C, H, W) and their labels.

    DataError, one line, for a folder that is no data set; a broken image says so when it is read.
    """
    images = source.open_source(
        settings.value("data_dir"), settings.value("data_backend"), root_data_dir
    )
    return Loader(
        images,
        input_shape,
        batch_size,
        processes=settings.value("num_loader_threads", LOADER_PROCESSES),
        shuffle=settings.value("data_shuffle", False),
        seed=settings.value("seed", 0),
        pin_memory=pin_memory,
        classes=classes,
        rank=rank,
        ranks=ranks,
    )


def loader_for(benchmark: Configured, network: Network, how: Execution, batch_size: int) -> Loader:
    """Open the data set of a benchmark's knobs for its model."""
    return open_loader(
        benchmark.settings,
        network.shape,
        batch_size,
        classes=network.spec.classes,
        root_data_dir=benchmark.root_data_dir,
        pin_memory=how.device.type == "cuda",
    )


def on_device(how: Execution, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, Any]:
    """Return images and labels on the device; from pinned memory the copy is not waited for."""
    images, labels = (tensor.to(how.device, non_blocking=True) for tensor in batch)
    return in_layout(how, images), labels

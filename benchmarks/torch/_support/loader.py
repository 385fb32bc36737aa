"""A data set as an endless series of batches, by PyTorch's DataLoader.

The order never ends (`Endless`), so the DataLoader's iterator is made once. Making it anew at each
epoch starts all workers again, which takes most of the time on a small data set. Every batch is
full; a batch at the turn of an epoch holds its last images and the first of the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from benchmarks._support.datasets import loading, pictures
from benchmarks._support.datasets.loading import Opened, endless
from benchmarks._support.knobs import Settings
from benchmarks.torch._support.execution import Execution
from benchmarks.torch._support.framework import torch
from benchmarks.torch._support.workload import Network, in_layout
from perfrun import SetupError

PREFETCHED_PER_PROCESS = 2  # batches; DataLoader's default, spelt out because warm-up depends on it


class Images(Dataset[tuple[torch.Tensor, int]]):  # type: ignore[misc]
    """Images of a source in the model's shape (C, H, W): float32, normalised as for ImageNet."""

    def __init__(
        self, images: loading.Source, shape: tuple[int, ...], classes: int | None = None
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
        loading.check_label(self._images, number, label, self._classes)
        channels, height, width = self._shape
        pixels = np.array(pictures.fitted(image, channels, height, width))
        planes = torch.from_numpy(pixels).view(height, width, channels).permute(2, 0, 1)
        scaled = planes.contiguous().to(torch.float32).div_(255)
        return scaled.sub_(self._mean).div_(self._deviation), label


class Endless(Sampler[int]):  # type: ignore[misc]
    """A sampler that yields the numbers of images without end."""

    def __init__(self, count: int, *, shuffle: bool, seed: int) -> None:
        self._count = count
        self._shuffle = shuffle
        self._seed = seed

    def __iter__(self) -> Iterator[int]:
        return endless(self._count, shuffle=self._shuffle, seed=self._seed)


class Loader(loading.Loader):
    """Batches (N, C, H, W) in float32, by processes of their own."""

    def __init__(
        self,
        images: Opened,
        settings: Settings,
        shape: tuple[int, ...],
        batch_size: int,
        *,
        classes: int | None = None,
        pin_memory: bool = False,
    ) -> None:
        super().__init__(images, settings, shape, batch_size, classes=classes)
        self._pin_memory = pin_memory
        self.prefetched = self._workers * PREFETCHED_PER_PROCESS
        self.burst = max(1, self._workers)  # each makes whole batches
        self._batches: Iterator[Any] | None = None
        self._loader: DataLoader[Any] = DataLoader(
            Images(images, shape, classes),
            batch_size=batch_size,
            sampler=Endless(len(images), shuffle=self._shuffle, seed=self._seed),
            num_workers=self._workers,
            pin_memory=pin_memory,
            prefetch_factor=PREFETCHED_PER_PROCESS if self._workers else None,
        )

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._batches is None:
            self._batches = iter(self._loader)
        try:
            images, labels = next(self._batches)
        except BaseException as error:
            self.close()
            if isinstance(error, RuntimeError) and _is_short_of_shared_memory(str(error)):
                raise SetupError(_shared_memory_is_short()) from error
            raise
        return images, labels

    def close(self) -> None:
        batches, self._batches = self._batches, None
        # The destructor calls this, too, but may run much later, while something else is timed.
        stop = getattr(batches, "_shutdown_workers", None)
        if stop is not None:
            stop()

    @property
    def notes(self) -> dict[str, Any]:
        return {
            **super().notes,
            "loader_processes": self._workers,
            "pinned_memory": self._pin_memory,
            "epoch_turnover": "none: the order is endless, the loader is never made anew",
        }


def _is_short_of_shared_memory(message: str) -> bool:
    """Return True when shared memory ran out, and not the file descriptors that it needs."""
    return (
        "shared memory" in message
        and "Too many open files" not in message
        and Path("/dev/shm").is_dir()  # noqa: S108 - no file is made there
    )


def _shared_memory_is_short() -> str:
    """Return a message with the size, which PyTorch's own (refused request, bus error) lack."""
    memory = os.statvfs("/dev/shm")  # noqa: S108 - no file is made there
    size = memory.f_blocks * memory.f_frsize / 2**20
    return (
        f"the data loader's processes ran out of shared memory, of which there are {size:.0f} MiB; "
        "in a container give more (perfrun --shm_size with --image, PERFRUN_SHM_SIZE for Compose), "
        "or choose fewer num_loader_threads or a smaller batch_size"
    )


def loader_for(
    images: Opened, settings: Settings, network: Network, how: Execution, batch_size: int
) -> Loader:
    """Return the loader of a data set for a model."""
    return Loader(
        images,
        settings,
        network.shape,
        batch_size,
        classes=network.spec.classes,
        pin_memory=how.device.type == "cuda",
    )


def on_device(how: Execution, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, Any]:
    """Return images and labels on the device; a copy from pinned memory may still be going on."""
    images, labels = (tensor.to(how.device, non_blocking=True) for tensor in batch)
    return in_layout(how, images), labels

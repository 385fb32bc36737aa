"""A data set as an endless series of batches, by threads with Pillow.

For JAX, which has no loader of its own, and for Keras, which is to have one on all its backends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks._support.datasets import loading, pictures
from benchmarks._support.datasets.loading import Opened, endless
from benchmarks._support.knobs import Settings

PREFETCHED = 2  # batches


class Loader(loading.Loader):
    """Batches (N, H, W, C) in float32; each image is a thread's.

    `scaled` images are normalised as for ImageNet; others have pixels from 0 to 255, for models
    that scale them on their own.
    """

    burst = 1  # its threads share each batch

    def __init__(
        self,
        images: Opened,
        settings: Settings,
        shape: tuple[int, ...],
        batch_size: int,
        *,
        classes: int | None = None,
        scaled: bool = True,
    ) -> None:
        super().__init__(images, settings, shape, batch_size, classes=classes)
        self.prefetched = PREFETCHED if self._workers else 0
        self._scaled = scaled
        channels = self._shape[0]
        self._mean = np.array(pictures.MEAN[channels], np.float32)
        self._deviation = np.array(pictures.DEVIATION[channels], np.float32)
        self._order: Iterator[int] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[list[Future[Any]]] = deque()

    def __next__(self) -> tuple[Any, Any]:
        if self._order is None:
            self._order = endless(len(self.images), shuffle=self._shuffle, seed=self._seed)
        try:
            examples = self._examples(self._order)
        except BaseException:
            self.close()
            raise
        images, labels = zip(*examples, strict=True)
        return np.stack(images), np.array(labels, np.int32)

    def close(self) -> None:
        threads, self._threads, self._order = self._threads, None, None
        self._waiting.clear()
        if threads is not None:
            threads.shutdown(cancel_futures=True)

    @property
    def notes(self) -> dict[str, Any]:
        return {
            **super().notes,
            "loader_threads": self._workers,
            "loader_reader": "Pillow in threads",
            "epoch_turnover": "none: the order is endless",
        }

    def _examples(self, order: Iterator[int]) -> list[tuple[Any, int]]:
        if not self._workers:
            return [self._example(next(order)) for _ in range(self.batch_size)]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._workers)
        while len(self._waiting) <= PREFETCHED:
            numbers = [next(order) for _ in range(self.batch_size)]
            self._waiting.append([self._threads.submit(self._example, each) for each in numbers])
        return [future.result() for future in self._waiting.popleft()]

    def _example(self, number: int) -> tuple[Any, int]:
        image, label = self.images.image(number)
        loading.check_label(self.images, number, label, self._classes)
        channels, height, width = self._shape
        pixels = np.asarray(pictures.fitted(image, channels, height, width), np.float32)
        values = pixels.reshape(height, width, channels)
        if not self._scaled:
            return values, label
        return (values / 255 - self._mean) / self._deviation, label

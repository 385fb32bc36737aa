"""A data set as an endless series of batches, by tf.data.

The data set repeats within the pipeline, so an iterator is made once and every batch is full. A
batch at the turn of an epoch holds its last images and the first of the next.

TensorFlow has no reader of LMDB. Records come through the lmdb package and `from_generator`, that
is through one Python thread, but they are decoded in parallel.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks._support.datasets import loading, pictures
from benchmarks._support.datasets.caffe_lmdb import CaffeLmdb
from benchmarks._support.datasets.loading import Opened, endless
from benchmarks._support.datasets.pictures import DataError, ImageFolder
from benchmarks._support.knobs import Settings
from benchmarks._support.models.keras_model import Network, scales_pixels
from benchmarks.tensorflow._support.framework import tf

PREFETCHED = 2  # batches
SEARCH_S = 20.0  # for the image that could not be decoded


class Loader(loading.Loader):
    """Batches (N, H, W, C) in float32, by threads.

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
        # Batches lie ready in the prefetching stage, and in the parallel one before it.
        self.prefetched = PREFETCHED + -(-self._workers // batch_size)
        self._scaled = scaled
        self._iterator: Iterator[Any] | None = None
        self._defect: DataError | None = None
        self._dataset = self._batched(self._records())

    def __next__(self) -> tuple[Any, Any]:
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        try:
            images, labels = next(self._iterator)
        except tf.errors.OpError as error:
            raise self._explained(error) from None
        return images, labels

    def close(self) -> None:
        self._iterator = None

    @property
    def notes(self) -> dict[str, Any]:
        lmdb = isinstance(self.images, CaffeLmdb)
        return {
            **super().notes,
            "loader_threads": self._workers,
            "loader_reader": "lmdb and from_generator, one thread" if lmdb else "tf.io.read_file",
            "epoch_turnover": "none: the pipeline repeats, the iterator is never made anew",
        }

    def _records(self) -> Any:
        """Yield the images as they are stored, not decoded, and their labels, without end."""
        images = self.images
        if isinstance(images, CaffeLmdb):
            data = tf.TensorSpec((None, None, None), tf.uint8)
            if images.datum(0).encoded:
                data = tf.TensorSpec((), tf.string)
            signature = (data, tf.TensorSpec((), tf.int64))
            return tf.data.Dataset.from_generator(self._generate, output_signature=signature)
        loading.check_label(images, len(images) - 1, max(images.labels), self._classes)
        files, labels = tf.constant(images.files), tf.constant(images.labels, tf.int64)
        order = tf.data.Dataset.range(len(images))
        if self._shuffle:
            order = order.shuffle(len(images), seed=self._seed, reshuffle_each_iteration=True)
        return order.repeat().map(lambda number: (files[number], labels[number]))

    def _generate(self) -> Iterator[tuple[Any, int]]:
        images = self.images
        assert isinstance(images, CaffeLmdb)
        encoded = images.datum(0).encoded
        for number in endless(len(images), shuffle=self._shuffle, seed=self._seed):
            try:
                yield self._record(images, number, encoded)
            except DataError as error:
                self._defect = error  # TensorFlow wraps it in pages of its own
                raise

    def _record(self, images: CaffeLmdb, number: int, encoded: bool) -> tuple[Any, int]:
        datum = images.datum(number)
        loading.check_label(images, number, datum.label, self._classes)
        if datum.encoded != encoded:
            raise DataError(f"{images.name(number)}: encoded and raw images in one LMDB")
        if encoded:
            return datum.data, datum.label
        planes = [np.frombuffer(plane, np.uint8) for plane in images.planes(number, datum)]
        return np.stack(planes, axis=-1).reshape(datum.height, datum.width, -1), datum.label

    def _batched(self, records: Any) -> Any:
        decoded = records.map(self._pixels, num_parallel_calls=self._workers or None)
        batches = decoded.batch(self.batch_size, drop_remainder=True).prefetch(PREFETCHED)
        options = tf.data.Options()
        options.autotune.enabled = False  # num_loader_threads means what it says
        options.threading.private_threadpool_size = max(1, self._workers)
        return batches.with_options(options)

    def _pixels(self, stored: Any, label: Any) -> tuple[Any, Any]:
        channels, height, width = self._shape
        if stored.dtype == tf.string:
            if isinstance(self.images, ImageFolder):
                stored = tf.io.read_file(stored)
            image = _decoded(stored, channels)
        else:
            image = _in_channels(stored, channels)
        image = tf.cast(image, tf.float32)
        image = tf.cond(
            tf.reduce_all(tf.shape(image)[:2] == (height, width)),
            lambda: image,
            lambda: tf.image.resize(image, (height, width), antialias=True),
        )
        image.set_shape((height, width, channels))
        if self._scaled:
            image = (image / 255 - pictures.MEAN[channels]) / pictures.DEVIATION[channels]
        return image, label

    def _explained(self, error: Exception) -> DataError:
        """Return an error that names the image that TensorFlow could not decode."""
        if self._defect is not None:
            return self._defect
        end = time.perf_counter() + SEARCH_S
        for number in range(len(self.images)):
            what = self._broken(number)
            if what or time.perf_counter() > end:
                break
        return DataError(what or f"{self.images.folder}: an image is broken ({_line(error)})")

    def _broken(self, number: int) -> str | None:
        images = self.images
        if isinstance(images, CaffeLmdb):
            what, data = images.name(number), images.datum(number).data
        else:
            what, data = images.files[number], tf.io.read_file(images.files[number])
        try:
            _decoded(data, self._shape[0])
        except tf.errors.OpError as error:
            return f"{what}: not a whole image ({_line(error)})"
        return None


def loader_for(images: Opened, settings: Settings, network: Network, batch_size: int) -> Loader:
    """Return the loader of a data set for a model."""
    return Loader(
        images,
        settings,
        network.shape,
        batch_size,
        classes=network.spec.classes,
        scaled=not scales_pixels(tf.keras, network.model),
    )


def _line(error: Exception) -> str:
    """Return TensorFlow's message without its names of nodes and operations."""
    first = str(error).strip().splitlines()[0]
    return re.sub(r"\{\{.*?\}\}|\[Op:.*?\]", "", first).strip()


def _decoded(data: Any, channels: int) -> Any:
    # It decodes PNG and BMP, too. The accurate transform is the one that Pillow takes.
    return tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE")


def _in_channels(image: Any, channels: int) -> Any:
    found = tf.shape(image)[-1]
    if channels == 3:
        return tf.cond(found == 3, lambda: image, lambda: tf.image.grayscale_to_rgb(image[..., :1]))
    return tf.cond(found == 1, lambda: image, lambda: tf.image.rgb_to_grayscale(image[..., :3]))

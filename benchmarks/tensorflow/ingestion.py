"""Training or inference from images on disk, by tf.data: loader, device, and end to end."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.datasets.ingesting import BATCH_SIZE, MODEL, Ingesting
from benchmarks.tensorflow import placement, steps
from benchmarks.tensorflow.building import Built, build
from benchmarks.tensorflow.framework import KERAS_VERSION, tf
from benchmarks.tensorflow.loader import Loader, loader_for
from benchmarks.tensorflow.placement import Placement


class Ingestion(Ingesting):
    """A Keras model as a graph, fed by tf.data; training, or inference with `forward_only`."""

    @functools.cached_property
    def _place(self) -> Placement:
        return placement.choose(self.settings)

    @functools.cached_property
    def _built(self) -> Built:
        return build(
            self.settings.value("model", MODEL),
            shape=self.settings.value("input_shape"),
            dtype=self.settings.value("dtype", "float32"),
            seed=self.settings.value("seed", 0),
            placement=self._place,
        )

    @functools.cached_property
    def _run(self) -> Any:
        built = self._built
        if self.settings.value("forward_only", False):
            forward = steps.forward(built.model)
            return tf.function(lambda images, labels: forward(images))  # noqa: ARG005
        with self._place.scope():
            step = steps.training(built.model, built.spec, half=built.dtype == "float16")
        return tf.function(step)

    def _open_loader(self) -> Loader:
        size = self.settings.value("batch_size", BATCH_SIZE)
        return loader_for(self, self._built, size)

    def _resident(self, batch: Any) -> Any:
        with self._place.scope():
            return tuple(tf.identity(tensor) for tensor in batch)

    def _step(self, batch: Any) -> object:
        with self._place.scope():
            return self._run(*batch)

    def _notes(self) -> dict[str, Any]:
        return {
            "model": self._built.spec.name,
            "model_library": self._built.spec.library,
            "device": self._place.description,
            **placement.threads(),
            "batch_size": self.settings.value("batch_size", BATCH_SIZE),
            "input_shape": "x".join(map(str, self._built.shape)),
            "dtype": self._built.dtype,
            "forward_only": str(self.settings.value("forward_only", False)).lower(),
            "seed": self.settings.value("seed", 0),
            "tensorflow_version": tf.__version__,
            "keras_version": KERAS_VERSION,
        }

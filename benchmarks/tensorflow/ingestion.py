"""Training or inference from images on disk, by tf.data: loader, device, and end to end."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks._support.datasets.ingesting import MODEL, Ingesting
from benchmarks._support.datasets.loading import Opened
from benchmarks._support.models import descent
from benchmarks._support.models.keras_model import Network
from benchmarks._support.models.loss_scale import LossScaler
from benchmarks.tensorflow._support import placement, workload
from benchmarks.tensorflow._support.framework import KERAS_VERSION, tf
from benchmarks.tensorflow._support.loader import Loader, loader_for
from benchmarks.tensorflow._support.placement import Placement
from benchmarks.tensorflow._support.workload import build


class Ingestion(Ingesting):
    """A Keras model as a graph, fed by tf.data; training, or inference with `forward_only`."""

    @functools.cached_property
    def _place(self) -> Placement:
        return placement.choose(self.settings)

    @functools.cached_property
    def _network(self) -> Network:
        return build(
            self.settings.value("model", MODEL),
            shape=self.settings.value("input_shape"),
            dtype=self.settings.value("dtype", "float32"),
            seed=self.settings.value("seed", 0),
            placement=self._place,
        )

    @functools.cached_property
    def _run(self) -> Any:
        network = self._network
        if self.settings.value("forward_only", False):
            forward = workload.forward(network.model)
            return tf.function(lambda images, labels: forward(images))  # noqa: ARG005
        half = network.dtype == "float16"
        with self._place.scope():
            step = workload.training(network.model, network.spec, self._optimizer, half=half)
        return tf.function(step)

    @functools.cached_property
    def _optimizer(self) -> Any:
        with self._place.scope():
            network = self._network
            given = descent.of(network.spec, self.settings)
            return workload.optimizer_of(network.model, given, half=network.dtype == "float16")

    @functools.cached_property
    def _scaler(self) -> LossScaler:
        return workload.LossScaler(self._optimizer)

    def _loss_scaler(self) -> LossScaler | None:
        is_training = not self.settings.value("forward_only", False)
        return self._scaler if is_training and self._network.dtype == "float16" else None

    def _loader(self, images: Opened, batch_size: int) -> Loader:
        return loader_for(images, self.settings, self._network, batch_size)

    def _resident(self, batch: Any) -> Any:
        with self._place.scope():
            return tuple(tf.identity(tensor) for tensor in batch)

    def _step(self, batch: Any) -> object:
        with self._place.scope():
            return self._run(*batch)

    def _notes(self) -> dict[str, Any]:
        return {
            **self._notes_of(self._network),
            "device": self._place.description,
            **placement.threads(),
            "dtype": self._network.dtype,
            "seed": self.settings.value("seed", 0),
            "tensorflow_version": tf.__version__,
            "keras_version": KERAS_VERSION,
        }

"""Training or inference from images on disk, by DataLoader: loader, device, and end to end."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks._support.datasets.ingesting import KNOBS, MODEL, Ingesting
from benchmarks._support.datasets.loading import Opened
from benchmarks._support.models import descent
from benchmarks._support.models.loss_scale import LossScaler
from benchmarks.torch import catalogue
from benchmarks.torch._support import execution
from benchmarks.torch._support.execution import Execution
from benchmarks.torch._support.loader import Loader, loader_for, on_device
from benchmarks.torch._support.workload import Forward, Network, Training, build


class Ingestion(Ingesting):
    """A model fed by a DataLoader; training, or inference with `forward_only`."""

    takes = (*KNOBS, "compile", "channels_last", "cudnn_benchmark")

    @functools.cached_property
    def _how(self) -> Execution:
        return execution.choose(self.settings)

    @functools.cached_property
    def _network(self) -> Network:
        spec = catalogue.find(self.settings.value("model", MODEL))
        training = not self.settings.value("forward_only", False)
        return build(spec, self._how, self.settings.value("input_shape"), training=training)

    @functools.cached_property
    def _run(self) -> Any:
        if self.settings.value("forward_only", False):
            forward = Forward(self._network, self._how)
            return lambda images, labels: forward(images)  # noqa: ARG005
        return self._training

    @functools.cached_property
    def _training(self) -> Training:
        return Training(self._network, self._how, descent.of(self._network.spec, self.settings))

    def _loss_scaler(self) -> LossScaler | None:
        is_training = not self.settings.value("forward_only", False)
        return self._training.loss_scaler if is_training else None

    def _loader(self, images: Opened, batch_size: int) -> Loader:
        return loader_for(images, self.settings, self._network, self._how, batch_size)

    def _resident(self, batch: Any) -> Any:
        return on_device(self._how, batch)

    def _step(self, batch: Any) -> object:
        return self._run(*on_device(self._how, batch))

    def _notes(self) -> dict[str, Any]:
        return {**self._notes_of(self._network), **self._how.facts()}

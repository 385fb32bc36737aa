"""Keras with TensorFlow: a step is a graph, is compiled by XLA, or runs eagerly."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from benchmarks._support.knobs import Settings
from benchmarks._support.models.figures import Peak
from benchmarks.keras._support.backends import backend
from benchmarks.keras._support.backends.backend import EAGER, Loss, Step, decayed
from benchmarks.tensorflow._support import placement
from benchmarks.tensorflow._support.framework import tf


class Backend(backend.Backend):
    """TensorFlow with its device and threads."""

    modes = ("graph", EAGER, "xla")
    compiled = "xla"

    def __init__(self, settings: Settings) -> None:
        self._place = placement.choose(settings)

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self._place.scope()
        return scope

    def array(self, values: Any) -> Any:
        with self.scope():
            return tf.identity(tf.constant(values))

    def wait(self, result: Any) -> None:
        placement.wait(result)

    def device_peak_bytes(self) -> int | None:
        return placement.peak_bytes()

    def forward(self, model: Any, mode: str) -> Step:
        return _as_run(lambda inputs: model(inputs, training=False), mode)

    def training(
        self, model: Any, optimizer: Any, loss: Loss, mode: str, *, weight_decay: float
    ) -> Step:
        optimizer.build(model.trainable_variables)  # variables may not be made inside a graph

        def step(inputs: Any, labels: Any) -> Any:
            weights = model.trainable_variables
            with tf.GradientTape() as tape:
                value = loss(labels, model(inputs, training=True))
            gradients = decayed(tape.gradient(value, weights), weights, weight_decay)
            optimizer.apply(gradients, weights)
            return value

        return _as_run(step, mode)

    def peak(self, dtype: str, done: float | None) -> Peak:
        from benchmarks.tensorflow._support.arithmetic import measured_peak

        return measured_peak(self._place.kind, dtype, done)

    def facts(self) -> dict[str, Any]:
        return {
            "device": self._place.description,
            **placement.threads(),
            "tensorflow_version": tf.__version__,
        }


def _as_run(function: Step, mode: str) -> Step:
    if mode == EAGER:
        return function
    found: Step = tf.function(function, jit_compile=mode == "xla")
    return found

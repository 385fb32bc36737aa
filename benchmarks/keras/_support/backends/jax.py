"""Keras with JAX: a step is a pure function of the model's variables, compiled by XLA."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from benchmarks._support.knobs import Settings
from benchmarks._support.models.figures import Peak
from benchmarks.jax._support import placement
from benchmarks.jax._support.framework import jax
from benchmarks.jax._support.step import Step as StateStep
from benchmarks.keras._support.backends import backend
from benchmarks.keras._support.backends.backend import EAGER, Loss, Step, decayed


class Backend(backend.Backend):
    """JAX with its device and threads."""

    modes = ("xla", EAGER)
    compiled = "xla"

    def __init__(self, settings: Settings) -> None:
        self._place = placement.choose(settings)

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self._place.scope()
        return scope

    def array(self, values: Any) -> Any:
        with self.scope():
            return jax.numpy.array(values)

    def wait(self, result: Any) -> None:  # noqa: ARG002
        self._place.wait()

    def device_peak_bytes(self) -> int | None:
        return self._place.peak_bytes()

    def forward(self, model: Any, mode: str) -> Step:
        state = (_values(model.trainable_variables), _values(model.non_trainable_variables))

        def function(state: Any, inputs: Any) -> Any:
            return model.stateless_call(*state, inputs, training=False)[0]

        return StateStep(function, state, changes=False, eager=mode == EAGER)

    def training(
        self, model: Any, optimizer: Any, loss: Loss, mode: str, *, weight_decay: float
    ) -> Step:
        optimizer.build(model.trainable_variables)
        # Copies: what a step is given is no longer the model's.
        state = jax.tree.map(
            jax.numpy.array,
            (
                _values(model.trainable_variables),
                _values(model.non_trainable_variables),
                _values(optimizer.variables),
            ),
        )

        def function(state: Any, inputs: Any, labels: Any) -> Any:
            weights, rest, own = state

            def loss_of(weights: Any) -> Any:
                output, after = model.stateless_call(weights, rest, inputs, training=True)
                return loss(labels, output), after

            (value, after), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
            gradients = decayed(gradients, weights, weight_decay)
            weights, own = optimizer.stateless_apply(own, gradients, weights)
            return (weights, after, own), value

        return StateStep(function, state, changes=True, eager=mode == EAGER)

    def peak(self, dtype: str, done: float | None) -> Peak:
        from benchmarks.jax._support.arithmetic import measured_peak

        return measured_peak(self._place.kind, dtype, done)

    def facts(self) -> dict[str, Any]:
        threads = placement.threads()
        return {
            "device": self._place.description,
            "threads": threads,
            "inter_threads": threads,
            "jax_version": jax.__version__,
        }


def _values(variables: Any) -> list[Any]:
    return [variable.value for variable in variables]

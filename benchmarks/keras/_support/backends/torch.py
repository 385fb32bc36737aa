"""Keras with PyTorch: a step runs eagerly, or the model is compiled by torch.compile."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from benchmarks._support.knobs import TORCH_COMPILE, Settings
from benchmarks._support.models.figures import Peak
from benchmarks.keras._support.backends import backend
from benchmarks.keras._support.backends.backend import EAGER, Loss, Step, decayed
from benchmarks.keras._support.framework import keras
from benchmarks.torch._support import execution
from benchmarks.torch._support.framework import torch


class Backend(backend.Backend):
    """PyTorch with its device and threads."""

    modes = (EAGER, *TORCH_COMPILE[1:])
    compiled = execution.COMPILED

    def __init__(self, settings: Settings) -> None:
        mode = settings.one_of("compile", EAGER, TORCH_COMPILE)
        self._how = execution.choose(settings, compile_default=mode)

    def scope(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = keras.device(str(self._how.device))
        return found

    def array(self, values: Any) -> Any:
        return torch.tensor(values, device=self._how.device)

    def wait(self, result: Any) -> None:  # noqa: ARG002
        execution.wait(self._how.device)

    def device_peak_bytes(self) -> int | None:
        return execution.peak_bytes(self._how.device)

    def forward(self, model: Any, mode: str) -> Step:
        called = _compiled(model, mode)

        def step(inputs: Any) -> Any:
            with torch.inference_mode():
                return called(inputs, training=False)

        return step

    def training(
        self, model: Any, optimizer: Any, loss: Loss, mode: str, *, weight_decay: float
    ) -> Step:
        optimizer.build(model.trainable_variables)
        called = _compiled(model, mode)

        def step(inputs: Any, labels: Any) -> Any:
            model.zero_grad()
            value = loss(labels, called(inputs, training=True))
            value.backward()
            weights = model.trainable_weights
            gradients = [weight.value.grad for weight in weights]
            with torch.no_grad():
                optimizer.apply(decayed(gradients, weights, weight_decay), weights)
            return value.detach()

        return step

    def peak(self, dtype: str, done: float | None) -> Peak:
        from benchmarks.torch._support.arithmetic import measured_peak

        return measured_peak(self._how.device, dtype, done)

    def facts(self) -> dict[str, Any]:
        facts = self._how.facts()
        names = (
            *("device", "threads", "inter_threads", "torch_version", "cudnn_version"),
            *("cudnn_benchmark", "cudnn_allow_tf32", "matmul_allow_tf32"),
        )
        return {name: facts[name] for name in names if name in facts}


def _compiled(model: Any, mode: str) -> Any:
    if mode == EAGER:
        return model
    return torch.compile(model, mode=None if mode == execution.COMPILED else mode)

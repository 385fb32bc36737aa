"""TorchScript: a model or a function as a graph that PyTorch interprets and fuses without Python.

A model is traced with the first input. Its inference is frozen, too: weights become constants, and
batch normalisation is folded into convolutions. PyTorch has deprecated TorchScript in favour of
`torch.compile`; it is measured here because models in use are still deployed with it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.torch._support.framework import torch
from perfrun import SetupError


class TracedModel:
    """A module that is traced in its first call, with that call's input."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._traced: Any = None

    def __call__(self, *inputs: Any) -> Any:
        if self._traced is None:
            self._traced = _traced(self._module, inputs)
        return self._traced(*inputs)


def _traced(module: Any, inputs: tuple[Any, ...]) -> Any:
    """Trace a module and freeze one that infers; SetupError where TorchScript cannot express it."""
    with _without_warnings():
        try:
            # Dictionaries are allowed as outputs. The result is not held against a second run of
            # the module, which would be another one in training: dropout.
            traced = torch.jit.trace(module, inputs, check_trace=False, strict=False)
            return traced if module.training else torch.jit.freeze(traced)
        except Exception as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise SetupError(
                f"compile is 'torchscript', and torch.jit.trace cannot trace this "
                f"{type(module).__name__}: {lines[0] if lines else type(error).__name__}; take "
                "another model, compile=eager or compile=default"
            ) from error


def scripted(function: Callable[..., Any]) -> Any:
    """Return a function compiled from its source by TorchScript."""
    with _without_warnings():
        return torch.jit.script(function)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide that TorchScript is deprecated, and that shapes become constants: none ever changes."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning, torch.jit.TracerWarning):
            warnings.simplefilter("ignore", category)
        yield

"""The part of a Keras benchmark that depends on Keras' backend: steps, the device, its peak."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from benchmarks._support.knobs import Settings
from benchmarks._support.models.figures import Peak

Step = Callable[..., Any]
Loss = Callable[[Any, Any], Any]  # of labels and output
EAGER = "eager"


class Backend(ABC):
    """A backend with its device and threads, as the knobs say."""

    modes: ClassVar[tuple[str, ...]]  # of the knob `compile`; the first one is the usual one
    compiled: ClassVar[str]  # the mode of the methods for compiled models

    @abstractmethod
    def __init__(self, settings: Settings) -> None: ...

    @abstractmethod
    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which arrays are made on the device."""

    @abstractmethod
    def array(self, values: Any) -> Any:
        """Return a copy of an array of numpy on the device."""

    @abstractmethod
    def wait(self, result: Any) -> None:
        """Wait until the device has finished the step that gave this result."""

    @abstractmethod
    def device_peak_bytes(self) -> int | None:
        """Return the peak memory of the accelerator; None where there is none."""

    @abstractmethod
    def forward(self, model: Any, mode: str) -> Step:
        """Return a step of inference, of inputs."""

    @abstractmethod
    def training(
        self, model: Any, optimizer: Any, loss: Loss, mode: str, *, weight_decay: float
    ) -> Step:
        """Return a step of training, of inputs and labels, which gives the loss.

        `weight_decay` is the factor of the weights that is added to their gradients, as in PyTorch.
        (Keras' own setting of this name takes from the weights, past the momentum.)
        """

    @abstractmethod
    def peak(self, dtype: str, done: float | None) -> Peak:
        """Measure the peak arithmetic of the device."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on device, threads and versions."""


def decayed(gradients: Sequence[Any], weights: Sequence[Any], factor: float) -> Sequence[Any]:
    """Return the gradients, with a factor of the weights added."""
    if not factor:
        return gradients
    return [gradient + factor * weight for gradient, weight in zip(gradients, weights, strict=True)]

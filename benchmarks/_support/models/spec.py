"""The facts of a model: those published, its input, and its parameter counts once built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from perfrun import SetupError


def known_value(name: str, value: float, reference: float) -> dict[str, Any]:
    """Return a metric that passes only when it equals its reference value."""
    return {"name": name, "value": value, "min_value": reference, "max_value": reference}


Shape = tuple[int, ...]

LEARNING_RATE, SMALL_LEARNING_RATE = 0.01, 0.0001
# Families without normalisation: with a small batch, 0.01 makes the loss of the first two grow
# until it is NaN. The dense nets know their batch by heart after 30 steps: the loss is 0, what is
# left of gradients and momentum is subnormal, and a step on a CPU takes two to four times as long.
_UNNORMALISED = ("vgg", "squeezenet", "deep_mnist", "acoustic_model", "sensor_net")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model that can be built, and its published facts; None is unknown."""

    name: str  # as in `library:name`, or the plain one
    library: str  # whose code it is: a package, or `perfrun` for this folder's
    input_kind: Literal["image", "tokens", "features"]
    input_shape: Shape  # one example, channels first; of tokens their number
    classes: int | None  # of the last axis; for text the vocabulary
    build: Callable[[Shape], Any]  # from the shape of one example; random weights, no download
    target: Literal["class", "next_token", "none"] = "class"  # what training compares with
    parameters: int | None = None  # published, all; holds for `input_shape`
    trainable_parameters: int | None = None  # published, trainable; holds for `input_shape`

    @property
    def learning_rate(self) -> float:
        """Return the rate of training's steps, with which the loss stays finite."""
        name = self.name.rpartition(":")[2].lower()
        small = name.startswith(_UNNORMALISED) and "_bn" not in name
        return SMALL_LEARNING_RATE if small else LEARNING_RATE

    def shape_for(self, shape: Shape | None) -> Shape:
        """Return the shape, or the model's own for None; SetupError for another kind of input."""
        if shape is None:
            return self.input_shape
        if len(shape) != len(self.input_shape):
            raise SetupError(
                f"input_shape is {spelt(shape)}; {self.name} takes {self.input_kind}, "
                f"such as {spelt(self.input_shape)}"
            )
        return shape


def spelt(shape: Shape) -> str:
    """Return a shape as `input_shape` takes it."""
    return "x".join(map(str, shape))


@dataclass(frozen=True, kw_only=True)
class Built(ABC):
    """A model that was built, the shape of its input, and the time that building took."""

    spec: ModelSpec
    shape: Shape  # of one example, channels first
    build_s: float

    @abstractmethod
    def parameter_counts(self) -> tuple[int, int]:
        """Return the number of parameters, and of those that training changes."""

    def parameter_metrics(self) -> list[dict[str, Any]]:
        """Return both counts as metrics that pass only when they are the published ones."""
        published = (self.spec.parameters, self.spec.trainable_parameters)
        names = ("parameters", "trainable_parameters")
        own_shape = self.shape == self.spec.input_shape
        return [
            {"name": name, "value": count}
            if known is None or not own_shape
            else known_value(name, count, known)
            for name, count, known in zip(names, self.parameter_counts(), published, strict=True)
        ]

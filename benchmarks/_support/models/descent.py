"""The settings of stochastic gradient descent, the same in all frameworks."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks._support.knobs import Settings
from benchmarks._support.models.spec import ModelSpec

MOMENTUM = 0.9


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How a step of training changes the weights."""

    learning_rate: float
    momentum: float = MOMENTUM
    weight_decay: float = 0.0  # the factor of the weights that is added to their gradients


def of(spec: ModelSpec, settings: Settings) -> Descent:
    """Return the settings of a model's training, as the knobs say, else the model's own."""
    return Descent(
        learning_rate=settings.value("learning_rate", spec.learning_rate),
        weight_decay=settings.value("weight_decay", 0.0),
    )

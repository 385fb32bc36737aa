"""A model with random weights, whatever the framework that built it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from benchmarks.models.known import known_value
from benchmarks.models.spec import ModelSpec, Shape


@dataclass(frozen=True, kw_only=True)
class Built(ABC):
    """What was built, for which input, and how long that took."""

    spec: ModelSpec
    shape: Shape  # of one example, channels first
    build_s: float

    @abstractmethod
    def parameter_counts(self) -> tuple[int, int]:
        """Return how many parameters there are, and how many of them training changes."""

    def parameter_metrics(self) -> list[dict[str, Any]]:
        """Return both counts, which pass only when they are the published ones."""
        published = (self.spec.parameters, self.spec.trainable_parameters)
        names = ("parameters", "trainable_parameters")
        own_shape = self.shape == self.spec.input_shape
        return [
            {"name": name, "value": count}
            if truth is None or not own_shape
            else known_value(name, count, truth)
            for name, count, truth in zip(names, self.parameter_counts(), published, strict=True)
        ]

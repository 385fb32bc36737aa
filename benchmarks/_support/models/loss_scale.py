"""Training in float16: the scale of the loss settles before steps are timed.

The loss is scaled so that small gradients are not lost in the range of float16. The first scale is
usually too large: gradients overflow, the step updates nothing, and the scale is halved. A step
that updates nothing is not the step of training that a figure is about. So steps are run before the
timed part until several in a row have updated the weights, and after it the scaler is asked whether
one was skipped. The scale never grows while steps are measured, because after 2000 steps it would
grow into the next overflow. So it counts by itself: each halving is a step that was skipped, and
nothing is read from the device while steps are timed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NEVER = 2**31 - 1  # steps after which a scale grows
UPDATES = 3  # in a row, until a scale counts as settled
MOST_SKIPPED = 32  # a scale of 2**-16: what still overflows then is not finite at any scale
SPARE = 2  # halvings of a settled scale: gradients may become larger while a model is trained


@dataclass(frozen=True, kw_only=True)
class LossScale:
    """A state of a scaler."""

    scale: float
    updates: int  # steps in a row that have updated the weights, up to the last one


class LossScaler(ABC):
    """A framework's scaler of the loss, and the steps that it has skipped."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._spared = 0
        self.skipped_before = 0  # steps without an update before the scale had settled

    @abstractmethod
    def read(self) -> LossScale:
        """Return the scaler's state; this waits for the device."""

    @abstractmethod
    def halve(self) -> None:
        """Halve the scale."""

    @property
    def skipped(self) -> int:
        """Return the number of all steps so far that updated nothing."""
        scale = self.read().scale
        if not 0 < scale <= self._first:
            raise RuntimeError(f"float16: the scale of the loss is {scale:g}")
        return round(math.log2(self._first / scale)) - self._spared

    def settle(self, step: Callable[[], Any]) -> None:
        """Run steps until the scale has settled; RuntimeError when it does not."""
        while self.read().updates < UPDATES:
            step()
            if self.skipped >= MOST_SKIPPED:
                raise RuntimeError(
                    f"float16: the scale of the loss does not settle: {self.skipped} steps were "
                    f"skipped, and at a scale of {self.read().scale:.3g} the gradients still "
                    "overflow; train in bfloat16 or float32, or look for what is not finite"
                )
        if not self._spared:
            self.skipped_before = self.skipped
            for _ in range(SPARE):
                self.halve()
            self._spared = SPARE

    def check(self, steps: int) -> None:
        """Raise RuntimeError unless each of the last `steps` steps has updated the weights."""
        if self.read().updates < steps:
            count = self.skipped - self.skipped_before
            raise RuntimeError(
                f"float16: {count} steps were skipped after the scale of the loss had settled, at "
                f"least one of them among the {steps} timed ones; they updated nothing, so these "
                "times are not of training: give more warmup, or train in bfloat16 or float32"
            )

    def notes(self) -> dict[str, Any]:
        """Return the report's notes on the scale."""
        return {
            "loss_scale": self.read().scale,
            "skipped_steps_before": self.skipped_before,
            "skipped_steps": 0,
        }

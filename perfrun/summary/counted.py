"""Which trials of a set enter its figures: one rule for runs, comparisons, nights and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Trial(Protocol):
    """What the rule asks of a trial."""

    @property
    def disturbed(self) -> bool:
        """Whether the machine was, while the trial ran."""


SomeTrial = TypeVar("SomeTrial", bound=Trial)


def counted(trials: Sequence[SomeTrial]) -> Sequence[SomeTrial]:
    """The undisturbed ones, or all when most were disturbed.

    On a machine that is nearly always busy, the rare quiet moment is no fair sample of it, and one
    trial that is left says less than all of them.
    """
    quiet = [trial for trial in trials if not trial.disturbed]
    return quiet if 2 * len(quiet) >= len(trials) else trials

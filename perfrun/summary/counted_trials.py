"""Choose the trials that enter a figure, by one rule for all commands and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Trial(Protocol):
    """The part of a trial that the rule needs."""

    @property
    def disturbed(self) -> bool:
        """True when the machine was disturbed during the trial."""


SomeTrial = TypeVar("SomeTrial", bound=Trial)


def counted(trials: Sequence[SomeTrial]) -> Sequence[SomeTrial]:
    """Return the undisturbed trials, or all when most were disturbed.

    On a machine that is nearly always busy, the few quiet moments are no fair sample of it, and the
    few trials that are left say less than all of them.
    """
    places, _ = counted_places(trials, range(len(trials)))
    return [trials[place] for place in places]


def counted_places(trials: Sequence[Trial], places: Sequence[int]) -> tuple[Sequence[int], bool]:
    """Return which of these places of trials count, and True when most were disturbed."""
    quiet = [place for place in places if not trials[place].disturbed]
    return (quiet, False) if 2 * len(quiet) >= len(places) else (places, True)

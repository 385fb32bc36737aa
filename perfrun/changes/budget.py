"""The limits of confirming: `--max_pairs`, `--time_budget`, `--max_changes`, `confirm_budget`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfrun.errors import UsageError
from perfrun.options.parsers import parse_duration, parse_whole

DEFAULT_PAIRS, FEWEST_PAIRS = 30, 8  # fewer pairs cannot decide anything
DEFAULT_CHANGES = 10
_SHARE = re.compile(r"(\d{1,4}(?:\.\d{1,4})?)\s{0,9}%")
_MOST_SHARE = 5.0
INTERRUPTED = "interrupted"  # the reason of a confirmation that a signal has ended


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of each change, and the number of changes that are confirmed."""

    max_pairs: int = DEFAULT_PAIRS
    time_s: float | None = None
    most: int | None = None  # changes; None means all


def parse_budget(
    max_pairs: str | None = None, time_budget: str | None = None, max_changes: str | None = None
) -> Budget:
    """Parse the three flags. Raises UsageError."""
    return Budget(
        max_pairs=parse_whole(max_pairs, "--max_pairs", FEWEST_PAIRS) or DEFAULT_PAIRS,
        time_s=parse_duration(time_budget, "--time_budget"),
        most=parse_whole(max_changes, "--max_changes", 1),
    )


@dataclass(frozen=True, kw_only=True)
class NightBudget:
    """The time that a night spends on the pairs of its suspects: one of the two."""

    time_s: float | None = None
    share: float | None = None  # of the time that the night's own trials took

    def seconds(self, trials_s: float) -> float:
        """Return the time for a night whose trials took so long."""
        return self.time_s if self.time_s is not None else (self.share or 0.0) * trials_s


def parse_night_budget(text: str, name: str) -> NightBudget:
    """Parse `30m`, or a share such as `20%`. Raises UsageError."""
    found = _SHARE.fullmatch(text.strip())
    if not found:
        return NightBudget(time_s=parse_duration(text, name))
    share = float(found[1]) / 100
    if not 0 < share <= _MOST_SHARE:
        raise UsageError(f"{name}={text}: write a share from 1% to 500%, or a time: 30m")
    return NightBudget(share=share)

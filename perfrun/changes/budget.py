"""The limits of confirming changes: `--max_pairs`, `--time_budget`, `--max_changes`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from perfrun.options.parsers import parse_duration, parse_whole

DEFAULT_PAIRS, FEWEST_PAIRS = 30, 8  # fewer pairs cannot decide anything
DEFAULT_CHANGES = 10
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

"""How much confirming changes may cost: `--max_pairs`, `--time_budget`, `--max_changes`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from perfrun.errors import UsageError
from perfrun.repetition import parse_duration

DEFAULT_PAIRS, FEWEST_PAIRS = 30, 8  # with fewer nothing can be decided
DEFAULT_CHANGES = 10


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much each change may cost, and how many are looked into."""

    max_pairs: int = DEFAULT_PAIRS
    time_s: float | None = None
    most: int | None = None  # changes; None: all


def parse_budget(
    max_pairs: str | None = None, time_budget: str | None = None, max_changes: str | None = None
) -> Budget:
    """Parse the three flags. Raises UsageError."""
    return Budget(
        max_pairs=_whole(max_pairs or str(DEFAULT_PAIRS), "--max_pairs", FEWEST_PAIRS),
        time_s=parse_duration(time_budget, "--time_budget"),
        most=_whole(max_changes, "--max_changes", 1) if max_changes else None,
    )


def _whole(text: str, flag: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UsageError(f"{flag}={text}: must be a whole number, {least} or more")
    return int(text)

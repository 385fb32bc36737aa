"""What `perfrun selftest` may call off where its machine is busy, and what it never may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# The limits of these rows are for a machine that has time for them. On one that has not, they are
# missed by some part; a wrong unit, sign, process or count misses these limits too.
BUSY: Mapping[str, tuple[float, float]] = {
    "sleep of known length": (0.0, 0.5),
    "method phase of the same": (0.0, 0.5),
    "time of 4 x the operations": (-0.4, 0.8),
    "time of 2 x the batch": (-0.4, 0.8),
    "CPU time of a busy second": (-0.4, 0.6),
    "the same in the method phase": (0.0, 0.4),
}


def wrong(found: Mapping[str, Any]) -> dict[str, str]:
    """The rows that are off, and by more than a busy machine explains, with the reason of each."""
    return {row["what"]: row["reason"] for row in off(found) if not _is_of_a_busy_machine(row)}


def off(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [row for row in found["rows"] if row["verdict"] == "off"]


def _is_of_a_busy_machine(row: Mapping[str, Any]) -> bool:
    if row["what"] not in BUSY or row["error"] is None:
        return False
    lowest, highest = BUSY[row["what"]]
    return bool(lowest <= row["error"] <= highest)

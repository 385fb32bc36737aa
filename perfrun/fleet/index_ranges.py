"""Lists of indices as short text, `0-39,45`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfrun.errors import UsageError

_MOST = 100_000  # indices


def index_ranges(indices: Sequence[int]) -> str:
    """Return ascending indices as ranges."""
    parts: list[tuple[int, int]] = []
    for index in indices:
        if parts and index == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], index)
        else:
            parts.append((index, index))
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def parse_index_ranges(text: str, flag: str) -> tuple[int, ...]:
    """Return the indices of a text that `index_ranges` wrote. Raises UsageError."""
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        first = int(ends[1]) if ends else 0
        last = int(ends[2] or ends[1]) if ends else 0
        if ends is None or last < first or (found and first <= found[-1]):
            raise UsageError(f"{flag}={text[:100]}: write ascending numbers and ranges, as 0-39,45")
        if len(found) + last - first >= _MOST:
            raise UsageError(f"{flag}={text[:100]}: names more than {_MOST:,} shards")
        found += range(first, last + 1)
    return tuple(found)

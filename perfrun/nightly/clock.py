"""When a night has to be over."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from perfrun.errors import UsageError

_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)")
_MOST_S = 365 * 86400.0
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_deadline(text: str, begun: float) -> float:
    """When a night that began then must be over, both in seconds since the epoch.

    `7h` after its begin, or the next `06:30` by the local clock. Raises UsageError.
    """
    clock, span = _TIME_OF_DAY.fullmatch(text), _DURATION.fullmatch(text)
    if clock:
        start = datetime.fromtimestamp(begun)
        end = start.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return (end if end > start else end + timedelta(days=1)).timestamp()
    if span and 0 < float(span[1]) * _SECONDS[span[2]] <= _MOST_S:
        return begun + float(span[1]) * _SECONDS[span[2]]
    raise UsageError(f"deadline = {text!r}: write 7h, 90m or a time of day, 06:30")

"""Columns of numbers for the page: 16 bits each, in base64. A value is `min + q * step`."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np

_MISSING = 65535
_STEPS = 65534  # between the least and the largest value
_MINUTE_S = 60.0
_LARGEST = 1e307  # so that differences are finite


def packed(values: Sequence[float | None]) -> dict[str, Any]:
    """Pack numbers; None, and what is not finite or beyond 1e307, is missing."""
    known = [one for one in values if _is_known(one)]
    least, most = min(known, default=0.0), max(known, default=0.0)
    return _column(values, least, (most - least) / _STEPS)


def packed_times(values: Sequence[float]) -> dict[str, Any]:
    """Pack seconds since the epoch in whole minutes, or in more where 45 days are not enough."""
    least = math.floor(min(values, default=0.0) / _MINUTE_S) * _MINUTE_S
    span = max(values, default=0.0) - least
    return _column(values, least, _MINUTE_S * max(1, math.ceil(span / _MINUTE_S / _STEPS)))


def packed_whole(values: Sequence[int]) -> dict[str, Any]:
    """Pack whole numbers as they are; those from 65535 on are missing."""
    return _column([one if one < _MISSING else None for one in values], 0.0, 1.0)


def packed_flags(values: Iterable[int]) -> str | None:
    """Pack flags of a byte each; None where there is none."""
    content = bytes(values)
    return base64.b64encode(content).decode("ascii") if any(content) else None


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and abs(value) <= _LARGEST  # False for a NaN


def _column(values: Sequence[float | None], least: float, step: float) -> dict[str, Any]:
    steps = [
        min(_STEPS, max(0, round((one - least) / step) if step > 0 else 0))
        if _is_known(one)
        else _MISSING
        for one in values
    ]
    text = base64.b64encode(np.array(steps, dtype="<u2").tobytes()).decode("ascii")
    return {"min": least, "step": step, "n": len(steps), "b64": text}

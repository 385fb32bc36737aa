"""Numbers packed for the page: 16 bits each, in base64, a third of what they take as JSON.

A value is `min + q * step`; q is 65535 where there is none. The error is at most half a step.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MISSING = 65535
_STEPS = 65534  # between the least and the largest value
_MINUTE_S = 60.0
_LARGEST = 1e307  # so that differences and products are finite in JavaScript, too


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A column of numbers. Equal columns are equal values, so that the page holds each once."""

    min: float
    step: float  # 0 when all values are equal
    n: int
    b64: str  # little-endian uint16


def packed(values: Sequence[float | None]) -> Packed:
    """Pack numbers; None, and what is not finite or beyond 1e307, is missing."""
    numbers = np.array([math.nan if one is None else one for one in values], dtype=float)
    return _packed(numbers)


def packed_times(values: Sequence[float]) -> Packed:
    """Pack seconds since the epoch in whole minutes, or more where 45 days are not enough."""
    numbers = np.asarray(values, dtype=float)
    if not len(numbers):
        return _packed(numbers)
    least = math.floor(float(numbers.min()) / _MINUTE_S) * _MINUTE_S
    minutes = math.ceil((float(numbers.max()) - least) / _MINUTE_S / _STEPS)
    return _steps(numbers, least, _MINUTE_S * max(1, minutes))


def packed_whole(values: Sequence[int | None]) -> Packed:
    """Pack indices from 0 to 65534 as they are; larger ones are missing."""
    numbers = np.array(
        [MISSING if one is None or not 0 <= one < MISSING else one for one in values], dtype="<u2"
    )
    return Packed(min=0.0, step=1.0, n=len(numbers), b64=_text(numbers))


def unpacked(column: Packed) -> tuple[float | None, ...]:
    """Return the numbers of a column."""
    steps = np.frombuffer(base64.b64decode(column.b64), dtype="<u2")
    return tuple(None if q == MISSING else column.min + int(q) * column.step for q in steps)


def packed_flags(values: Iterable[int]) -> str | None:
    """Pack flags of a byte each in base64; None where all of them are 0."""
    content = bytes(values)
    return base64.b64encode(content).decode("ascii") if any(content) else None


def _packed(numbers: NDArray[np.float64]) -> Packed:
    known = numbers[_known(numbers)]
    if not len(known):
        return _steps(numbers, 0.0, 0.0)
    least, most = float(known.min()), float(known.max())
    return _steps(numbers, least, (most - least) / _STEPS)


def _known(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    known: NDArray[np.bool_] = np.abs(numbers) <= _LARGEST  # False for a NaN
    return known


def _steps(numbers: NDArray[np.float64], least: float, step: float) -> Packed:
    known = _known(numbers)
    steps = np.full(len(numbers), MISSING, dtype="<u2")
    if step > 0:
        steps[known] = np.clip(np.rint((numbers[known] - least) / step), 0, _STEPS)
    else:
        steps[known] = 0
    return Packed(min=least, step=step, n=len(numbers), b64=_text(steps))


def _text(steps: NDArray[np.uint16]) -> str:
    return base64.b64encode(steps.tobytes()).decode("ascii")

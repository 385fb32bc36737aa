"""Numbers of the page: packed, unpacked, and at most half a step apart."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.page.packed import (
    packed,
    packed_flags,
    packed_times,
    packed_whole,
    unpacked,
)

NUMBERS = st.lists(
    st.none() | st.floats() | st.floats(0.9, 1.1) | st.integers(-5, 5).map(float), max_size=50
)


@settings(max_examples=150, deadline=None)
@given(NUMBERS)
def test_a_number_comes_back_within_half_a_step(values: list[float | None]) -> None:
    column = packed(values)
    found = unpacked(column)
    assert (column.n, len(found)) == (len(values), len(values))
    assert math.isfinite(column.min)
    assert math.isfinite(column.step)
    for before, after in zip(values, found, strict=True):
        if before is None or not abs(before) <= 1e307:
            assert after is None
        else:
            assert after is not None
            # Of numbers that hardly differ, as of subnormal ones, the last bits may be lost.
            rounding = 4 * max(math.ulp(before), math.ulp(column.min), 65535 * math.ulp(0.0))
            assert abs(after - before) <= 0.5 * column.step + rounding


def test_times_are_whole_minutes_and_a_century_fits() -> None:
    week = [1.79e9 + 3600.0 * hour for hour in range(168)]
    assert packed_times(week).step == 60
    assert all(
        abs(a - (b or 0)) <= 30 for a, b in zip(week, unpacked(packed_times(week)), strict=True)
    )
    century = [0.0, 1.79e9, 3.2e9]
    column = packed_times(century)
    assert column.step % 60 == 0
    assert all(
        abs(a - (b or 0)) <= column.step / 2 for a, b in zip(century, unpacked(column), strict=True)
    )
    assert packed_times([]).n == 0


def test_indices_stay_as_they_are_and_flags_without_any_take_no_room() -> None:
    assert unpacked(packed_whole([0, 7, None, 65534, 65535])) == (0, 7, None, 65534, None)
    assert packed_flags([0, 0]) is None
    assert packed_flags([0, 3]) == "AAM="

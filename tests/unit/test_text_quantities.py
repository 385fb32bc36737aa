"""Values with their units, as people read them."""

from __future__ import annotations

import math

import pytest

from perfrun.text import duration, rounded, scale_of, spread, with_unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5 s"),
        (0.0123456, "12.35 ms"),
        (1.469e-05, "14.69 us"),
        (2e-6, "2 us"),
        (3e-10, "0.3 ns"),
        (4000, "4,000 s"),
        (86400.5, "86,400 s"),
        (0.0, "0 s"),
        (-0.25, "-250 ms"),
        (0.9999996, "1 s"),
        (math.inf, "inf s"),
    ],
)
def test_seconds_have_a_unit_that_suits_them_and_never_an_exponent(value: float, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3 * 2**20, "bytes", "3 MiB"),
        (1500, "bytes", "1.465 KiB"),
        (12, "bytes", "12 bytes"),
        (1.9194e10, "FLOP/s", "19.19 GFLOP/s"),
        (0.5, "1/s", "0.5 1/s"),
        (385_814_752, "", "385,814,752"),
        (0.1234567, "", "0.1235"),
        (1234567.5, "", "1,235,000"),
        (9999.6, "", "10,000"),
        (2095.4, "", "2,095"),
        (-0.0, "", "-0"),
    ],
)
def test_bytes_and_flops_are_scaled_too_and_nothing_else_is(
    value: float, unit: str, text: str
) -> None:
    assert with_unit(value, unit) == text


def test_a_range_is_in_the_unit_of_its_middle() -> None:
    assert spread(0.0156, 0.0137, 1.2, "s") == "15.6 ms (13.7..1,200)"
    assert spread(2.0, 2.0, 2.0, "s") == "2 s"
    assert spread(0.0, 0.0, 2e-6, "s") == "0 us (0..2)"


def test_a_column_is_divided_by_what_its_unit_is_named_after() -> None:
    assert scale_of(2e-3, "s") == (1e-3, "ms")
    assert rounded(2.5e-3 / 1e-3, 6) == "2.5"
    assert rounded(2500.25, 6) == "2,500.25"
    assert scale_of(5.0, "items") == (1.0, "items")

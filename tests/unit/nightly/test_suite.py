"""Suites as values: the deadline of a night."""

from __future__ import annotations

from datetime import datetime

import pytest

from perfrun.errors import UsageError
from perfrun.nightly.suite import parse_deadline

NOON = datetime(2026, 11, 21, 12, 0).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("7h", 25200), ("1.5 h", 5400), ("45s", 45)]
)
def test_a_deadline_is_a_time_after_the_begin(text: str, seconds: float) -> None:
    assert parse_deadline(text, NOON) == NOON + seconds


@pytest.mark.parametrize(
    ("text", "hours"), [("12:30", 0.5), ("06:30", 18.5), ("12:00", 24), ("0:05", 12 + 1 / 12)]
)
def test_or_the_next_such_time_of_day(text: str, hours: float) -> None:
    assert parse_deadline(text, NOON) == pytest.approx(NOON + hours * 3600)


@pytest.mark.parametrize("text", ["", "0h", "24:00", "12:60", "7", "-1h", "7 hours", "1d"])
def test_other_texts_are_no_deadline(text: str) -> None:
    with pytest.raises(UsageError, match="write 7h"):
        parse_deadline(text, NOON)

"""Figures as people write them."""

from __future__ import annotations

import pytest

from perfrun.reports.figures import (
    metric_text,
    name_and_unit,
    ratio_text,
    time_left,
    trials_text,
    value_text,
)


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("got_flops_per_second", (35.87e9, 28.94e9, 38.3e9), "got 35.9 GFLOP/s (28.9..38.3)"),
        ("first_call_s", (0.5469, 0.5469, 0.5469), "first call 546.9 ms"),
        ("steps_per_sec", (5029, 4900, 5100), "5,029 steps/s (4,900..5,100)"),
        ("cache_misses_per_s", (5, 5, 5), "5 cache misses/s"),
        ("flops_per_second", (2e6, 2e6, 2e6), "2 MFLOP/s"),
        ("accuracy", (0.712, 0.701, 0.724), "accuracy 0.712 (0.701..0.724)"),
        ("delay_ms", (5, 5, 5), "delay 5 ms"),
        ("s", (5, 5, 5), "s 5"),
        ("_s", (5, 5, 5), "_s 5"),
        ("größe_per_second", (1, 1, 1), "größe_per_second 1"),
    ],
)  # fmt: skip
def test_a_metric_is_written_with_its_name_and_unit(
    name: str, values: tuple[float, float, float], text: str
) -> None:
    assert metric_text(name, *values) == text


def test_a_name_that_does_not_end_in_a_unit_stays_as_it_is() -> None:
    for name in ("images_per_second_per_device", "batch_size", "x" * 300 + "_s", "", "a\nb_s"):
        assert name_and_unit(name) == (name, "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (14.2, "14 s"), (99, "99 s"), (150, "2 min"), (5999, "100 min"), (9000, "2.5 h")],
)
def test_a_time_to_wait_is_told_roughly(seconds: float, text: str) -> None:
    assert time_left(seconds) == text


def test_ratios_and_numbers_of_trials_are_short() -> None:
    assert ratio_text(1.0912, 0.8, 1.5) == "1.09 (0.80..1.50)"
    assert ratio_text(0.99912, 0.9941, 1.0021) == "0.999 (0.994..1.002)"
    assert ratio_text(1.5, None, None) == "1.500"
    assert [trials_text(counts) for counts in ([1], [14, 14], [14, 6])] == [
        "1 trial",
        "14 trials",
        "6 to 14 trials",
    ]
    assert (value_text(None, "x"), value_text(0.002, "a/first_call_s")) == ("-", "2 ms")

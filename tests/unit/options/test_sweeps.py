"""Sweeps: every combination once, in the place of a method's own flags."""

from __future__ import annotations

import pytest

from perfrun.errors import UsageError
from perfrun.options.sweeps import parse_sweep, settings, with_setting


def test_a_sweep_is_the_product_of_its_values() -> None:
    found = settings(parse_sweep(["batch=1,8", "dtype=fp32,bf16"]))
    assert found == (
        (("batch", "1"), ("dtype", "fp32")),
        (("batch", "1"), ("dtype", "bf16")),
        (("batch", "8"), ("dtype", "fp32")),
        (("batch", "8"), ("dtype", "bf16")),
    )
    assert settings(()) == ((),)


@pytest.mark.parametrize(
    "words",
    [
        ["suite.toml"],
        ["batch"],
        ["batch="],
        ["batch=1,,2"],
        ["batch=1,1"],
        ["--batch=1"],
        ["batch=1", "batch=2"],
        ["a=\0"],
    ],
)
def test_what_is_no_sweep_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_sweep(words)


def test_a_sweep_without_end_is_refused_before_it_is_made() -> None:
    names = [f"n{number}=1,2,3,4,5,6,7,8,9" for number in range(40)]
    with pytest.raises(UsageError, match="more than 10,000 settings"):
        settings(parse_sweep(names))


def test_values_without_end_are_counted_before_they_are_compared() -> None:
    with pytest.raises(UsageError, match="more than 10,000 values"):
        parse_sweep(["n=" + ",".join(["1"] * 10_001)])


def test_a_setting_takes_the_place_of_the_methods_own_flags() -> None:
    own = ["--batch=4", "--batches=3", "-batch", "5", "--seed", "1", "--batch"]
    assert with_setting(own, (("batch", "8"),)) == ("--batches=3", "--seed", "1", "--batch=8")
    own = ["--shift", "-0.5", "--shift", "-.5", "--shift", "--seed", "-1"]
    assert with_setting(own, (("shift", "2"),)) == ("--seed", "-1", "--shift=2")

"""The flags about the number of trials: what they mean, and one line for what cannot be meant."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfrun.errors import UsageError
from perfrun.options.command_line import parse
from perfrun.options.parsers import MOST_TRIALS, RERUNS, Repetition

M = "--benchmark_methods=pkg.mod.Class.method"


def rules(*words: str) -> Repetition:
    return parse([M, *words]).repetition


@pytest.mark.parametrize(
    ("text", "value"), [("1%", 0.01), ("0.01", 0.01), ("2.5 %", 0.025), ("99%", 0.99)]
)
def test_a_precision_is_a_share_or_a_percentage(text: str, value: float) -> None:
    assert rules(f"--precision={text}").precision == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("20m", 1200), ("20 min", 1200), ("1.5h", 5400), ("1d", 86400)],
)
def test_a_time_budget_is_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert rules("--precision=1%", f"--time_budget={text}").time_budget_s == seconds


def test_without_flags_nothing_is_steered_or_run_again() -> None:
    assert rules() == Repetition()
    assert rules("--precision=", "--max_trials=", "--seed=") == Repetition()
    assert rules("--benchmark_num_trials=5").precision is None


def test_a_precision_brings_its_defaults() -> None:
    found = rules("--precision=1%")
    assert (found.max_trials, found.max_reruns) == (MOST_TRIALS, RERUNS)
    assert found.time_budget_s is None
    assert rules("--precision=1%", "--max_reruns=0").max_reruns == 0
    assert rules("--precision=1%", "--benchmark_num_trials=50").max_trials == 50
    assert rules("--max_reruns=3").max_reruns == 3
    assert rules("--seed=0").seed == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--precision=0"], "more than 0"),
        (["--precision=0%"], "more than 0"),
        (["--precision=200%"], "below 100%"),
        (["--precision=1"], "1% = 0.01"),
        (["--precision=-1%"], "more than 0"),
        (["--precision=nan"], "more than 0"),
        (["--precision=tight"], "write 1% or 0.01"),
        (["--precision=1%", "--max_trials=5"], "6 or more"),
        (["--precision=1%", "--max_trials=7.5"], "whole number"),
        (["--precision=1%", "--max_trials=1e3"], "whole number"),
        (["--precision=1%", "--max_trials=8", "--benchmark_num_trials=9"], "fewest"),
        (["--precision=1%", "--time_budget=0"], "more than 0"),
        (["--precision=1%", "--time_budget=-5"], "more than 0"),
        (["--precision=1%", "--time_budget=inf"], "more than 0"),
        (["--precision=1%", "--time_budget=soon"], "20m"),
        (["--precision=1%", "--time_budget=5w"], "20m"),
        (["--max_trials=10"], "needs --precision"),
        (["--time_budget=10"], "needs --precision"),
        (["--seed=abc"], "whole number"),
        (["--seed=-1"], "whole number"),
        (["--max_reruns=some"], "whole number"),
    ],
)
def test_what_cannot_be_meant_is_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        rules(*words)
    text = str(caught.value)
    assert said in text
    assert "\n" not in text
    assert words[-1].partition("=")[0] in text or words[0].partition("=")[0] in text


@settings(deadline=None)
@given(st.text(max_size=12))
def test_no_text_is_anything_but_a_value_or_a_usage_error(text: str) -> None:
    for flag in ("precision", "max_trials", "time_budget", "max_reruns", "seed"):
        said = ""
        try:
            found = rules("--precision=5%", f"--{flag}={text}")
            assert found.precision is None or 0 < found.precision < 1
        except UsageError as error:
            said = str(error)
        assert "\n" not in said


def test_the_flags_are_recorded_as_given() -> None:
    flags = parse([M, "--precision=1%", "--time_budget=20m"]).flags
    assert (flags["precision"], flags["time_budget"]) == ("1%", "20m")

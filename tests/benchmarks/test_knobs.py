from __future__ import annotations

from typing import Any

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import knobs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -1),
        ("batch_size", 1.5),
        ("batch_size", "8"),
        ("batch_size", True),
        ("iterations", 0),
        ("warmup", -1),
        ("seed", 2**32),
    ],
)
def test_a_value_out_of_its_limits_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is .*; it must be a whole number, at least"):
        knobs.Settings(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("batch_size", 1), ("warmup", 0), ("seed", 2**32 - 1)])
def test_the_limits_themselves_are_allowed(name: str, value: int) -> None:
    assert knobs.Settings(**{name: value}).value(name, 5) == value


def test_the_keyword_wins_over_the_flag_and_the_flag_over_the_default() -> None:
    with flagsaver.flagsaver(batch_size=4, warmup=0):
        assert knobs.Settings(batch_size=2).value("batch_size", 1) == 2
        assert knobs.Settings().value("batch_size", 1) == 4
        assert knobs.Settings().value("warmup", 3) == 0
        assert knobs.Settings().value("iterations", 30) == 30


def test_a_flag_out_of_its_limits_is_refused_by_absl() -> None:
    with pytest.raises(flags.IllegalFlagValueError, match="batch_size"):
        flags.FLAGS(["benchmark", "--batch_size=0"])


def test_flags_that_nobody_parsed_leave_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    unparsed: Any = flags.FlagValues()
    flags.DEFINE_integer("batch_size", None, "examples", flag_values=unparsed)
    monkeypatch.setattr(flags, "FLAGS", unparsed)
    assert not unparsed.is_parsed()
    assert knobs.Settings().value("batch_size", 8) == 8


def test_without_absl_there_are_keywords_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "flags", None)
    assert knobs.Settings(batch_size=2).value("batch_size", 1) == 2
    assert knobs.Settings().value("batch_size", 1) == 1

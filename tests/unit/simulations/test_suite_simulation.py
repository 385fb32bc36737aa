"""The suites that can be drawn."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.noises import Floats
from simulations.suite import main, make


def still(_: np.random.Generator, shape: tuple[int, ...], __: float) -> Floats:
    """Draw no noise at all."""
    return np.ones(shape)


@pytest.mark.parametrize("flags", ["--moved=0", "--series=9 --moved=10", "--suites=0"])
def test_a_suite_that_cannot_be_drawn_is_refused_in_one_line(
    flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_steps_come_together_or_each_in_a_night_of_its_own() -> None:
    together = make([still], "together", series=30, moved=6, seed=1)
    assert sorted(set(together.begins)) == [-1, 60]
    apart = make([still], "apart", series=30, moved=6, seed=1)
    assert len(set(apart.begins)) > 3
    for values, begin in zip(apart.table, apart.begins, strict=True):
        changed = [night for night, value in enumerate(values) if value != 1]
        assert (changed[0] if changed else -1) == begin


def test_the_table_has_a_row_for_each_way_to_judge(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--series=12", "--moved=3", "--suites=1"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 + 12
    assert all(row.count("|") == 8 for row in rows)

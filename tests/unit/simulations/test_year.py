"""The years that can be drawn."""

from __future__ import annotations

import pytest

from simulations.year import impossible, main, make


@pytest.mark.parametrize(
    "flags", ["--nights=60", "--series=3 --changes=3", "--changes=-1", "--years=0"]
)
def test_a_year_that_cannot_be_drawn_is_refused_in_one_line(
    flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags.split()) == 2
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.count("\n") == 1
    assert flags.split()[-1] in said


def test_the_shortest_year_has_room_for_its_changes() -> None:
    assert impossible(series=6, nights=67, changes=5, years=1)
    assert impossible(series=6, nights=68, changes=5, years=1) is None
    assert len(make(series=6, nights=68, changes=5, seed=1).made) == 5

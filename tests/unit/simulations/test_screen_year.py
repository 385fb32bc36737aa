"""The simulated year of screening: changes are found, counted, and told from false alarms."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.screen_disk import agreement_lines, screen_on_disk
from simulations.screen_year import main, score
from simulations.year import make


def test_the_year_finds_its_changes_within_the_budget() -> None:
    year = make(16, 120, 5, 3)
    found = score(year, 120, 0.4, 3)
    assert found.made == 5
    assert len(found.delays) + len(found.missed) == 5
    assert len(found.delays) >= 3
    assert found.false == 0
    assert min(found.delays) >= 1
    assert 2 * found.pairs <= 0.4 * found.trials
    nothing = score(make(9, 110, 1, 3), 110, 0.0, 3)
    assert nothing.delays == ()  # without time for pairs nothing is confirmed


def test_the_table_has_both_rows(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--series=12", "--nights=110", "--changes=1", "--years=1"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "| history alone |" in out
    assert "| screened, then pairs |" in out


def test_the_command_screens_files_as_the_simulation_does_in_memory(tmp_path: Path) -> None:
    year = make(9, 104, 2, 5)
    found = screen_on_disk(year, 104, 0.4, 5, tmp_path, 13)
    assert (found.only_in_memory, found.only_on_disk) == ((), ())
    assert found.alike >= 3
    assert found.confirmed >= 1
    assert agreement_lines(found)[1] == f"suspects that both list: {found.alike}"

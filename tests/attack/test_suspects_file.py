"""A trial plants `suspects.json`, which a night reads: nothing in it runs, and one line says it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from trial_documents import perfrun_summary

from perfrun.benchmark import main
from perfrun.changes.suspects import FILE, SuspectState, read_state, write_state
from tests.unit.changes.test_suspects import SUSPECT
from tests.unit.nightly.test_suite_changes import METHOD
from tests.unit.nightly.test_suite_screening import add, night, slowed

# What hangs on a pipe or reads without end waits for ever: that is an attack that succeeded.
pytestmark = pytest.mark.timeout(120)
Plant = Callable[[Path], object]


def _text(text: str) -> Plant:
    return lambda path: path.write_text(text, encoding="utf-8")


def _row(**wrong: Any) -> Plant:
    row = {**asdict(SUSPECT), **wrong}
    return _text(json.dumps({"open": [row], "confirmed": [{**row, "told_day": 1}]}))


FILES: dict[str, Plant] = {
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "huge": _text('{"open": [' + " " * (5 * 2**20) + "]}"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe" * 99),
    "deep": _text('{"open": ' * 9999),
    "wrong types": _row(pairs="0.1"),
    "a number as a name": _row(series=[1] * 7),
    "no such key as a number": _row(shift="__import__('os').system('id')"),
    "not finite": _text('{"at": 1e999}'),
    "a shift out of range": _row(shift=1e300),
    "a day out of range": _row(first_day=-1),
    "more error than a year allows": _row(alpha=0.5, pairs=[0.1] * 40),
    "more pairs than there can be": _row(alpha=1e-4, pairs=[0.1] * 10_000),
    "pairs without an error": _row(pairs=[0.1] * 40),
    "odds of certainty": _row(odds=1e12),
    "odds that are never asked again": _row(asked_odds=-1.0),
}


@pytest.mark.parametrize("name", FILES)
def test_a_planted_file_is_left_out_and_one_line_says_it(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / FILE)
    lines: list[str] = []
    state = read_state(tmp_path, lines.append)
    assert (state.open, state.confirmed) == ((), ())
    (line,) = lines
    assert line.startswith(str(tmp_path / FILE))
    assert line.count("\n") == 0


def test_a_planted_suspect_runs_nothing_that_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alarm = slowed(tmp_path)
    first = night(tmp_path, alarm)
    marker = tmp_path / "marker"
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    sides = []
    for side in (1, 2):
        python = {"version": "3.11.7", "executable": str(program)}
        facts = {"environment": {"python": python}, "env": {"N": str(side)}}
        folder = tmp_path / "output" / ".planted" / str(side)
        folder.mkdir(parents=True)
        sides.append(folder / "perfzero_summary.json")
        document = perfrun_summary(side, wall_time=float(side), own=facts)
        sides[-1].write_text(json.dumps(document), encoding="utf-8")
    state = read_state(tmp_path)
    (own,) = state.open
    command = f"$(touch {marker})\x1b[2J"
    planted = [
        replace(own, series=(name, *own.series[1:-1], str(number)), alpha=1e-4, pairs=(0.18,) * 8)
        for number, name in enumerate((METHOD, f"os.system.{command}", f"--python={program}"))
    ]
    planted = [
        replace(one, before_summary=str(sides[0]), after_summary=str(sides[1])) for one in planted
    ]
    write_state(tmp_path, SuspectState(open=(own, *planted), allowed=state.allowed, at=state.at))
    add(tmp_path, alarm + 1)
    told = night(tmp_path, alarm + 1, {alarm: first}, is_late=False)
    assert not marker.exists()
    (note,) = (text for text in told.notes if "no pairs" in text)
    assert "was imported, not run in this workspace" in note
    assert not any("os.system" in text for text in told.notes)  # of no method of this night
    (tmp_path / FILE).write_text('{"open": [7]}', encoding="utf-8")
    assert main(["detect", f"--workspace={tmp_path}", "--screen"]) in (0, 1)
    err = capsys.readouterr().err
    assert [line for line in err.splitlines() if FILE in line] == [
        f"perfrun: {tmp_path / FILE}: is not as perfrun writes it; its suspects begin anew"
    ]
    assert not marker.exists()

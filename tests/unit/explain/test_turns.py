"""Turns of trials and profiles of which some fail: what is complete is kept, and compared alike."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from trial_documents import perfrun_summary

from perfrun.compare.paired_runs import ARMS
from perfrun.explain.answer import answer_of, document_of
from perfrun.explain.turns import ExplainFailed, Turns, _Turns
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from perfrun.summary.document import Status, TrialResult

METHOD = "pkg.mod.Cases.ok"
# Given an arm and a turn, returns the rows of a profile, or the error of a trial without them.
Rows = Callable[[str, int], list[dict[str, Any]] | str]
Ran = Callable[[str, int], bool]


class Arm:
    """A side whose trials and profiles end as a test says, and leave the files of real ones."""

    def __init__(self, folder: Path, name: str, ran: Ran, rows: Rows) -> None:
        self.folder, self.name, self.ran, self.rows = folder / name, name, ran, rows
        self.ended = False

    def run_one(self, method: str, number: int) -> TrialResult:
        status = Status.PASSED if self.ran(self.name, number) else Status.FAILED
        said = {"status": status.value, "reason": "no such thing"}
        document = perfrun_summary(number, name=method, own={"outcome": said})
        document["benchmark_info"]["has_exception"] = not status.ran
        return self._result(number, status, document)

    def profile_one(self, method: str, number: int, kind: str) -> TrialResult:
        rows = self.rows(self.name, number)
        error = rows if isinstance(rows, str) else None
        recorded = {"tool": "t", "windows": [{"steps": 10}], "notes": [], "error": error}
        own = {"profiles": [recorded], "outcome": {"reason": None}, "order": {"profile": kind}}
        found = self._result(number, Status.PASSED, perfrun_summary(number, name=method, own=own))
        folder = Path(found.summary).parent / "profile"
        folder.mkdir(parents=True)
        (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
        return found

    def _result(self, number: int, status: Status, document: dict[str, Any]) -> TrialResult:
        summary = str(self.folder / str(number) / "perfzero_summary.json")
        return TrialResult(
            name=METHOD, trial_id=number, status=status, summary=summary, document=document
        )

    def finish(self, *, ended: bool) -> None:
        self.ended = ended


def times(_: str, number: int) -> list[dict[str, Any]]:
    return [{"name": "f", "self_s": float(number), "calls": 10}]


def fails_in(*turns: int) -> Rows:
    return lambda arm, turn: "no memory" if arm == "b" and turn in turns else times(arm, turn)


def turned(
    folder: Path, turns: int, rows: Rows = times, ran: Ran = lambda *_: True, kind: str = "cprofile"
) -> tuple[Turns, str]:
    """The result of the turns, and what the screen said."""
    arms = {name: Arm(folder, name, ran, rows) for name in ARMS}
    said = io.StringIO()
    screen = Terminal(said, said, quiet=False)
    choose = lambda _: (kind,)  # noqa: E731
    work = _Turns(cast("Any", arms), METHOD, choose, "wall_time", screen, 1)
    stopped_by = work.run(turns, None, Interruption())
    assert all(arm.ended for arm in arms.values())
    return work.result({"a": (), "b": ()}, stopped_by), said.getvalue()


@pytest.mark.parametrize("number", [1, 3])
def test_times_of_the_device_are_not_compared_with_those_of_the_host(
    tmp_path: Path, number: int
) -> None:
    def rows(arm: str, turn: int) -> list[dict[str, Any]]:
        on_device = arm == "b" and turn >= number
        return [{"name": "f", "self_s": 1.0, **({"device_s": 9.0} if on_device else {})}]

    found, said = turned(tmp_path, 4, rows, kind="torch")
    assert len(found.pairs) == 4
    assert found.readings == {}
    unlike = "its profiles have unlike figures: device_s of a step, self_s of a step"
    assert found.left_out == {"torch": f"turn {number}: {unlike}"}
    assert f"profile torch: turn {number}: {unlike}; it is left out" in said


def test_a_figure_of_the_device_on_both_sides_is_compared(tmp_path: Path) -> None:
    rows = [{"name": "f", "self_s": 1.0, "device_s": 9.0, "calls": 10}]
    found, _ = turned(tmp_path, 2, lambda *_: rows, kind="torch")
    for side in found.readings["torch"].values():
        assert [(one.figure, one.is_per_step) for one in side] == [("device_s", True)] * 2
        assert [row.value for one in side for row in one.rows] == [0.9, 0.9]


def test_a_profile_that_fails_once_costs_its_turn_of_this_kind_alone(tmp_path: Path) -> None:
    found, said = turned(tmp_path, 6, fails_in(3, 5))
    assert [pair.number for pair in found.pairs] == [1, 2, 3, 4, 5, 6]
    assert found.left_out == {}
    for side in found.readings["cprofile"].values():
        assert [row.value for one in side for row in one.rows] == [0.1, 0.2, 0.4, 0.6]
    why = "turn 5: b: no memory"
    assert found.lost == {"cprofile": f"2 of 6 turns lack such profiles; {why}"}
    assert "profile cprofile, turn 3: b: no memory" in said
    [kind] = (answer := answer_of(found, "wall_time", {"a": "x", "b": "y"})).kinds
    assert (kind.turns, kind.notes) == (4, (found.lost["cprofile"],))
    assert document_of(answer)["profiles"][0]["turns"] == 4


def test_a_kind_that_fails_at_once_is_left_out(tmp_path: Path) -> None:
    found, said = turned(tmp_path, 4, fails_in(1))
    assert (len(found.pairs), found.readings, found.lost) == (4, {}, {})
    assert found.left_out == {"cprofile": "b: no memory"}
    assert said.count("no memory") == 1


@pytest.mark.parametrize(("first", "kept"), [(4, 0), (5, 4)])
def test_a_kind_that_fails_three_times_in_a_row_is_not_tried_again(
    tmp_path: Path, first: int, kept: int
) -> None:
    found, said = turned(tmp_path, 9, fails_in(first, first + 1, first + 2))
    assert len(found.pairs) == 9
    assert [len(side) for own in found.readings.values() for side in own.values()] == (
        [kept] * 2 if kept else []
    )
    assert found.left_out == ({} if kept else {"cprofile": "b: no memory"})
    assert ("it is not tried again" in said) == bool(kept)
    assert not (tmp_path / "a" / "9" / "profile").exists(), "it is not tried again"


def test_turns_that_are_complete_are_kept_when_a_side_fails_later(tmp_path: Path) -> None:
    found, _ = turned(tmp_path, 9, ran=lambda arm, turn: arm == "a" or turn in {1, 3})
    assert [pair.number for pair in found.pairs] == [1, 3]
    assert found.stopped_by == "failed"
    assert found.failure is not None
    assert found.failure.startswith("the trials of new fail: no such thing; ")
    for side in found.readings["cprofile"].values():
        assert [row.value for one in side for row in one.rows] == [0.1, 0.3]
    with pytest.raises(ExplainFailed, match="the trials of base fail: "):
        turned(tmp_path / "again", 9, ran=lambda arm, _: arm == "b")

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
from perfrun.explain.turns import Turns, _Turns
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

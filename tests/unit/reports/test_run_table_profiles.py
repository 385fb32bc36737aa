"""The lines of a profile on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfrun.reports.run_table import profile_lines
from perfrun.summary.document import Status, TrialResult

ROW = {"name": "f" * 80, "where": "/a/b/c.py:7", "calls": 3, "self_s": 0.0012, "total_s": 1.5}
PROFILE = {
    "kind": "cprofile",
    "tool": "cProfile",
    "version": "3.11.7",
    "windows": [{"part": "method", "steps": None, "begin_s": 0.5, "end_s": 2.0}],
    "top": [ROW] * 9,
    "files": [{"path": "profile/method.prof", "bytes": 10}],
    "notes": ["something odd"],
    "error": None,
}


def lines(profiles: list[dict[str, Any]], status: str = "passed", reason: str = "") -> list[str]:
    own = {
        "order": {"profile": "cprofile"},
        "outcome": {"status": status, "reason": reason or None},
        "profiles": profiles,
    }
    return profile_lines(
        TrialResult(
            name="m.C.x",
            trial_id=1,
            status=Status(status),
            summary=str(Path("/w/output/1/profiles/cprofile/profile_summary.json")),
            document={"perfrun": own},
        )
    )


def test_files_window_and_the_five_largest_rows_are_shown() -> None:
    head, note, file, titles, *rows = lines([PROFILE])
    assert head == "profile cprofile of m.C.x, by cProfile 3.11.7: the whole method, 1.5 s"
    assert note == "  something odd"
    assert file == "  /w/output/1/profiles/cprofile/profile/method.prof"
    assert titles.split() == ["self", "ms", "total", "ms", "calls", "what"]
    assert len(rows) == 5
    assert rows[0].split() == ["1.200", "1500.000", "3", "f" * 57 + "...", "b/c.py:7"]


def test_steps_of_several_windows_are_summed() -> None:
    window = {"part": "timed steps", "steps": 20, "begin_s": 1.0, "end_s": 1.25}
    [head, *_] = lines([{**PROFILE, "windows": [window, window]}])
    assert head.endswith(": 40 timed steps, 500 ms")


def test_each_counter_is_shown_with_its_count_a_step() -> None:
    window = {"part": "timed steps", "steps": 4, "begin_s": 1.0, "end_s": 1.25}
    counts = [
        {"name": f"e{n}", "unit": "events", "count": 123456.0, "per_step": 2} for n in "123456"
    ]
    clock = {"name": "task-clock", "unit": "s", "count": 0.25, "per_step": 0.0625}
    _, *shown = lines([{**PROFILE, "windows": [window], "top": [clock, *counts], "files": []}])
    assert shown[1].split() == ["count", "per", "step", "what"]
    assert shown[2].split() == ["0.25", "0.0625", "task-clock,", "s"]
    assert [row.split() for row in shown[3:]] == [["123,456", "2", f"e{n}"] for n in "123456"]


def test_bytes_are_shown_in_mebibytes() -> None:
    row = {"name": "", "where": "c.py:7", "bytes": 50 * 2**20, "allocations": 1}
    assert lines([{**PROFILE, "top": [row]}])[-1].split() == ["50.0", "1", "c.py:7"]


def test_an_environment_without_the_profiler_is_one_line() -> None:
    reason = "UnavailableError: PyTorch cannot be imported in this environment: No module"
    assert lines([], "failed", reason) == [
        "profile cprofile of m.C.x: none: PyTorch cannot be imported in this environment: No module"
    ]


def test_a_method_that_failed_under_the_profiler_shows_what_was_recorded() -> None:
    first, second, *_ = lines([PROFILE], "failed", "ValueError: x")
    assert first == "profile cprofile of m.C.x: failed (ValueError: x)"
    assert second.startswith("profile cprofile of m.C.x, by cProfile")


def test_a_profiler_that_recorded_nothing_says_why() -> None:
    head, why, *_ = lines([{**PROFILE, "windows": [], "top": [], "error": "did not start"}])
    assert head.endswith(": nothing recorded")
    assert why == "  did not start"

"""Files that a worker left behind are read, and its outcome is judged."""

from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exits import ENDED

from perfrun.launchers.launcher import Exit
from perfrun.run.outcome import Leftovers, judge_outcome, notes_on, read_leftovers
from perfrun.summary.document import Metric, Outcome, Report, Status
from perfrun.worker.outcome_file import ASIDE, OUTCOME, RESERVED_BYTES
from perfrun.worker.test_log import encode_entry

MIB = 2**20
NOTHING = Leftovers(record={}, reports=(), series=(), stack=None, stderr_tail=None, notes=())
DONE = {"complete": True, "phase": "method", "error": None}
RAISED = {
    **DONE,
    "error": {
        "kind": "exception",
        "type": "ValueError",
        "message": "bad\nsecond",
        "traceback": "t",
    },
}
CALLED_EXIT = {**DONE, "error": {"kind": "exit", "message": "3", "exit_code": 3}}
IN_METHOD = {"complete": False, "phase": "method", "error": None}
MISSED = (Report(name="C.m", metrics=(Metric(name="acc", value=0.5, min_value=0.9),)),)


def by_signal(number: int, why: str | None = None) -> Exit:
    return replace(ENDED, exit_code=None, signal_number=number, stopped_for=why)


def with_code(code: int) -> Exit:
    return replace(ENDED, exit_code=code)


def judged(
    record: dict[str, Any], end: Exit, *, reports: tuple[Report, ...] = (), oom_kills: int = 0
) -> Outcome:
    left = replace(NOTHING, record=record, reports=reports, stack="st", stderr_tail="a\nlast line")
    return judge_outcome(left, end, oom_kills=oom_kills, timeout_s=7.5)


TABLE = [
    ("done", DONE, ENDED, 0, Status.PASSED),
    ("done, a neighbour was oom-killed", DONE, ENDED, 1, Status.PASSED),
    ("exception", RAISED, with_code(1), 0, Status.FAILED),
    ("exception, then a crash at exit", RAISED, by_signal(signal.SIGSEGV), 0, Status.FAILED),
    ("sys.exit(3)", CALLED_EXIT, with_code(3), 0, Status.EXITED),
    ("os._exit(0) in the method", IN_METHOD, with_code(0), 0, Status.EXITED),
    ("os._exit(7) in the method", IN_METHOD, with_code(7), 0, Status.EXITED),
    ("segfault", IN_METHOD, by_signal(signal.SIGSEGV), 0, Status.CRASHED),
    ("abort while importing", {"phase": "import"}, by_signal(signal.SIGABRT), 0, Status.CRASHED),
    ("killed by someone", IN_METHOD, by_signal(signal.SIGKILL), 0, Status.CRASHED),
    ("killed by the kernel", IN_METHOD, by_signal(signal.SIGKILL), 1, Status.OOM_KILLED),
    ("segfault beside an oom kill", IN_METHOD, by_signal(signal.SIGSEGV), 1, Status.CRASHED),
    ("a real-time signal", IN_METHOD, by_signal(40), 0, Status.CRASHED),
    ("deadline", IN_METHOD, by_signal(signal.SIGTERM, "deadline"), 0, Status.TIMED_OUT),
    ("deadline by force", IN_METHOD, by_signal(signal.SIGKILL, "deadline"), 1, Status.TIMED_OUT),
    (
        "deadline, the method's handler calls sys.exit",
        CALLED_EXIT,
        replace(with_code(3), stopped_for="deadline"),
        0,
        Status.TIMED_OUT,
    ),
    (
        "deadline, the method's handler raises",
        RAISED,
        replace(with_code(1), stopped_for="deadline"),
        0,
        Status.TIMED_OUT,
    ),
    (
        "deadline, the method ends early because of SIGTERM",
        DONE,
        replace(ENDED, stopped_for="deadline"),
        0,
        Status.TIMED_OUT,
    ),
    ("Ctrl-C", IN_METHOD, by_signal(signal.SIGTERM, "interrupt"), 0, Status.INTERRUPTED),
    (
        "Ctrl-C, the method's handler raises",
        RAISED,
        replace(with_code(1), stopped_for="interrupt"),
        0,
        Status.INTERRUPTED,
    ),
    ("Ctrl-C before the worker began", {}, by_signal(15, "interrupt"), 0, Status.INTERRUPTED),
    ("not ended after its last word", DONE, by_signal(signal.SIGKILL, "exit"), 0, Status.PASSED),
    ("crash after its last word", DONE, by_signal(signal.SIGSEGV), 0, Status.PASSED),
    ("an interpreter that does not start", {}, with_code(1), 0, Status.FAILED),
]


@pytest.mark.parametrize(
    ("record", "end", "oom_kills", "status"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_the_outcome_follows_from_what_was_left_and_how_it_ended(
    record: dict[str, Any], end: Exit, oom_kills: int, status: Status
) -> None:
    outcome = judged(record, end, oom_kills=oom_kills)
    assert outcome.status is status
    if status is Status.PASSED:
        assert outcome.reason is None
    else:
        assert outcome.reason
        assert "\n" not in outcome.reason
    # The dump and the tail explain what did not run, and say nothing where it did.
    assert (outcome.stack is None) is status.ran
    assert (outcome.stderr_tail is None) is status.ran


@pytest.mark.parametrize(
    ("record", "end", "reason"),
    [
        (RAISED, with_code(1), "ValueError: bad"),
        (CALLED_EXIT, with_code(3), "the benchmark called sys.exit(3)"),
        (IN_METHOD, with_code(7), "the process ended with status 7 during method"),
        (IN_METHOD, by_signal(signal.SIGSEGV), "SIGSEGV during method"),
        (IN_METHOD, by_signal(15, "deadline"), "not finished after 7.5 s, during method"),
        ({}, with_code(1), "the worker did not start (exit status 1): last line"),
    ],
)
def test_the_reason_says_it_in_one_line(record: dict[str, Any], end: Exit, reason: str) -> None:
    assert judged(record, end).reason == reason


def test_any_report_out_of_bounds_counts_and_is_named() -> None:
    good = (Report(name="C.m"),)
    outcome = judged(DONE, ENDED, reports=good + MISSED)
    assert outcome.status is Status.OUT_OF_BOUNDS
    assert outcome.reason == "acc = 0.5 is not in [0.9, inf]"
    assert judged(RAISED, with_code(1), reports=MISSED).status is Status.FAILED


def test_details_of_the_end_are_kept() -> None:
    raised = judged(RAISED, with_code(1))
    assert raised.exception == RAISED["error"]
    assert (raised.exit_code, raised.signal) == (1, None)
    crashed = judged(IN_METHOD, replace(by_signal(signal.SIGSEGV), strays=("sleep (pid 7)",)))
    assert (crashed.exit_code, crashed.signal) == (None, "SIGSEGV")
    assert crashed.stray_processes == ("sleep (pid 7)",)
    assert judged(CALLED_EXIT, with_code(3)).exit_code == 3
    assert judged(CALLED_EXIT, with_code(3)).exception is None


def test_the_number_of_a_signal_without_a_name_is_kept() -> None:
    assert "40" in (judged(IN_METHOD, by_signal(40)).signal or "")


@pytest.mark.parametrize(
    ("record", "end", "reports", "words"),
    [
        (DONE, ENDED, (), ["no report"]),
        (DONE, ENDED, (Report(name="C.m"),), []),
        (DONE, by_signal(9, "exit"), (Report(name="C.m"),), ["did not end"]),
        (RAISED, by_signal(9, "exit"), (), ["did not end"]),
        (DONE, by_signal(15, "deadline"), (Report(name="C.m"),), []),
        (DONE, by_signal(11), (Report(name="C.m"),), ["SIGSEGV"]),
        (DONE, by_signal(40), (Report(name="C.m"),), ["40"]),
        (RAISED, with_code(1), (), []),
        (DONE, replace(ENDED, strays=("a", "b")), (Report(name="C.m"),), ["2 process(es)"]),
    ],
)
def test_what_was_odd_is_noted(
    record: dict[str, Any], end: Exit, reports: tuple[Report, ...], words: list[str]
) -> None:
    left = replace(NOTHING, record=record, reports=reports)
    outcome = judge_outcome(left, end, oom_kills=0, timeout_s=1.0)
    notes = notes_on(left, end, outcome)
    assert len(notes) == len(words)
    for note, word in zip(notes, words, strict=True):
        assert word in note


def test_notes_of_the_worker_and_of_the_reading_are_passed_on() -> None:
    left = replace(NOTHING, record={**RAISED, "notes": ["profiler"]}, notes=("proto",))
    assert notes_on(left, ENDED, judged(RAISED, ENDED)) == ("profiler", "proto")


# --- files -------------------------------------------------------------------------------------


def test_an_empty_folder_leaves_nothing(tmp_path: Path) -> None:
    assert read_leftovers(tmp_path, tmp_path) == NOTHING
    assert read_leftovers(tmp_path / "gone", tmp_path / "gone") == NOTHING


def test_the_final_outcome_wins_over_the_one_still_aside(tmp_path: Path) -> None:
    (tmp_path / ASIDE).write_text('{"phase": "import"}')
    assert read_leftovers(tmp_path, tmp_path).record == {"phase": "import"}
    (tmp_path / OUTCOME).write_text('{"phase": "method", "complete": true}')
    left = read_leftovers(tmp_path, tmp_path)
    assert left.record["phase"] == "method"
    assert left.complete


@pytest.mark.parametrize(
    "content",
    [b"", b" " * RESERVED_BYTES, b'{"phase": "meth', b"[1]", b"null", b"\xff\xfe{}", b"\0" * 99],
)
def test_an_outcome_that_is_not_whole_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ASIDE).write_bytes(content)
    left = read_leftovers(tmp_path, tmp_path)
    assert left.record == {}
    assert not left.complete


def test_reports_come_in_the_order_they_were_made(tmp_path: Path) -> None:
    names = ["proto_C.m", "proto_2_C.a", "proto_10_C.m", "proto_9_C.z"]
    for name in names:
        (tmp_path / name).write_bytes(encode_entry(name))
    left = read_leftovers(tmp_path, tmp_path)
    assert [report.name for report in left.reports] == [
        "proto_C.m",
        "proto_2_C.a",
        "proto_9_C.z",
        "proto_10_C.m",
    ]
    assert left.notes == ()


def test_a_report_that_cannot_be_read_is_noted_and_the_others_kept(tmp_path: Path) -> None:
    (tmp_path / "proto_C.m").write_bytes(encode_entry("C.m", wall_time=2.0))
    (tmp_path / "proto_2_C.m").write_bytes(encode_entry("C.m", wall_time=3.0)[:-3])
    (tmp_path / "proto_3_C.m").mkdir()
    left = read_leftovers(tmp_path, tmp_path)
    assert [report.wall_time for report in left.reports] == [2.0]
    assert [note.partition(" ")[0] for note in left.notes] == ["proto_2_C.m", "proto_3_C.m"]


def test_reports_are_found_in_a_folder_with_a_hostile_name(tmp_path: Path) -> None:
    folder = tmp_path / "a [b]* 'c'\n{d}"
    folder.mkdir()
    (folder / "proto_C.m").write_bytes(encode_entry("C.m", iters=-1))
    assert read_leftovers(folder, folder).reports[0].iters == -1


def test_the_tail_of_stderr_begins_with_a_whole_line(tmp_path: Path) -> None:
    lines = [f"line {number} \xe9" for number in range(2000)]
    (tmp_path / "stderr.log").write_bytes("\n".join(lines).encode("latin-1") + b"\n\n")
    tail = read_leftovers(tmp_path, tmp_path).stderr_tail
    assert tail is not None
    assert len(tail.encode()) < 8192
    assert tail.splitlines()[0].startswith("line 1")
    assert tail.splitlines()[-1] == "line 1999 \N{REPLACEMENT CHARACTER}"


def test_a_single_endless_line_still_has_a_tail(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("x" * 100_000 + "end")
    tail = read_leftovers(tmp_path, tmp_path).stderr_tail
    assert tail is not None
    assert tail.endswith("xend")
    assert len(tail) <= 4096


def test_a_record_from_the_real_disk_can_be_judged(tmp_path: Path) -> None:
    (tmp_path / OUTCOME).write_text(json.dumps({**RAISED, "notes": [], "memory": {}}))
    left = read_leftovers(tmp_path, tmp_path)
    assert judge_outcome(left, with_code(1), oom_kills=0, timeout_s=None).status is Status.FAILED
    assert [path.name for path in tmp_path.iterdir()] == [OUTCOME]


def in_group(end: Exit, **figures: int | None) -> Exit:
    return replace(end, cgroup={"oom_kills": 0, **figures})


def test_a_trials_own_count_of_kills_goes_before_the_machines() -> None:
    killed = by_signal(signal.SIGKILL)
    assert judged(IN_METHOD, in_group(killed), oom_kills=1).status is Status.CRASHED
    figures = {"memory_limit_bytes": 128 * MIB, "memory_peak_bytes": 128 * MIB}
    found = judged(IN_METHOD, in_group(killed, oom_kills=1, **figures))
    assert found.status is Status.OOM_KILLED
    assert found.reason == (
        "killed by the kernel for want of memory during method (limit 128.0 MiB, peak 128.0 MiB)"
    )


def test_a_child_that_was_killed_for_want_of_memory_is_a_note() -> None:
    left = replace(NOTHING, record=DONE)
    end = in_group(ENDED, oom_kills=2, memory_limit_bytes=64 * MIB)
    outcome = judge_outcome(left, end, oom_kills=0, timeout_s=None)
    assert outcome.status is Status.PASSED
    assert any(
        "the kernel killed 2 process(es) of the trial for want of memory (limit 64.0 MiB)" in note
        for note in notes_on(left, end, outcome)
    )


def test_that_a_kill_for_want_of_memory_is_a_guess_is_a_note() -> None:
    left, killed = replace(NOTHING, record=IN_METHOD), by_signal(signal.SIGKILL)
    guessed = judge_outcome(left, killed, oom_kills=3, timeout_s=None)
    assert guessed.status is Status.OOM_KILLED
    (note,) = notes_on(left, killed, guessed, knows_victim=False)
    assert "/dev/kmsg" in note
    assert notes_on(left, killed, guessed) == ()
    # Its own group's count is no guess, and neither is another end.
    inside = in_group(killed, oom_kills=1)
    outcome = judge_outcome(left, inside, oom_kills=3, timeout_s=None)
    assert notes_on(left, inside, outcome, knows_victim=False) == ()
    crashed = judge_outcome(left, by_signal(signal.SIGSEGV), oom_kills=3, timeout_s=None)
    assert notes_on(left, by_signal(signal.SIGSEGV), crashed, knows_victim=False) == ()


def test_what_ended_a_trial_from_outside_is_said_unless_its_method_had_ended() -> None:
    gone = replace(ENDED, exit_code=None, disturbance="the container engine went away")
    found = judged(IN_METHOD, gone)
    assert (found.status, found.reason) == (
        Status.FAILED,
        "the container engine went away during method",
    )
    stopped = replace(by_signal(signal.SIGTERM), disturbance="the container was stopped")
    assert judged(IN_METHOD, stopped).status is Status.CRASHED
    assert judged(DONE, gone).status is Status.PASSED
    notes = notes_on(replace(NOTHING, record=DONE), gone, judged(DONE, gone))
    assert "the container engine went away after the method had ended" in notes


def test_a_process_that_could_not_be_ended_is_named_in_the_reason_or_in_a_note() -> None:
    stuck = "process 7 could not be ended: it is in state D 60 s after SIGKILL"
    gone = replace(ENDED, exit_code=None, unended=stuck)
    table = [
        ("deadline", Status.TIMED_OUT, f"not finished after 7.5 s, during method; {stuck}"),
        ("interrupt", Status.INTERRUPTED, f"interrupted during method; {stuck}"),
        (None, Status.FAILED, f"{stuck}, during method"),
    ]
    for why, status, reason in table:
        found = judged(IN_METHOD, replace(gone, stopped_for=why))
        assert (found.status, found.reason, found.exit_code) == (status, reason, None)
    slow = replace(gone, stopped_for="exit")
    outcome = judged(DONE, slow)
    assert outcome.status is Status.PASSED
    notes = notes_on(replace(NOTHING, record=DONE), slow, outcome)
    assert f"the process did not end after its method had; {stuck}" in notes


@pytest.mark.parametrize("failures", [1, 9])
@pytest.mark.parametrize("name", ["perfrun", "outcome.json", "proto_C.m"])
def test_an_error_of_the_disk_that_passes_costs_no_result(
    name: str, failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "perfrun"
    private.mkdir()
    (private / "outcome.json").write_text('{"complete": true, "phase": "method"}')
    (tmp_path / "proto_C.m").write_bytes(encode_entry("C.m", wall_time=1.5))
    real, left = os.open, [failures]

    def failing(path: Any, *words: Any, **named: Any) -> int:
        if str(path).endswith(name) and left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, *words, **named)

    monkeypatch.setattr(os, "open", failing)
    found = read_leftovers(tmp_path, private)
    monkeypatch.undo()
    if failures == 1:
        assert found.complete
        assert [report.wall_time for report in found.reports] == [1.5]
        assert found.notes == ()
        return
    assert found.complete == (name == "proto_C.m")
    assert "Input/output error" in (found.unusable if name != "proto_C.m" else found.notes[0])

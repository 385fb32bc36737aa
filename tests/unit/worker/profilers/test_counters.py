"""Counters of events: what perf prints, and what is said where it cannot count."""

from __future__ import annotations

import mmap
import shutil
import time
from pathlib import Path

import pytest

from perfrun.worker.profilers.counters import Count, CounterRecorder, parse
from perfrun.worker.profilers.profile_recorder import UnavailableError

# Of perf 6.1: a machine with counters, as an ordinary user, and one without.
HARDWARE = """# started on Sun Nov 22 11:04:43 2026

1234567,,instructions:u,1000000,50.00,1.2,insn per cycle
509.58,msec,task-clock:u,509582491,100.00,0.319,CPUs utilized
"""
VIRTUAL = """
509.58,msec,task-clock,509582491,100.00,0.319,CPUs utilized
7,,minor-faults,509546627,100.00,0.000,/sec
<not supported>,,instructions,0,100.00,,
<not counted>,,cycles,0,0.00,,
nonsense
"""


def test_events_that_are_not_there_are_none() -> None:
    assert parse(HARDWARE) == {
        "instructions": Count(1234567, 50.0),
        "task-clock": Count(509.58, 100.0),
    }
    assert parse(VIRTUAL) == {
        "task-clock": Count(509.58, 100.0),
        "minor-faults": Count(7, 100.0),
        "instructions": None,
        "cycles": None,
    }


def test_without_perf_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"needs perf on PATH .*linux-perf.*; there is none"):
        CounterRecorder(str(tmp_path))


def test_what_perf_says_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "perf"
    program.write_text(
        '#!/bin/sh\necho Error:\necho "Access to events is limited." >&2\nexit 255\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    recorder = CounterRecorder(str(tmp_path))
    with pytest.raises(RuntimeError, match="perf says: Access to events is limited"):
        recorder.start()


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_kernel_counts_between_start_and_stop(tmp_path: Path) -> None:
    if shutil.which("perf") is None:
        pytest.skip("no perf on PATH")
    recorder = CounterRecorder(str(tmp_path))
    burn(0.5)
    for _ in range(2):
        try:
            recorder.start()
        except RuntimeError as error:  # a container, or a kernel that allows it to nobody
            pytest.skip(str(error))
        burn(0.2)
        with mmap.mmap(-1, 4096 * 5000) as pages:
            pages.madvise(mmap.MADV_NOHUGEPAGE)
            for number in range(5000):
                pages[4096 * number] = 1
        recorder.note_steps(5)
        recorder.stop(keep=True)
        burn(0.5)
    rows = {row["name"]: row for row in recorder.top()}
    # As much as was burned, in a process whose other threads are idle.
    assert rows["task-clock"]["unit"] == "s"
    assert 0.38 < rows["task-clock"]["count"] < 1.2
    assert rows["task-clock"]["per_step"] == pytest.approx(rows["task-clock"]["count"] / 10)
    assert 10_000 <= rows["minor-faults"]["count"] < 11_000, "5,000 pages in each of the windows"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["perf_stat.csv", "perf_stat_2.csv"]
    lacking = [note for note in recorder.notes if "does not count" in note]
    assert ("instructions" in rows) != any("instructions" in note for note in lacking)

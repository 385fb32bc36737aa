"""A few faults of each family, the same ones every time; `make faults` and `make chaos` make all.

Each of them is a run of its own that ends badly, and a second one that goes on from there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from disk import Call, Disk, calls_of
from states import Recording, check_state
from subject import Subject

CHAOS = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def _strace() -> None:
    if not shutil.which("strace"):
        assert not os.environ.get("CI"), "no strace: install it"
        pytest.skip("no strace: apt-get install strace")


def make_faults(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(CHAOS), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_system_call_that_fails_loses_no_trial() -> None:
    assert "20 tried, 20 made, 0 failed" in make_faults("syscalls", "--sample=20", "--seed=13")


@pytest.mark.slow
def test_a_power_loss_loses_no_trial_that_was_reported() -> None:
    assert "12 tried, 12 made, 0 failed" in make_faults("states", "--sample=12", "--seed=13")


@pytest.mark.slow
def test_kills_full_disks_and_clocks_that_jump_lose_no_trial() -> None:
    assert "7 tried, " in (said := make_faults("kills", "--sample=7", "--seed=13"))
    assert ", 0 failed" in said


@pytest.mark.slow
def test_a_database_and_servers_that_fail_lose_no_trial() -> None:
    kinds = "--scenario=database,download,git,webhook"
    said = make_faults("services", kinds, "--sample=6", "--seed=13", "--jobs=1")
    assert "6 tried, 6 made, 0 failed" in said


@pytest.mark.parametrize("left_out", ["summary", "folder"])
def test_what_is_not_synced_is_found_to_be_lost(left_out: str, tmp_path: Path) -> None:
    subject = Subject(tmp_path, "plain")
    subject.prepare()
    recording = Recording(subject)
    synced = [call for call in recording.calls if call.name == "fsync"]
    kinds = {
        "summary": lambda call: ".perfzero_summary.json." in str(call.folder),
        "folder": lambda call: str(call.folder).rpartition("/")[0].endswith("/output"),
    }
    gone = [call for call in synced if kinds[left_out](call)]
    assert gone
    recording.calls = [call for call in recording.calls if call not in gone]
    _, problems = check_state(subject, recording, f"plain/{len(recording.steps) - 1}/synced")
    assert any("lost: " in problem for problem in problems)


def disk_after(*lines: str) -> Disk:
    disk = Disk(Path("/w"))
    for call in calls_of("\n".join(lines)):
        assert disk.do(call) or call.name in ("openat", "close")
    return disk


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def test_the_model_of_a_disk_keeps_what_was_synced_and_no_more() -> None:
    cwd, three, folder = hexed("/"), hexed("/w/a.next"), hexed("/w")
    lines = [
        f'openat(AT_FDCWD<{cwd}>, "{hexed("/w/a.next")}", O_WRONLY|O_CREAT, 0666) = 3<{three}>',
        f'write(3<{three}>, "{hexed("whole")}", 5) = 5',
        f"fsync(3<{three}>) = 0",
        f'rename("{hexed("/w/a.next")}", "{hexed("/w/a")}") = 0',
        f"fsync(4<{folder}>) = 0",
    ]
    assert disk_after(*lines[:2]).after_power_loss("synced") == {}
    assert disk_after(*lines[:2]).after_power_loss("names") == {"a.next": b""}
    assert disk_after(*lines[:2]).after_power_loss("torn") == {"a.next": b"wh"}
    assert disk_after(*lines[:2]).after_power_loss("zeros") == {"a.next": b"\0" * 5}
    assert disk_after(*lines[:4]).after_power_loss("synced") == {}
    assert disk_after(*lines[:4]).after_power_loss("names") == {"a": b"whole"}
    assert disk_after(*lines).after_power_loss("synced") == {"a": b"whole"}


def test_a_call_that_failed_changes_nothing_in_the_model() -> None:
    failed = f'mkdir("{hexed("/w/b")}", 0777) = -1 EEXIST (File exists)'
    assert list(calls_of(failed)) == []
    assert Call("mkdir", None, None, (b"/w/b",), ", 0777", 0) == next(
        calls_of(f'mkdir("{hexed("/w/b")}", 0777) = 0')
    )

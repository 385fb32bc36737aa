"""Locks between processes: real processes, real files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from worlds import wait_until

from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock

HOLD = """
import sys, time
from pathlib import Path
from perfrun.locks import FileLock
with FileLock(Path(sys.argv[1])) as lock:
    getattr(lock, sys.argv[2])()
    print("held", flush=True)
    sys.stdin.read()
"""
HOLD_IN_CHILD = """
import subprocess, sys
from pathlib import Path
from perfrun.locks import FileLock
with FileLock(Path(sys.argv[1])) as lock:
    lock.own()
    child = subprocess.Popen(["sleep", "600"], pass_fds=[lock.descriptor])
    print(child.pid, flush=True)
    sys.stdin.read()
"""


def holder(path: Path, how: str, program: str = HOLD) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def has_to_wait(path: Path, how: str) -> bool:
    """Try to take the lock and say whether that would take waiting."""

    class Waits(Exception):  # noqa: N818
        pass

    def on_wait() -> None:
        raise Waits

    try:
        with FileLock(path) as lock:
            getattr(lock, how)(on_wait)
    except Waits:
        return True
    return False


@pytest.mark.parametrize(
    ("held", "wanted", "waits"),
    [
        ("share", "share", False),
        ("share", "own", True),
        ("own", "share", True),
        ("own", "own", True),
    ],
)
def test_only_shared_locks_go_together(tmp_path: Path, held: str, wanted: str, waits: bool) -> None:
    path = tmp_path / "a b'\n\"ä.lock"
    other = holder(path, held)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert has_to_wait(path, wanted) is waits
    finally:
        end(other)
    assert not has_to_wait(path, wanted)


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    other = holder(path, "own")
    assert other.stdout is not None
    other.stdout.readline()
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert not has_to_wait(path, "own")


def test_a_child_that_was_given_the_lock_keeps_it_when_its_parent_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    other = holder(path, "own", HOLD_IN_CHILD)
    assert other.stdout is not None
    child = int(other.stdout.readline())
    try:
        other.kill()
        other.wait()
        assert has_to_wait(path, "share")
    finally:
        os.kill(child, signal.SIGKILL)
        other.communicate()
    wait_until(lambda: not has_to_wait(path, "share"))


def test_leaving_lets_go_even_if_a_child_inherited_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with FileLock(path) as lock:
        lock.own()
        child = subprocess.Popen(["sleep", "600"], pass_fds=[lock.descriptor])
    try:
        assert not has_to_wait(path, "own")
    finally:
        child.kill()
        child.wait()


def test_an_ordinary_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with FileLock(tmp_path / "x.lock") as lock:
        assert not os.get_inheritable(lock.descriptor)


def test_on_wait_is_called_once_and_then_the_lock_is_held(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    other = holder(path, "own")
    assert other.stdout is not None
    other.stdout.readline()
    waits: list[str] = []

    def on_wait() -> None:
        waits.append("once")
        end(other)

    with FileLock(path) as lock:
        lock.own(on_wait)
        assert waits == ["once"]
        assert has_to_wait(path, "share")
        lock.share()
        assert not has_to_wait(path, "share")


def test_a_lock_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match=r"file is in the way: it is not a folder") as told:
        FileLock(tmp_path / "file" / "x.lock").__enter__()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("how", ["own", "share"])
def test_trying_does_not_wait(how: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path, how)
    assert process.stdout is not None
    process.stdout.readline()
    with FileLock(path) as lock:
        assert not lock.try_own()
        end(process)
        assert lock.try_own()
        assert has_to_wait(path, "share")

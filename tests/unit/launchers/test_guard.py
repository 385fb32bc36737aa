"""The guard: starts programs for this process, says how they ended, and is not missed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest

from perfrun.launchers import guard as guard_module
from perfrun.launchers.guard import Guard, OwnChildren, parent_of_workers
from perfrun.worker import procfs

SLEEPS = ("sleep", "600")


@pytest.fixture(autouse=True)
def _as_under_the_runner() -> Iterator[None]:
    if not procfs.adopt_orphans():
        pytest.skip("this system has no subreapers")
    yield
    procfs._prctl(36, 0)


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    made.close()


def start(guard: Guard, *argv: str) -> int:
    with tempfile.TemporaryFile() as out:
        return guard.start(argv, out.fileno(), out.fileno(), os.environ)


def test_it_is_the_parent_and_says_how_a_program_ended(guard: Guard) -> None:
    code = "import os, sys; x = b'x' * (64 << 20); sys.exit(os.getppid() != int(sys.argv[1]))"
    pid = start(guard, sys.executable, "-c", code, str(guard.pid))
    ended = guard.reap(pid)
    assert ended is not None
    status, usage = ended
    assert os.waitstatus_to_exitcode(status) == 0
    assert usage.ru_maxrss > 64 << 10
    assert guard.reap(pid) == ended  # an interrupt may have cost the first answer
    assert not guard.has_children()


def test_both_streams_may_be_one_file_and_the_environment_is_as_given(guard: Guard) -> None:
    with tempfile.TemporaryFile() as out:
        script = 'echo out; echo err >&2; echo "$ODD"'
        odd = os.fsdecode(b"\xff 'odd'\nname")
        pid = guard.start(("/bin/sh", "-c", script), out.fileno(), out.fileno(), {"ODD": odd})
        guard.reap(pid)
        out.seek(0)
        assert out.read() == b"out\nerr\n" + os.fsencode(odd) + b"\n"


def test_a_program_that_is_not_there_is_named(guard: Guard) -> None:
    with pytest.raises(FileNotFoundError, match="/no/such/program"):
        start(guard, "/no/such/program")
    with pytest.raises(ChildProcessError):
        guard.reap(os.getpid())


def test_orphans_are_ended_unless_a_worker_runs(guard: Guard) -> None:
    fork = "import os, time; os.fork() or (os.setsid(), time.sleep(600)); "
    worker = start(guard, *SLEEPS)
    leaver = start(guard, sys.executable, "-c", fork)
    guard.reap(leaver)
    guard.end_orphans()
    assert len(procfs.children(guard.pid)) == 2
    os.kill(worker, signal.SIGKILL)
    guard.reap(worker)
    guard.end_orphans()
    assert not guard.has_children()


def test_an_interrupt_leaves_no_answer_to_the_next_question(guard: Guard) -> None:
    worker = start(guard, *SLEEPS)
    ours = threading.main_thread().ident
    assert ours is not None
    armed, rounds = threading.Semaphore(0), 100

    def interrupt() -> None:
        for number in range(rounds):
            armed.acquire()
            time.sleep(number * 5e-6)  # at another place of a question and its answer
            signal.pthread_kill(ours, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    for _ in range(rounds):
        with contextlib.suppress(KeyboardInterrupt):
            armed.release()
            while True:
                assert guard.has_ended(worker) is False
                assert guard.has_children() is True
    thread.join()
    signal.signal(signal.SIGINT, before)
    os.kill(worker, signal.SIGKILL)
    ended = guard.reap(worker)
    assert ended is not None
    assert os.waitstatus_to_exitcode(ended[0]) == -signal.SIGKILL


def test_what_was_below_a_killed_guard_is_this_process_its_own(guard: Guard) -> None:
    worker = start(guard, *SLEEPS)
    os.kill(guard.pid, signal.SIGKILL)
    os.waitid(os.P_PID, guard.pid, os.WEXITED | os.WNOWAIT)
    assert not guard.is_alive
    assert guard.pid == os.getpid()
    assert guard.has_children()
    os.kill(worker, signal.SIGKILL)
    ended = guard.reap(worker)
    assert ended is not None
    assert os.waitstatus_to_exitcode(ended[0]) == -signal.SIGKILL
    before = procfs.children(os.getpid())  # of whatever ran here before this test
    second = start(guard, "true")
    assert set(procfs.children(os.getpid())) - set(before) == {second}
    guard.reap(second)


def test_one_guard_serves_a_process_and_another_follows_one_that_was_killed() -> None:
    first = parent_of_workers()
    assert parent_of_workers() is first
    assert not isinstance(first, OwnChildren)
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    second = parent_of_workers()
    assert second is not first
    assert second.pid != os.getpid()


def test_a_guard_whose_pipe_fails_is_not_waited_for_for_ever(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for its harness to hang up, which waited for its end."""

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(guard_module, "_receive", fails)
    assert guard.has_ended(os.getpid()) is False
    assert not guard.is_alive
    assert guard.pid == os.getpid()

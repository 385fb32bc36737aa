"""Start a worker as a process of this host, wait for it, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.worker.files import OUTCOME

ENTRY = Path(__file__).resolve().parent.parent / "worker" / "entry.py"
TERM_GRACE_S = 2.0  # between SIGTERM and the dump
DUMP_GRACE_S = 0.5  # for the dump to be written
EXIT_GRACE_S = 30.0  # for a worker that has written its outcome to end
CHILD_GRACE_S = 0.5  # for children that end by themselves when the worker has


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How the worker's process ended."""

    exit_code: int | None  # None when a signal ended it
    signal_number: int | None
    stopped_for: str | None  # "deadline", "interrupt", "exit" when perfrun ended it
    elapsed_s: float
    user_cpu_s: float
    system_cpu_s: float
    max_rss_bytes: int  # ru_maxrss: of the process, its start, or its largest waited-for child
    strays: tuple[str, ...]  # processes left behind, killed


class LocalProcess:
    """A running worker. It leads a session of its own, so that all of it can be signalled."""

    def __init__(self, python: str, order: Mapping[str, Any], folder: Path, private: Path) -> None:
        """Start the worker. Raises OSError when the interpreter cannot be started."""
        self._private = private
        order_path = private / "order.json"
        order_path.write_text(json.dumps({**order, "parent_pid": os.getpid()}), encoding="utf-8")
        self._start = time.perf_counter()
        with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
            # Files, not pipes: a benchmark that prints never waits for us, and what it printed
            # is there whoever dies.
            self._process = subprocess.Popen(
                [python, str(ENTRY), str(order_path)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._stopped_for: str | None = None

    def wait(self, timeout_s: float | None) -> Exit:
        """Wait for the end, enforce the deadline, clean up.

        A KeyboardInterrupt (or `Interrupted`) that arrives meanwhile goes through; call `stop`
        and then `wait` again.
        """
        deadline = None if timeout_s is None else self._start + timeout_s
        with _pidfd(self.pid) as ended:
            finished_at: float | None = None
            while not ended(_pause(deadline)):
                now = time.perf_counter()
                if deadline is not None and now >= deadline:
                    self.stop("deadline")
                    break
                if finished_at is None and (self._private / OUTCOME).exists():
                    finished_at = now
                if finished_at is not None and now - finished_at > EXIT_GRACE_S:
                    self.stop("exit")
                    break
        return self._reap()

    def stop(self, why: str) -> None:
        """End the worker: SIGTERM, a dump of its stacks, SIGKILL to all of its group."""
        # A worker that has said its last word is only slow to end: what it said stands. One that
        # says it later says what our SIGTERM made of the method.
        self._stopped_for = "exit" if (self._private / OUTCOME).exists() else why
        with _pidfd(self.pid) as ended:
            _signal_group(self.pid, signal.SIGTERM)
            if not ended(TERM_GRACE_S):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGQUIT)  # faulthandler writes stack.txt
                ended(DUMP_GRACE_S)
            _signal_group(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the worker and its group at once."""
        self._stopped_for = self._stopped_for or "interrupt"
        _signal_group(self.pid, signal.SIGKILL)

    def _reap(self) -> Exit:
        _, status, usage = os.wait4(self.pid, 0)
        elapsed = time.perf_counter() - self._start
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # Popen must not wait for it again
        return Exit(
            exit_code=code if code >= 0 else None,
            signal_number=-code if code < 0 else None,
            stopped_for=self._stopped_for,
            elapsed_s=elapsed,
            user_cpu_s=usage.ru_utime,
            system_cpu_s=usage.ru_stime,
            max_rss_bytes=usage.ru_maxrss * 1024,
            strays=_kill_strays(self.pid),
        )


def _pause(deadline: float | None) -> float:
    """How long to wait before looking around again, in seconds."""
    return 1.0 if deadline is None else max(0.0, min(1.0, deadline - time.perf_counter()))


@contextlib.contextmanager
def _pidfd(pid: int) -> Any:
    """Yield a function that waits up to so many seconds for `pid` to end and says whether it did.

    It does not reap: the process stays a zombie for wait4. pidfd_open(2) wakes at once; without it
    (old kernels, sandboxes) we look a hundred times a second.
    """
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield lambda seconds: _poll(pid, seconds)
        return
    try:
        yield lambda seconds: bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _poll(pid: int, seconds: float) -> bool:
    end = time.perf_counter() + seconds
    while True:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is not None or time.perf_counter() >= end:
            return info is not None
        time.sleep(0.01)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_strays(group: int) -> tuple[str, ...]:
    """Kill what the worker left behind, and return what it was.

    The harness is a subreaper (see `perfrun.runner`), so orphans of the worker, those in sessions
    of their own included, are its children now. No other children are alive at this time.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ()  # no child of any kind; psutil would read every process of the machine for that
    import psutil

    # multiprocessing's resource tracker frees shared memory when the worker is gone, and its fork
    # server ends: neither was left behind.
    psutil.wait_procs(psutil.Process().children(recursive=True), timeout=CHILD_GRACE_S)
    strays = psutil.Process().children(recursive=True)
    commands = [(_command(process), process.pid) for process in strays]
    names = tuple(f"{command} (pid {pid})" for command, pid in commands if command)
    _signal_group(group, signal.SIGKILL)
    for process in strays:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(strays, timeout=5)
    return names


def _command(process: Any) -> str | None:
    """The command line; None of a process that has ended and only waits to be reaped."""
    import psutil

    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return " ".join(process.cmdline())[:80] or process.name()
    except psutil.NoSuchProcess:  # ZombieProcess is one
        return None
    except psutil.Error:
        return "?"

"""Start a worker as a process of this host, wait for it, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import replace
from perfrun.launchers import launcher
from perfrun.launchers.launcher import (
    ENTRY,
    ORDER,
    Exit,
    ask_to_end,
    has_said_last_word,
    wait_until_due,
)
from perfrun.launchers.wrapper import Lifeline, Wrapped
from perfrun.worker.procfs import (
    CHILD_GRACE_S,
    HELPER_GRACE_S,
    counts_of,
    is_pythons_own,
    is_sent_sigkill,
    last_io_counts,
    memory_marks,
    state_and_flags,
    usage_counts,
)

WRAPPER_GRACE_S = 2.0  # for a wrapper to end after its worker
TRACED_GRACE_S = 1.0  # for a tracer to let go of what has ended


class LocalLauncher:
    """Starts workers as processes of this host, with one interpreter."""

    def __init__(self, python: str, env: Mapping[str, str] | None = None) -> None:
        """`env`: variables that its workers get besides those of this process."""
        self.python = python
        self._env = {**os.environ, **env} if env else None
        self._is_wrapped: bool | None = None  # until a throw-away worker has said it
        self.name = f"--python={python}"

    def start(self, order: Mapping[str, Any], folder: Path, private: Path) -> LocalProcess:
        """Start the worker of a trial. Raises OSError when the interpreter cannot be started."""
        return LocalProcess(
            self.python, order, folder, private, self._env, is_wrapped=self._is_wrapped
        )

    def serve(self, order: Mapping[str, Any], folder: Path, log: Path) -> LocalService:
        """Start a throw-away worker, which answers into `folder`. Raises OSError likewise."""
        return LocalService(self.python, order, folder, log, self._env, self._learn)

    def _learn(self, is_wrapped: bool) -> None:
        self._is_wrapped = is_wrapped

    def container_facts(self) -> None:
        """There is no container."""


class LocalService:
    """A throw-away worker. It leads a session of its own, so that all of it can be killed."""

    def __init__(
        self,
        python: str,
        order: Mapping[str, Any],
        folder: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        learn: Callable[[bool], object] = bool,
    ) -> None:
        """`learn` is told whether its interpreter is a wrapper that does not become the worker."""
        self._lifeline = Lifeline(folder)
        self._learn = learn
        order_path = folder / ORDER
        whole = {**order, "parent_pid": os.getpid(), **self._lifeline.order}
        order_path.write_text(json.dumps(whole), encoding="utf-8")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [python, str(ENTRY), str(order_path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=env,
            )

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; the exit status, minus the signal, or None when it has not ended."""
        if self._process.returncode is None:
            with _pidfd(self._process.pid) as ended:  # Popen would look every 50 ms
                if not ended(timeout_s):
                    return None
        code = self._process.wait()
        if self._lifeline.was_used or code == 0:
            self._learn(self._lifeline.was_used)
        return code

    def end(self) -> None:
        """Imported code may have started processes; none of them is to be there in a trial."""
        _signal_group(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(launcher.KILL_GRACE_S)
        self._lifeline.close()


class LocalProcess:
    """A running worker. It leads a session of its own, so that all of it can be signalled.

    Or a wrapper does, which is what we started, wait for and reap; `pid` is the worker's even so.
    """

    own_cgroup = False  # it is in perfrun's

    def __init__(
        self,
        python: str,
        order: Mapping[str, Any],
        folder: Path,
        private: Path,
        env: Mapping[str, str] | None = None,
        *,
        is_wrapped: bool | None = None,
    ) -> None:
        """Start the worker. Raises OSError when the interpreter cannot be started.

        `is_wrapped`: whether `python` is a wrapper that does not become the worker; None: perhaps.
        """
        self._private = private
        self._lifeline = Lifeline(private) if is_wrapped is not False else None
        order_path = private / ORDER
        whole = {**order, "parent_pid": os.getpid()}
        whole.update(self._lifeline.order if self._lifeline else {})
        order_path.write_text(json.dumps(whole), encoding="utf-8")
        self._wrapped: Wrapped | None = None
        self._start = time.perf_counter()
        try:
            self._process = self._started([python, str(ENTRY), str(order_path)], folder, env)
        except OSError:
            self._let_go()
            raise
        self._leader = self.pid = self._process.pid
        self._last_io_counts = last_io_counts(str(self._leader))
        self._stopped_for: str | None = None
        self._end: Exit | None = None  # once it is reaped, or given up: its pid is not its own then
        self._strays: dict[int, str] = {}
        if is_wrapped:
            self._wrapped = self._worker_below()
        if self._wrapped:
            self.pid = self._wrapped.pid

    def _started(
        self, command: list[str], folder: Path, env: Mapping[str, str] | None
    ) -> subprocess.Popen[bytes]:
        with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
            # Files, not pipes: a benchmark that prints never waits for us, and what it printed
            # is there whoever dies.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=env,
            )

    def _worker_below(self) -> Wrapped | None:
        assert self._lifeline is not None
        with _pidfd(self._leader) as ended:
            pid = self._lifeline.worker_below(self._leader, ended)
        return Wrapped(pid, self._leader) if pid is not None else None

    def wait(self, timeout_s: float | None) -> Exit:
        """Wait for the end, enforce the deadline, clean up.

        A KeyboardInterrupt (or `Interrupted`) that arrives meanwhile goes through; call `stop`
        and then `wait` again.
        """
        if self._end is None and self._stopped_for is None:
            deadline = None if timeout_s is None else self._start + timeout_s
            with _pidfd(self._leader) as ended:
                due = wait_until_due(ended, self._private, deadline)
            if due:
                self.stop(due)
        return self._reap()

    def stop(self, why: str) -> None:
        """End the worker: SIGTERM, a dump of its stacks, SIGKILL to all of its group."""
        if self._end is not None:
            return  # it was what it left behind that was waited for
        # A worker that has said its last word is only slow to end: what it said stands.
        self._stopped_for = "exit" if has_said_last_word(self._private) else why
        with _pidfd(self.pid) as ended:
            has_ended = ask_to_end(
                ended,
                self._private,
                terminate=self._terminate,
                dump=lambda: self._signal_worker(signal.SIGQUIT),  # faulthandler writes stack.txt
            )
            if self._wrapped:
                if not has_ended:
                    self._wrapped.signal(signal.SIGKILL)
                with _pidfd(self._leader) as wrapper_ended:  # so that it can say how the worker did
                    wrapper_ended(WRAPPER_GRACE_S)
        _signal_group(self._leader, signal.SIGKILL)

    def _terminate(self) -> None:
        if self._wrapped:
            self._wrapped.signal(signal.SIGTERM)
        else:
            _signal_group(self._leader, signal.SIGTERM)

    def _signal_worker(self, number: int) -> None:
        if self._wrapped:
            self._wrapped.signal(number)
        else:
            _signal(self._leader, number)

    def kill(self) -> None:
        """End the worker and its group at once."""
        if self._end is not None:
            return
        self._stopped_for = self._stopped_for or "interrupt"
        if self._wrapped:
            self._wrapped.signal(signal.SIGKILL)
        _signal_group(self._leader, signal.SIGKILL)

    def close(self) -> Mapping[str, Any]:
        """There is nothing more to remove."""
        return {}

    def _reap(self) -> Exit:
        """Take in how it ended, and end what it left behind. Returns in bounded time."""
        if self._end is None and self._can_be_reaped(launcher.KILL_GRACE_S):
            self._end = self._reaped()
        has_ended = self._end is not None and self._end.unended is None
        unended = frozenset() if has_ended else frozenset((self.pid, self._leader))
        _kill_strays(self._leader, self._strays, unended)
        if self._end is None:  # a process that traces it keeps it, and may have been a stray
            can_now = self._can_be_reaped(TRACED_GRACE_S)
            self._end = self._reaped() if can_now else self._given_up()
        self._let_go()
        return replace(self._end, strays=tuple(map(_said_of_stray, self._strays.items())))

    def _can_be_reaped(self, seconds: float) -> bool:
        """Wait so long for the end of what was killed; False when it cannot be reaped."""
        for pid in dict.fromkeys((self.pid, self._leader)):
            with _pidfd(pid) as ended:
                if not ended(seconds):
                    return False
        return _poll(self._leader, TRACED_GRACE_S)  # not ours yet while another process traces it

    def _let_go(self) -> None:
        if self._wrapped:
            self._wrapped.close()
        if self._lifeline:
            self._lifeline.close()

    def _reaped(self) -> Exit:
        moved = self._last_io_counts()  # a zombie still has them, and nothing after it
        _, status, usage = os.wait4(self._leader, 0)
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # Popen must not wait for it again
        end = Exit(
            exit_code=code if code >= 0 else None,
            signal_number=-code if code < 0 else None,
            stopped_for=self._stopped_for,
            elapsed_s=time.perf_counter() - self._start,
            user_cpu_s=usage.ru_utime,
            system_cpu_s=usage.ru_stime,
            max_rss_bytes=usage.ru_maxrss * 1024,
            strays=(),
            resources={**usage_counts(usage), **moved},
        )
        return self._wrapped.only(end) if self._wrapped else end

    def _given_up(self) -> Exit:
        """Say that it is still there, with what the kernel has counted until now."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._leader, os.WNOHANG)  # a wrapper has ended, and its worker has not
        self._process.returncode = -signal.SIGKILL  # Popen must not wait for it
        counts = counts_of(self.pid)
        return Exit(
            exit_code=None,
            signal_number=None,
            stopped_for=self._stopped_for,
            elapsed_s=time.perf_counter() - self._start,
            user_cpu_s=counts.get("user_s", 0.0),
            system_cpu_s=counts.get("system_s", 0.0),
            max_rss_bytes=memory_marks(str(self.pid))["peak_rss_bytes"] or 0,
            strays=(),
            resources={**counts, **self._last_io_counts()},
            unended=f"process {self.pid} could not be ended: {_still_there(self.pid)} "
            f"{launcher.KILL_GRACE_S:g} s after SIGKILL",
        )


def _still_there(pid: int) -> str:
    state = state_and_flags(pid)[0]
    waits = " (it waits for a device or a file server)" if state == "D" else ""
    return f"it is in state {state or '?'}{waits}"


def _said_of_stray(stray: tuple[int, str]) -> str:
    pid, command = stray
    left = f", which could not be ended: {_still_there(pid)}" if is_sent_sigkill(pid) else ""
    return f"{command} (pid {pid}{left})"


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
        has_ended = _has_ended(pid)
        if has_ended or time.perf_counter() >= end:
            return has_ended
        time.sleep(0.01)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # a wrapper's child
        return state_and_flags(pid)[0] in ("", "Z", "X")


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_strays(group: int, strays: dict[int, str], besides: frozenset[int]) -> None:
    """Kill what the worker left behind; enter what it was, by pid.

    The harness is a subreaper (see `perfrun.runner`), so orphans of the worker, those in sessions
    of their own included, are its children now. No other children are alive at this time, but the
    worker if it cannot be reaped (`besides`), and what could not be ended in this or an earlier
    trial: that is not waited for again.
    """
    if not _has_children():
        return  # psutil would read every process of the machine for that
    import psutil

    def descendants() -> list[Any]:
        return [one for one in own.children(recursive=True) if one.pid not in besides]

    own = psutil.Process()
    psutil.wait_procs(descendants(), timeout=CHILD_GRACE_S)
    # multiprocessing's resource tracker frees shared memory, and its fork server ends, when nobody
    # holds their pipe any more: neither was left behind. What was forked from the worker holds it.
    left = [one for one in _killable(descendants()) if _command(one) is not None]
    helpers = [one for one in left if is_pythons_own(one.pid)]
    _kill([one for one in left if one not in helpers], strays)
    psutil.wait_procs(helpers, timeout=HELPER_GRACE_S)
    rest = _killable(descendants())
    if rest:
        _signal_group(group, signal.SIGKILL)
        _kill(rest, strays)


def _killable(processes: list[Any]) -> list[Any]:
    """Those that SIGKILL has not been sent to in vain."""
    return [one for one in processes if not is_sent_sigkill(one.pid)]


def _has_children() -> bool:
    """Whether this process has any, zombies included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _kill(processes: list[Any], strays: dict[int, str]) -> None:
    import psutil

    for process in processes:
        command = _command(process)
        if command is not None:
            strays[process.pid] = command
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


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

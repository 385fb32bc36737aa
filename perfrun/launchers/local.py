"""Start a worker as a process of this host, wait for it, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import replace
from perfrun.launchers import launcher
from perfrun.launchers.guard import OwnChildren, Parent, parent_of_workers
from perfrun.launchers.interpreter_wrapper import Lifeline, Wrapped
from perfrun.launchers.launcher import (
    ENTRY,
    ORDER,
    Exit,
    ask_to_end,
    has_outcome,
    stream_file,
    wait_until_due,
    write_order_file,
)
from perfrun.trial_user import TrialUser, eyes_of_trials
from perfrun.untrusted import Folder, take_from
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

    def __init__(
        self, python: str, env: Mapping[str, str] | None = None, user: TrialUser | None = None
    ) -> None:
        """`env`: variables that its workers get besides those of this process.

        `user`: who they are, when that is not the user of this process.
        """
        self.python = python
        self._user = user
        own = {} if user is None else user.variables
        self._env = {**os.environ, **own, **(env or {})} if env or own else None
        self._is_wrapped: bool | None = None  # None until a throw-away worker has run
        self.name = f"--python={python}"

    def start(self, order: Mapping[str, Any], folder: Path, private: Path) -> LocalProcess:
        """Start the worker of a trial. Raises OSError when the interpreter cannot be started."""
        return LocalProcess(
            *(self.python, order, folder, private, self._env, parent_of_workers()),
            is_wrapped=self._is_wrapped,
            user=self._user,
        )

    def serve(self, order: Mapping[str, Any], folder: Path, log: Path) -> LocalService:
        """Start a throw-away worker, which answers into `folder`. Raises OSError, too."""
        return LocalService(
            *(self.python, order, folder, log, self._env, self._learn, parent_of_workers()),
            user=self._user,
        )

    def set_variables(self, variables: Mapping[str, str]) -> None:
        """Add environment variables to the workers that are started from now on."""
        self._env = {**(self._env or os.environ), **variables}

    def _learn(self, is_wrapped: bool) -> None:
        self._is_wrapped = is_wrapped

    def container_facts(self) -> None:
        """Return None: there is no container."""


class LocalService:
    """A throw-away worker. It leads a session, so that all of its processes can be killed."""

    def __init__(
        self,
        python: str,
        order: Mapping[str, Any],
        folder: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        learn: Callable[[bool], object] = bool,
        parent: Parent | None = None,
        *,
        user: TrialUser | None = None,
    ) -> None:
        """Start the worker; `learn` gets True when the interpreter turns out to be a wrapper."""
        self._folder, self._user = folder, user
        self._lifeline = Lifeline(folder, user)
        self._learn = learn
        self._parent = parent or OwnChildren()
        self._code: int | None = None  # once it has been reaped
        order_path = folder / ORDER
        whole = {**order, "parent_pid": self._parent.pid, **self._lifeline.order}
        write_order_file(order_path, whole)
        _lend_folders(user, folder)
        with stream_file(log, user) as output:
            self.pid = _start(self._parent, python, order_path, output, output, env, user)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its status, minus its signal, or None if it has not ended."""
        if self._code is None:
            with _pidfd(self.pid) as ended:
                if not ended(timeout_s):
                    return None
            self._reap()
        if self._lifeline.was_used or self._code == 0:
            self._learn(self._lifeline.was_used)
        return self._code

    def end(self) -> None:
        """End the worker and the processes that imported code may have started."""
        if self._code is None:
            _signal_group(self.pid, signal.SIGKILL)
            with _pidfd(self.pid) as ended:
                if ended(launcher.KILL_GRACE_S):
                    self._reap()
        self._parent.end_orphans()
        self._lifeline.close()
        if self._user is not None:
            take_from(self._folder, self._user)

    def _reap(self) -> None:
        ended = self._parent.reap(self.pid)
        if ended is not None:
            self._code = os.waitstatus_to_exitcode(ended[0])


class LocalProcess:
    """A running worker. It leads a session, so that all of its processes can be signalled.

    With a wrapper, the wrapper leads the session and is reaped; `pid` is the worker's all the same.
    """

    own_cgroup = False  # it shares perfrun's

    def __init__(
        self,
        python: str,
        order: Mapping[str, Any],
        folder: Path,
        private: Path,
        env: Mapping[str, str] | None = None,
        parent: Parent | None = None,
        *,
        is_wrapped: bool | None = None,
        user: TrialUser | None = None,
    ) -> None:
        """Start the worker. Raises OSError when the interpreter cannot be started.

        `is_wrapped`: True when `python` is a wrapper that does not become the worker; None when
        that is not known.
        """
        self._private = private
        self._parent = parent or OwnChildren()
        self._lifeline = Lifeline(private, user) if is_wrapped is not False else None
        order_path = private / ORDER
        whole = {**order, "parent_pid": self._parent.pid}
        whole.update(self._lifeline.order if self._lifeline else {})
        write_order_file(order_path, whole)
        self._wrapped: Wrapped | None = None
        self._start = time.perf_counter()
        try:
            # Files, not pipes: a benchmark that prints never waits for us, and its output is there
            # whichever process dies.
            with (
                stream_file(folder / "stdout.log", user) as out,
                stream_file(folder / "stderr.log", user) as err,
            ):
                _lend_folders(user, folder, private)
                self.pid = _start(self._parent, python, order_path, out, err, env, user)
        except OSError:
            self._let_go()
            raise
        self._leader = self.pid
        with eyes_of_trials():
            self._last_io_counts = last_io_counts(str(self._leader))
        self._stopped_for: str | None = None
        self._end: Exit | None = None  # once it is reaped or left: its pid may be reused then
        self._strays: dict[int, str] = {}
        if is_wrapped:
            self._wrapped = self._worker_below()
        if self._wrapped:
            self.pid = self._wrapped.pid

    def _worker_below(self) -> Wrapped | None:
        assert self._lifeline is not None
        with _pidfd(self._leader) as ended:
            pid = self._lifeline.worker_below(self._leader, ended)
        return Wrapped(pid, self._leader) if pid is not None else None

    def wait(self, timeout_s: float | None) -> Exit:
        """Wait for the end, enforce the deadline, leave nothing running; see `Running.wait`."""
        if self._end is None and self._stopped_for is None:
            deadline = None if timeout_s is None else self._start + timeout_s
            with _pidfd(self._leader) as ended:
                due = wait_until_due(ended, self._private, deadline)
            if due:
                self.stop(due)
        return self._reap()

    def stop(self, why: str) -> None:
        """End the worker by SIGTERM, a dump of its stacks, and SIGKILL to its group."""
        if self._end is not None:
            return  # only processes that it left behind still ran
        # A worker that has written its outcome is only slow to end: the outcome counts.
        self._stopped_for = "exit" if has_outcome(self._private) else why
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
                with _pidfd(self._leader) as wrapper_ended:  # its status tells how the worker ended
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
        """Return no facts: there is nothing to remove."""
        return {}

    def _reap(self) -> Exit:
        """Return how it ended, and end what it left behind. Takes bounded time."""
        if self._end is None and self._can_be_reaped(launcher.KILL_GRACE_S):
            self._end = self._reaped()
        has_ended = self._end is not None and self._end.unended is None
        unended = frozenset() if has_ended else frozenset((self.pid, self._leader))
        _kill_strays(self._leader, self._strays, unended, self._parent)
        if self._end is None:  # a tracer, which may have been a stray, kept it from being reaped
            can_now = self._can_be_reaped(TRACED_GRACE_S)
            self._end = self._reaped() if can_now else self._left_running()
        self._let_go()
        return replace(self._end, strays=tuple(map(_stray_text, self._strays.items())))

    def _can_be_reaped(self, seconds: float) -> bool:
        """Wait for the end of the killed processes; False when they cannot be reaped."""
        for pid in dict.fromkeys((self.pid, self._leader)):
            with _pidfd(pid) as ended:
                if not ended(seconds):
                    return False
        return _poll(self._leader, TRACED_GRACE_S, self._parent)  # a tracer would reap it first

    def _let_go(self) -> None:
        if self._wrapped:
            self._wrapped.close()
        if self._lifeline:
            self._lifeline.close()

    def _reaped(self) -> Exit:
        moved = self._moved()  # a zombie still has them; once it is reaped they are gone
        reaped = self._parent.reap(self._leader)
        assert reaped is not None
        status, usage = reaped
        code = os.waitstatus_to_exitcode(status)
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
        return self._wrapped.without_wrapper(end) if self._wrapped else end

    def _moved(self) -> Mapping[str, int]:
        with eyes_of_trials():
            return self._last_io_counts()

    def _left_running(self) -> Exit:
        """Return the exit of a worker that still runs, with the kernel's counts until now."""
        with contextlib.suppress(ChildProcessError):
            self._parent.reap(self._leader, wait=False)  # of a wrapper, whose worker goes on
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
            resources={**counts, **self._moved()},
            unended=f"process {self.pid} could not be ended: {_state_text(self.pid)} "
            f"{launcher.KILL_GRACE_S:g} s after SIGKILL",
        )


def _state_text(pid: int) -> str:
    state = state_and_flags(pid)[0]
    waits = " (it waits for a device or a file server)" if state == "D" else ""
    return f"it is in state {state or '?'}{waits}"


def _stray_text(stray: tuple[int, str]) -> str:
    pid, command = stray
    left = f", which could not be ended: {_state_text(pid)}" if is_sent_sigkill(pid) else ""
    return f"{command} (pid {pid}{left})"


def _start(
    parent: Parent,
    python: str,
    order: Path,
    out: int,
    err: int,
    env: Mapping[str, str] | None,
    user: TrialUser | None,
) -> int:
    argv = (python, str(ENTRY), str(order))
    return parent.start(argv, out, err, os.environ if env is None else env, user)


def _lend_folders(user: TrialUser | None, *paths: Path) -> None:
    """Let the user of the trial write in folders of perfrun's. Raises OSError."""
    if user is not None:
        for path in paths:
            with Folder(path) as folder:
                user.lend(folder.descriptor)


@contextlib.contextmanager
def _pidfd(pid: int) -> Any:
    """Yield a function that waits up to so many seconds for `pid` to end; True when it has ended.

    It does not reap: the process stays a zombie for wait4. pidfd_open(2) wakes at once; without it
    (old kernels, sandboxes) the process is polled a hundred times a second.
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


def _poll(pid: int, seconds: float, parent: Parent | None = None) -> bool:
    has_ended = (parent or OwnChildren()).has_ended
    end = time.perf_counter() + seconds
    while True:
        if has_ended(pid):
            return True
        if time.perf_counter() >= end:
            return False
        time.sleep(0.01)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_strays(
    group: int, strays: dict[int, str], besides: frozenset[int], parent: Parent
) -> None:
    """Kill the processes that the worker left behind; enter their commands by pid.

    The parent of the workers is a subreaper, so orphans of the worker, those in sessions of their
    own included, are its children now. No other children are alive at this time
    but the worker if it cannot be reaped (`besides`), and what could not be ended in this or an
    earlier trial: no second wait is made for that.
    """
    if not parent.has_children():
        return  # psutil would read every process of the machine to find none
    import psutil

    def descendants() -> list[Any]:
        return [one for one in own.children(recursive=True) if one.pid not in besides]

    own = psutil.Process(parent.pid)
    psutil.wait_procs(descendants(), timeout=CHILD_GRACE_S)
    # multiprocessing's resource tracker frees shared memory, and its fork server ends, when nobody
    # holds their pipe any more: neither counts as left behind. Forks of the worker hold the pipe.
    left = [one for one in _killable(descendants()) if _command(one) is not None]
    helpers = [one for one in left if is_pythons_own(one.pid)]
    _kill([one for one in left if one not in helpers], strays)
    psutil.wait_procs(helpers, timeout=HELPER_GRACE_S)
    rest = _killable(descendants())
    if rest:
        _signal_group(group, signal.SIGKILL)
        _kill(rest, strays)


def _killable(processes: list[Any]) -> list[Any]:
    """Return the processes to which SIGKILL has not been sent in vain."""
    return [one for one in processes if not is_sent_sigkill(one.pid)]


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
    """Return the command line of a process; None when it has ended and waits to be reaped."""
    import psutil

    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return " ".join(process.cmdline())[:80] or process.name()
    except psutil.NoSuchProcess:  # ZombieProcess is one
        return None
    except psutil.Error:
        return "?"

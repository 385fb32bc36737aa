"""The parent of all local workers: a small process that outlives a killed harness.

The kernel gives the orphans of a killed process to another, and nobody knows any more whose they
were: a benchmark's children would run on, in sessions of their own or deaf to SIGTERM. So the
harness forks a guard, once, before it has threads. The guard starts the workers, adopts the orphans
among their descendants, and ends when the pipe from the harness does, after all that is below it.
A guard that is killed leaves its descendants to the harness, which adopts orphans, too.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from perfrun.dataclass import asdict
from perfrun.trial_user import TrialUser, identity
from perfrun.worker.procfs import (
    adopt_orphans,
    children,
    descendants,
    hide_from_equals,
    state_and_flags,
)

END_LIMIT_S = 60.0  # for killed processes to end; what waits in the kernel longer is left behind
LEAVE_LIMIT_S = 2.0  # for the guard to end after the harness has done its work
_SIZE = struct.Struct("=I")
_ENDED = ("", "Z", "X")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
Ended = tuple[int, Any]  # status and rusage, as of wait4


class Parent(Protocol):
    """The process whose children the workers are."""

    @property
    def pid(self) -> int: ...

    def start(
        self,
        argv: Sequence[str],
        out: int,
        err: int,
        env: Mapping[str, str],
        user: TrialUser | None = None,
    ) -> int:
        """Start a program in a session of its own; return its pid. Raises OSError."""

    def has_ended(self, pid: int) -> bool:
        """Return True when a child can be reaped."""

    def reap(self, pid: int, *, wait: bool = True) -> Ended | None:
        """Wait for a child and return how it ended; without `wait`, None for one that runs."""

    def has_children(self) -> bool:
        """Return True when there is any child, zombies included."""

    def end_orphans(self) -> None:
        """Kill all descendants, if no worker is among them."""


class OwnChildren:
    """This process as the parent, where there can be no guard."""

    @property
    def pid(self) -> int:
        """The pid of this process."""
        return os.getpid()

    def start(
        self,
        argv: Sequence[str],
        out: int,
        err: int,
        env: Mapping[str, str],
        user: TrialUser | None = None,
    ) -> int:
        """Start a program in a session of its own; return its pid. Raises OSError."""
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(env),
            start_new_session=True,
            **identity(user),
        )
        process.returncode = 0  # Popen must not wait for it
        return process.pid

    def has_ended(self, pid: int) -> bool:
        """Return True when a child can be reaped; any other, when it has ended."""
        try:
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return state_and_flags(pid)[0] in _ENDED

    def reap(self, pid: int, *, wait: bool = True) -> Ended | None:
        """Wait for a child and return how it ended; without `wait`, None for one that runs."""
        found, status, usage = os.wait4(pid, 0 if wait else os.WNOHANG)
        return (status, usage) if found else None

    def has_children(self) -> bool:
        """Return True when there is any child, zombies included."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def end_orphans(self) -> None:
        """Do nothing: among the children are others than workers."""


class _GoneError(Exception):
    """The guard does not answer: somebody has killed it."""


class Guard:
    """A guard of this process.

    Once it has been killed, its workers are dead and all that was below it is this process's.
    """

    def __init__(self) -> None:
        """Fork it. Raises OSError."""
        read, self._commands = os.pipe()
        self._answers, write = os.pipe()
        gc.freeze()  # a collection would touch, and the kernel copy, each page that both share
        self._guard = _fork()
        if self._guard == 0:
            gc.disable()
            _be_guard(read, write)
        os.close(read)
        os.close(write)
        self._pipes: tuple[int, ...] = (self._commands, self._answers)
        self._is_gone = False
        self._ended: dict[int, Any] = {}  # workers that were reaped, by pid
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """The pid of the parent of the workers."""
        return os.getpid() if self._is_gone else self._guard

    @property
    def is_alive(self) -> bool:
        """True until somebody has killed it."""
        if not self._is_gone:
            try:
                self._is_gone = os.waitpid(self._guard, os.WNOHANG)[0] != 0
            except ChildProcessError:
                self._is_gone = True
        return not self._is_gone

    def start(
        self,
        argv: Sequence[str],
        out: int,
        err: int,
        env: Mapping[str, str],
        user: TrialUser | None = None,
    ) -> int:
        """Start a program in a session of its own; return its pid. Raises OSError."""
        folder, whose = str(Path.cwd()), None if user is None else asdict(user)
        try:
            pid = int(self._ask("start", list(argv), folder, out, err, dict(env), whose))
        except _GoneError:
            pid = OwnChildren().start(argv, out, err, env, user)
        self._ended.pop(pid, None)
        return pid

    def has_ended(self, pid: int) -> bool:
        """Return True when a child can be reaped; any other, when it has ended."""
        try:
            return pid in self._ended or bool(self._ask("has_ended", pid))
        except _GoneError:
            return OwnChildren().has_ended(pid)

    def reap(self, pid: int, *, wait: bool = True) -> Ended | None:
        """Wait for a child and return how it ended; without `wait`, None for one that runs."""
        import resource

        try:
            if pid not in self._ended:
                self._ask("reap", pid, wait)
        except _GoneError:
            return OwnChildren().reap(pid, wait=wait)
        ended = self._ended.get(pid)
        return None if ended is None else (ended[0], resource.struct_rusage(ended[1]))

    def has_children(self) -> bool:
        """Return True when there is any child, zombies included."""
        try:
            return bool(self._ask("has_children"))
        except _GoneError:
            return OwnChildren().has_children()

    def end_orphans(self) -> None:
        """Kill all descendants, if no worker is among them."""
        with contextlib.suppress(_GoneError):
            self._ask("end_orphans")

    def close(self) -> None:
        """Let the guard end what is left, and end; it gets a moment for it."""
        atexit.unregister(self.close)
        self._hang_up()
        with contextlib.suppress(OSError):
            limit = time.perf_counter() + LEAVE_LIMIT_S
            while os.waitpid(self._guard, os.WNOHANG)[0] == 0 and time.perf_counter() < limit:
                time.sleep(0.0005)

    def _hang_up(self) -> None:
        """Close the pipes: a guard that still runs ends all that is below it, and itself."""
        ends, self._pipes = self._pipes, ()
        for end in ends:
            with contextlib.suppress(OSError):
                os.close(end)

    def _ask(self, name: str, *values: Any) -> Any:
        """Return the guard's answer. Raises OSError as the guard's own, or `_GoneError`.

        Signals wait meanwhile: a KeyboardInterrupt between question and answer would leave the
        answer to the next question, and what has been reaped cannot be reaped again.
        """
        if not self.is_alive:
            raise _GoneError
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            _send(self._commands, (name, *values))
            number, answer = _receive(self._answers)
            if name == "reap" and answer is not None and not number:
                self._ended[values[0]] = answer
        except (OSError, EOFError):  # it was killed, or a pipe failed
            self._is_gone = True
            self._hang_up()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._guard, 0)
            raise _GoneError from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if number:
            raise OSError(number, os.strerror(number), answer)
        return answer


def _fork() -> int:
    """Fork without Python's warning on threads: what the guard does takes no lock of theirs."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _be_guard(commands: int, answers: int) -> NoReturn:
    try:
        os.setsid()  # a terminal's Ctrl-C, or a kill of the harness's group, is not for the guard
        adopt_orphans()
        hide_from_equals()
        harness = os.getppid()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        kept = sorted((commands, answers))
        for first, last in zip((2, *kept), (*kept, os.sysconf("SC_OPEN_MAX")), strict=True):
            os.closerange(first + 1, last)
        wake = _wake_on_children()
        _serve(_Served(harness), commands, answers, wake)
    finally:
        with contextlib.suppress(BaseException):
            end_all()
        os._exit(0)


def _serve(served: _Served, commands: int, answers: int, wake: int) -> None:
    import select

    while True:
        ready, _, _ = select.select([commands, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            served.reap_orphans()
        if commands not in ready:
            continue
        try:
            name, *values = _receive(commands)
        except EOFError:
            return
        try:
            answer = (0, getattr(served, name)(*values))
        except OSError as error:
            answer = (error.errno or errno.EIO, os.fsdecode(error.filename or ""))
        with contextlib.suppress(BrokenPipeError):
            _send(answers, answer)


class _Served:
    """What the guard does for the harness; the names and values are those of `Guard`."""

    def __init__(self, harness: int) -> None:
        self._harness = harness
        self._own = OwnChildren()
        self._workers: set[int] = set()

    def start(
        self,
        argv: Sequence[str],
        folder: str,
        out: int,
        err: int,
        env: Mapping[str, str],
        whose: Mapping[str, Any] | None,
    ) -> int:
        os.chdir(folder)
        user = None if whose is None else TrialUser(**whose)
        # The harness has opened the files; the kernel hands them over by these names.
        output = os.open(f"/proc/{self._harness}/fd/{out}", os.O_WRONLY)
        errors = os.open(f"/proc/{self._harness}/fd/{err}", os.O_WRONLY) if err != out else output
        try:
            pid = self._own.start(argv, output, errors, env, user)
        finally:
            for each in {output, errors}:
                os.close(each)
        self._workers.add(pid)
        return pid

    def has_ended(self, pid: int) -> bool:
        return self._own.has_ended(pid)

    def reap(self, pid: int, wait: bool) -> Any:
        ended = self._own.reap(pid, wait=wait)
        self._workers.discard(pid)  # one that cannot be ended is left behind
        return None if ended is None else (ended[0], tuple(ended[1]))

    def has_children(self) -> bool:
        self.reap_orphans()
        return self._own.has_children()

    def end_orphans(self) -> None:
        if not self._workers and self._own.has_children():
            end_all(0.5)

    def reap_orphans(self) -> None:
        """Reap adopted processes that have ended, but no worker: the harness asks for those."""
        for pid in set(children(os.getpid())) - self._workers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def end_all(limit_s: float = END_LIMIT_S) -> None:
    """Kill all descendants of this process again and again until none is left."""
    end = time.perf_counter() + limit_s
    while time.perf_counter() < end:
        living = descendants(os.getpid())
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _wake_on_children() -> int:
    """Return a descriptor that can be read when a child has ended; no signal ends this process.

    The workers have the signals as the harness has them: what is ignored there stays ignored.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    for number in (*_SIGNALS, signal.SIGCHLD):
        if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
            signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _send(pipe: int, value: Any) -> None:
    data = json.dumps(value).encode("ascii")
    rest = memoryview(_SIZE.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _receive(pipe: int) -> Any:
    (size,) = _SIZE.unpack(_exactly(pipe, _SIZE.size))
    return json.loads(_exactly(pipe, size))


def _exactly(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(pipe, size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


_guards: dict[int, Guard] = {}  # of this process, by its pid: a fork has none


def parent_of_workers() -> Parent:
    """Return the guard of this process, forked at the first call; else this process itself."""
    guard = _guards.get(os.getpid())
    if guard is not None and guard.is_alive:
        return guard
    if sys.platform != "linux":  # which alone gives orphans to a process that asks for them
        return OwnChildren()
    try:
        _guards[os.getpid()] = Guard()
    except OSError:
        return OwnChildren()
    return _guards[os.getpid()]

"""A trial's worker in a container of its own: start it, wait for it, enforce its limits, remove it.

Inside, `perfrun.worker.supervise` starts the worker and reports how it ended; the messages that
both sides exchange are described there. For each worker the engine creates, attaches, starts,
inspects and removes one container; the wait itself asks it nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.launchers.docker_engine import ContainerError, DockerEngine
from perfrun.launchers.launcher import REPORT, Exit, ask_to_end, has_outcome, wait_until_due
from perfrun.launchers.supervisor_words import message_of, report_of
from perfrun.untrusted import Folder, Refused
from perfrun.worker.procfs import HELPER_GRACE_S, descendants, state_and_flags

STREAM_GRACE_S = 2.0  # for the engine to deliver the output of an ended container
DISK_POLL_S = 0.25  # in which a fast disk takes half a gigabyte
_RESERVE_BYTES = 2**30
_LEAST_BYTES = 2**28  # with less than this free at the start, the disk itself is the limit
_SHARE = 0.5  # part of the space used since the start that must be in the trial's folder
START_LIMIT_S = 60.0  # for the interpreter in the container to begin
KILL_GRACE_S = 15.0  # for the supervisor to have killed thousands of processes
# For a supervisor whose harness or engine is gone to end, and to write its report.
REPORT_GRACE_S = HELPER_GRACE_S + 2.0
_REPORT_BYTES = 256 * 1024  # a supervisor's has a few thousand
_ENGINE_GONE = "the container engine went away"
_SIGNALLED = 128  # an exit status above it stands for a signal


class Container:
    """One running container and the messages of its supervisor."""

    def __init__(
        self,
        engine: DockerEngine,
        arguments: Mapping[str, Any],
        host: Mapping[str, Any],
        volumes: tuple[str, ...] = (),
    ) -> None:
        """Create and start it. Raises ContainerError; then nothing is left.

        `volumes` are removed with it.
        """
        begin = time.perf_counter()
        self._engine, self._volumes = engine, volumes
        try:
            self.id = engine.create(arguments, host)
        except ContainerError:
            self._remove_volumes()
            raise
        try:
            self._streams = engine.attach(self.id)
            engine.start(self.id)
            self.init_pid = int(engine.state(self.id).get("Pid") or 0)
        except ContainerError:
            with contextlib.suppress(ContainerError):
                engine.remove(self.id)
            self._remove_volumes()
            raise
        self._init = _pidfd(self.init_pid)
        self._init_ended_at: float | None = None
        self._words: dict[str, Any] = {}  # of the supervisor, checked; the first of each kind
        self._heard = 0  # messages that are in them
        self.notes: list[str] = []  # on what it said wrong
        self.create_s = time.perf_counter() - begin

    @property
    def worker(self) -> int | None:
        """The worker's pid, as the container sees it, once it has been started."""
        worker: int | None = self._said().get("worker")
        return worker

    @property
    def worker_has_ended(self) -> bool:
        """True once the worker has ended; processes that it started may still run."""
        return "ended" in self._said()

    @property
    def report(self) -> dict[str, Any] | None:
        """The supervisor's report of how the worker ended."""
        report: dict[str, Any] | None = self._said().get("exit")
        return report

    def _said(self) -> Mapping[str, Any]:
        """Return what the supervisor has said so far: the first right message of each kind."""
        for message in self._streams.messages[self._heard :]:
            for kind, words in message_of(message, self.notes).items():
                self._words.setdefault(kind, words)
        self._heard = len(self._streams.messages)
        return self._words

    @property
    def last_error_line(self) -> str:
        """The last line of standard error, the supervisor's or the engine's."""
        return (self._streams.stderr.strip().splitlines() or [""])[-1]

    def listen(self, seconds: float) -> bool:
        """Wait up to so many seconds for news; True when the container is over."""
        watched: list[Any] = [] if self._streams.ended else [self._streams]
        if self._init is not None and self._init_ended_at is None:
            watched.append(self._init)
        if self._init_ended_at is not None:
            seconds = min(seconds, STREAM_GRACE_S)
        if watched and not self.is_over:
            ready, _, _ = select.select(watched, [], [], seconds)
            if self._streams in ready:
                self._streams.receive()
            elif self._init in ready:
                self._init_ended_at = time.perf_counter()
        return self.is_over

    @property
    def is_over(self) -> bool:
        """True when the supervisor has reported, or cannot report any more."""
        if self.report is not None or self._streams.ended:
            return True
        if self._init_ended_at is None:
            return False
        # The engine may not have delivered the report yet.
        return time.perf_counter() - self._init_ended_at > STREAM_GRACE_S

    def send(self, letter: bytes) -> None:
        """Tell the supervisor to signal the worker (T, Q), or to kill everything (K)."""
        self._streams.send(letter)

    def host_pid(self) -> int | None:
        """Return the worker's pid as this host sees it; None where processes are hidden."""
        wanted = str(self.worker)
        for pid in descendants(self.init_pid) if self.init_pid else ():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
                names = [line for line in status.splitlines() if line.startswith("NSpid:")]
                if names and names[0].split()[-1] == wanted:
                    return pid
        return None

    def state(self) -> dict[str, Any] | None:
        """Return the engine's `State`; None when the engine or the container has gone."""
        with contextlib.suppress(ContainerError):
            return self._engine.state(self.id)
        return None

    def remove(self) -> None:
        """End and remove the container; without an engine, at least end it."""
        self._streams.close()
        try:
            self._engine.remove(self.id)
        except ContainerError:
            # Its processes belong to this user, who can end them without the engine.
            if self._init is not None:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(self._init, signal.SIGKILL)
        self._remove_volumes()
        if self._init is not None:
            os.close(self._init)
            self._init = None

    def _remove_volumes(self) -> None:
        for name in self._volumes:
            with contextlib.suppress(ContainerError):
                self._engine.remove_volume(name)


def _pidfd(pid: int) -> int | None:
    """Return a descriptor that can be read when the process ends; None where there is none."""
    try:
        return os.pidfd_open(pid) if pid > 0 else None
    except (AttributeError, OSError):
        return None


class DiskGuard:
    """Notices when a trial has nearly filled the disk of its folder. Never raises.

    No engine limits a mounted folder, so free space is polled while the trial runs.
    """

    def __init__(self, folder: Path, reserve_bytes: int = _RESERVE_BYTES) -> None:
        """Measure the free space before the trial.

        The reserve is at most half of what is free now, so that a trial can run on a disk that
        earlier ones have filled.
        """
        self._folder = folder
        self._at_start = _free_bytes(folder)
        free = self._at_start or 0
        self._reserve = min(reserve_bytes, free // 2) if free >= _LEAST_BYTES else 0

    def complaint(self) -> str | None:
        """Return a message once the trial has left too little space; None before."""
        free = _free_bytes(self._folder)
        if free is None or self._at_start is None or free >= self._reserve:
            return None
        size = _size_bytes(self._folder)
        if size < _SHARE * (self._at_start - free):
            return None  # something else has filled the disk
        return (
            f"its output folder has grown to {size / 2**30:.1f} GiB and left "
            f"{free / 2**30:.1f} GiB of the disk free"
        )


def _free_bytes(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _size_bytes(folder: Path) -> int:
    """Return the disk space of the files in a folder; links are not followed."""
    try:
        with Folder(folder) as opened:
            found = opened.entries(opens_up=False)
            return sum(entry.status.st_blocks * 512 for entry in found)
    except OSError:
        return 0


class ContainerProcess:
    """A trial's worker, running in a container."""

    def __init__(
        self,
        container: Container,
        folder: Path,
        private: Path,
        prepared_s: float,
        *,
        no_cgroup: str | None,
    ) -> None:
        self._container, self._private = container, private
        self._start_s = prepared_s + container.create_s
        self._no_cgroup, self.own_cgroup = no_cgroup, no_cgroup is None
        self._stopped_for: str | None = None
        self._guard = DiskGuard(folder)
        self._complaint: str | None = None  # of the guard
        self._unended: str | None = None
        self._notes: list[str] = []  # on the written report
        limit = time.perf_counter() + START_LIMIT_S
        while container.worker is None and time.perf_counter() < limit:
            if container.listen(1.0):
                break
        self._start = time.perf_counter()
        self._host_pid = container.host_pid()

    @property
    def pid(self) -> int | None:
        """The worker's pid as this host sees it."""
        return self._host_pid

    def wait(self, timeout_s: float | None) -> Exit:
        """Wait for the end, enforce the deadline, leave nothing behind."""
        if self._stopped_for is not None:
            return self._end()  # all was killed; a second wait would not help
        due = wait_until_due(
            self._worker_ended,
            self._private,
            None if timeout_s is None else self._start + timeout_s,
            poll_s=DISK_POLL_S,
            fills_the_disk=self._fills_the_disk,
        )
        if due == "disk":
            # Without asking first: it would go on writing.
            self.kill("exit" if has_outcome(self._private) else due)
        elif due:
            self.stop(due)
        elif not self._wait_for_end(HELPER_GRACE_S + KILL_GRACE_S):
            self._kill_all()
        return self._end()

    def _worker_ended(self, seconds: float) -> bool:
        """Wait for the worker's end. Processes that it left behind get their own time to end."""
        return self._container.listen(seconds) or self._container.worker_has_ended

    def _fills_the_disk(self) -> bool:
        self._complaint = self._guard.complaint()
        return self._complaint is not None

    def stop(self, why: str) -> None:
        """End the worker: SIGTERM, a dump of its stacks, SIGKILL to all in the container."""
        if self._container.worker_has_ended:
            return  # only processes that it left behind still ran
        self._stopped_for = "exit" if has_outcome(self._private) else why
        terminate, dump = (partial(self._container.send, letter) for letter in (b"T", b"Q"))
        if not ask_to_end(self._wait_for_end, self._private, terminate, dump):
            self._kill_all()

    def kill(self, why: str = "interrupt") -> None:
        """End all processes of the container at once."""
        if not self._container.worker_has_ended:
            self._stopped_for = self._stopped_for or why
        self._kill_all()

    def _kill_all(self) -> None:
        self._container.send(b"K")
        self._wait_for_end(KILL_GRACE_S)

    def _wait_for_end(self, seconds: float) -> bool:
        end = time.perf_counter() + seconds
        while not self._container.is_over:
            left = end - time.perf_counter()
            if left <= 0:
                return False
            self._container.listen(left)
        return True

    def close(self) -> Mapping[str, Any]:
        """Remove the container with all that still runs in it."""
        begin = time.perf_counter()
        self._container.remove()
        return {"remove_s": time.perf_counter() - begin}

    def _end(self) -> Exit:
        elapsed_s = time.perf_counter() - self._start
        report, disturbance = self._report()
        facts = {"id": self._container.id, "start_s": self._start_s}
        return Exit(
            exit_code=report.get("exit_code"),
            signal_number=report.get("signal_number"),
            stopped_for=self._stopped_for,
            elapsed_s=report.get("elapsed_s", elapsed_s),
            user_cpu_s=report.get("user_cpu_s", 0.0),
            system_cpu_s=report.get("system_cpu_s", 0.0),
            max_rss_bytes=report.get("max_rss_bytes", 0),
            strays=tuple(report.get("strays", ())),
            # Without a cgroup of its own, the figures are the engine's.
            cgroup=report.get("cgroup") if self.own_cgroup else None,
            no_cgroup=self._no_cgroup,
            resources=report.get("resources"),
            container=facts,
            disturbance=self._complaint if self._stopped_for else disturbance,
            unended=self._unended,
            notes=tuple(dict.fromkeys((*self._container.notes, *self._notes))),
        )

    def _report(self) -> tuple[dict[str, Any], str | None]:
        """Return the supervisor's report, or what is known without one, and what disturbed it."""
        report = self._container.report or self._written_report()
        if report is None:
            return self._without_report()
        return report, _disturbance(report)

    def _written_report(self) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, Refused), Folder(self._private) as folder:
            return report_of(folder.json(REPORT, _REPORT_BYTES), self._notes)
        return None

    def _without_report(self) -> tuple[dict[str, Any], str | None]:
        """Return what is known when the supervisor was killed, or its report did not arrive."""
        state = self._state_at_end()
        report = self._written_report()
        if report is not None:  # written meanwhile
            return report, _disturbance(report) or _ENGINE_GONE
        if state is None:
            # A supervisor without a harness ends itself, which may take a moment.
            return self._after_engine()
        if state.get("Running"):
            self._unended = self._unended_text()
            return {}, f"the container fell silent and did not end within {KILL_GRACE_S:g} s"
        code = int(state.get("ExitCode") or 0)
        number = code - _SIGNALLED if code > _SIGNALLED else None
        report = {"exit_code": None if number else code, "signal_number": number}
        if state.get("OOMKilled"):
            return {**report, "cgroup": {"oom_kills": 1}}, None
        if number:
            return report, "the container was killed, and not by perfrun"
        error = f": {self._container.last_error_line}" if self._container.last_error_line else ""
        return report, f"the container ended with status {code}{error}"

    def _unended_text(self) -> str:
        state = state_and_flags(self._host_pid)[0] if self._host_pid else ""
        worker = f"; its worker (pid {self._host_pid}) is in state {state}" if state else ""
        name = self._container.id[:12]
        return f"container {name} could not be ended within {KILL_GRACE_S:g} s{worker}"

    def _state_at_end(self) -> dict[str, Any] | None:
        """Return the engine's `State` once it knows of the end: a busy engine is late."""
        end = time.perf_counter() + KILL_GRACE_S
        while True:
            state = self._container.state()
            if state is None or not state.get("Running") or time.perf_counter() > end:
                return state
            time.sleep(0.05)

    def _after_engine(self) -> tuple[dict[str, Any], str | None]:
        end = time.perf_counter() + REPORT_GRACE_S
        while time.perf_counter() < end:
            report = self._written_report()
            if report:
                return report, _disturbance(report) or _ENGINE_GONE
            time.sleep(0.02)
        return {}, _ENGINE_GONE


def _disturbance(report: Mapping[str, Any]) -> str | None:
    """Return what disturbed a worker, as its supervisor reports it."""
    if report.get("told_from_outside"):
        return "the container was stopped from outside"
    return _ENGINE_GONE if report.get("harness_is_gone") else None

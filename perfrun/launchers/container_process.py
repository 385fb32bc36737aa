"""A trial's worker in a container: wait for it, enforce its limits, say how it ended."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.launchers.container import Container
from perfrun.launchers.contract import REPORT, Exit
from perfrun.launchers.disk_guard import LOOK_EVERY_S, DiskGuard
from perfrun.launchers.ending import ask_to_end, has_said_last_word, wait_until_due
from perfrun.worker.procfs import HELPER_GRACE_S, state_and_flags

START_LIMIT_S = 60.0  # for the interpreter in the container to begin
KILL_GRACE_S = 15.0  # for the supervisor to have killed thousands of processes
# For one whose harness or engine is gone to end, and to write how it was.
REPORT_GRACE_S = HELPER_GRACE_S + 2.0
_ENGINE_GONE = "the container engine went away"
_SIGNALLED = 128  # an exit status above it stands for a signal


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
            return self._end()  # all was killed; what does not end then is not waited for again
        due = wait_until_due(
            self._worker_ended,
            self._private,
            None if timeout_s is None else self._start + timeout_s,
            look_every_s=LOOK_EVERY_S,
            fills_the_disk=self._fills_the_disk,
        )
        if due == "disk":
            # At once: it goes on writing while it is asked to end.
            self.kill("exit" if has_said_last_word(self._private) else due)
        elif due:
            self.stop(due)
        elif not self._wait_for_end(HELPER_GRACE_S + KILL_GRACE_S):
            self._kill_all()
        return self._end()

    def _worker_ended(self, seconds: float) -> bool:
        """No deadline is for what comes after: what it left behind is given time, and killed."""
        return self._container.listen(seconds) or self._container.worker_has_ended

    def _fills_the_disk(self) -> bool:
        self._complaint = self._guard.complaint()
        return self._complaint is not None

    def stop(self, why: str) -> None:
        """End the worker: SIGTERM, a dump of its stacks, SIGKILL to all in the container."""
        if self._container.worker_has_ended:
            return  # it was what it left behind that was waited for
        self._stopped_for = "exit" if has_said_last_word(self._private) else why
        terminate, dump = (partial(self._container.send, letter) for letter in (b"T", b"Q"))
        if not ask_to_end(self._wait_for_end, self._private, terminate, dump):
            self._kill_all()

    def kill(self, why: str = "interrupt") -> None:
        """End all of it at once."""
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
        """Remove the container, and with it whatever still runs in there."""
        begin = time.perf_counter()
        self._container.remove()
        return {"remove_s": time.perf_counter() - begin}

    def _end(self) -> Exit:
        elapsed_s = time.perf_counter() - self._start
        report, disturbance = self._last_word()
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
            # Without a cgroup of its own, what it saw there was the engine's.
            cgroup=report.get("cgroup") if self.own_cgroup else None,
            no_cgroup=self._no_cgroup,
            resources=report.get("resources"),
            container=facts,
            disturbance=self._complaint if self._stopped_for else disturbance,
            unended=self._unended,
        )

    def _last_word(self) -> tuple[dict[str, Any], str | None]:
        """The supervisor's report, or what can be known without one; and what disturbed it."""
        report = self._container.report or self._written_report()
        if report is None:
            return self._without_report()
        return report, _disturbance(report)

    def _written_report(self) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError):
            report = json.loads((self._private / REPORT).read_bytes())
            return report if isinstance(report, dict) else None
        return None

    def _without_report(self) -> tuple[dict[str, Any], str | None]:
        """The supervisor was killed, or nobody carried what it said."""
        state = self._state_at_end()
        report = self._written_report()
        if report is not None:  # written meanwhile
            return report, _disturbance(report) or _ENGINE_GONE
        if state is None:
            # It may be that it only takes a moment: a supervisor without a harness ends itself.
            return self._after_engine()
        if state.get("Running"):
            self._unended = self._still_there()
            return {}, f"the container fell silent and did not end within {KILL_GRACE_S:g} s"
        code = int(state.get("ExitCode") or 0)
        number = code - _SIGNALLED if code > _SIGNALLED else None
        report = {"exit_code": None if number else code, "signal_number": number}
        if state.get("OOMKilled"):
            return {**report, "cgroup": {"oom_kills": 1}}, None
        if number:
            return report, "the container was killed, and not by perfrun"
        said = f": {self._container.complaint}" if self._container.complaint else ""
        return report, f"the container ended with status {code}{said}"

    def _still_there(self) -> str:
        state = state_and_flags(self._host_pid)[0] if self._host_pid else ""
        worker = f"; its worker (pid {self._host_pid}) is in state {state}" if state else ""
        name = self._container.id[:12]
        return f"container {name} could not be ended within {KILL_GRACE_S:g} s{worker}"

    def _state_at_end(self) -> dict[str, Any] | None:
        """What the engine says, once it knows of the end itself: a busy one is late."""
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
    """What disturbed a worker, as its supervisor saw it."""
    if report.get("told_from_outside"):
        return "the container was stopped from outside"
    return _ENGINE_GONE if report.get("harness_is_gone") else None

"""Throw-away workers in containers, and the orders of all workers there."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.launchers.container import Container
from perfrun.launchers.contract import ORDER, REPORT

_NOT_FOUND = (126, 127)  # with these the engine's init says that it could not execute a program


class ContainerService:
    """A throw-away worker in a container."""

    def __init__(self, container: Container, log: Path) -> None:
        self._container, self._log = container, log
        self._removed = False

    def lacks_interpreter(self) -> bool:
        """Wait until something runs in there, and say whether the image had no such program."""
        while not self._container.is_over and self._container.worker is None:
            self._container.listen(1.0)
        if self._container.worker is not None:
            return False
        state = self._container.state() or {}
        return state.get("ExitCode") in _NOT_FOUND

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; the exit status, minus the signal, or None when it has not ended."""
        end = time.perf_counter() + timeout_s
        while not self._container.is_over:
            left = end - time.perf_counter()
            if left <= 0:
                return None
            self._container.listen(min(left, 1.0))
        report = self._container.report
        if report is None:
            with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
                log.write(self._container.complaint)  # no worker of ours has come so far
            return int((self._container.state() or {}).get("ExitCode") or 1)
        code = report["exit_code"]
        return int(code) if code is not None else -int(report["signal_number"])

    def end(self) -> None:
        """Leave nothing of it running."""
        if not self._removed:
            self._removed = True
            self._container.remove()


def write_order(
    order: Mapping[str, Any], private: Path, out: Path, err: Path, cpus: list[int] | None
) -> Path:
    """Write the order of a worker that a supervisor starts, and return its path."""
    supervision = {
        "stdout": str(out),
        "stderr": str(err),
        "exit": str(private / REPORT),
        "cpus": cpus,
    }
    # The parent is the supervisor, whose pid nobody knows yet; see worker.trial.
    whole = {**order, "parent_pid": None, "supervision": supervision}
    path = private / ORDER
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path

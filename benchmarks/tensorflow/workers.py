"""Processes of a scaling benchmark: groups of workers that train in turns, watched and ended.

All are on this machine, and only the loopback interface is used.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks import child

_INTERVAL_S = 0.02


class RankError(RuntimeError):
    """A rank failed; the message says which one, and why."""


class Group:
    """The ranks of one level. Without communication each is a cluster of its own."""

    def __init__(self, order: Mapping[str, Any], *, ranks: int, folder: Path) -> None:
        self.ranks = ranks
        self.folder = folder
        self.silence_s = float(order["silence_s"])
        folder.mkdir(parents=True)
        addresses = free_addresses(ranks)
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(ranks):
            together = order["communication"]
            own = addresses if together else [addresses[rank]]
            told = {"addresses": own, "index": rank if together else 0}
            self._start(rank, {**order, **told, "batch_size": order["batch_sizes"][ranks]})

    def ready(self) -> list[dict[str, Any]]:
        """Wait until every rank has built and compiled its model; return what they say of it."""
        return [line["ready"] for line in self._lines(0)]

    def turn(self, number: int) -> list[tuple[float, ...]]:
        """Let all ranks train for one round; return the seconds of each rank's steps."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has died: the wait says so
                process.stdin.write(b"%d\n" % number)
                process.stdin.flush()
        lines = self._lines(number + 1)
        return [tuple(step_ns / 1e9 for step_ns in line["step_ns"]) for line in lines]

    def end(self) -> None:
        """Leave no process behind; their results are on disk."""
        for process in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _start(self, rank: int, order: dict[str, Any]) -> None:
        path = self.folder / f"rank_{rank}_order.json"
        task = {"module": "benchmarks.tensorflow.scaling_rank", "function": "main"}
        child.write_order(path, {**order, **task, "file": str(self._file(rank))})
        self._file(rank).touch()
        with ExitStack() as stack:
            log = stack.enter_context(self._log(rank).open("wb"))
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, str(child.PROGRAM), str(path)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=_environment(rank, gpus=order["device"] == "gpu"),
                )
            )

    def _lines(self, number: int) -> list[dict[str, Any]]:
        """Wait for the line of that number in every rank's file."""
        waiting_since = time.monotonic()
        while True:
            lines = [self._file(rank).read_bytes().split(b"\n")[:-1] for rank in range(self.ranks)]
            if all(len(of_rank) > number for of_rank in lines):
                return [json.loads(of_rank[number]) for of_rank in lines]
            for rank, process in enumerate(self._processes):
                if process.poll() is not None:
                    raise self._failure(rank, child.ending(process.returncode))
            if time.monotonic() - waiting_since > self.silence_s:
                late = next(rank for rank, found in enumerate(lines) if len(found) <= number)
                raise self._failure(late, f"nothing in {self.silence_s:g} s")
            time.sleep(_INTERVAL_S)

    def _failure(self, rank: int, what: str) -> RankError:
        said = child.last_line(self._log(rank)) or "it said nothing"
        return RankError(f"rank {rank} of {self.ranks}: {what}: {said} (log: {self._log(rank)})")

    def _file(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.jsonl"

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.log"


def free_addresses(number: int) -> list[str]:
    """Return addresses of this machine where nobody listened a moment ago."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def _environment(rank: int, *, gpus: bool) -> dict[str, str]:
    """One GPU for each rank, and no proxy between them: gRPC takes one for the loopback, too."""
    known = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    known["CUDA_VISIBLE_DEVICES"] = _device(rank) if gpus else ""
    return known


def _device(rank: int) -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(rank) if visible is None else visible.split(",")[rank]

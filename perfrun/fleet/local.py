"""The engine `local`: the shards of a submission on this machine, one after another."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import BinaryIO

from perfrun.errors import UsageError, WorkspaceError
from perfrun.fleet.dispatch import Answer, Dispatch, shuffled
from perfrun.fleet.engines import EngineFlag, Options, Staying, shard_words
from perfrun.fleet.shard_command import BENCHMARK_FAILED, BUSY, RAN
from perfrun.options.parsers import parse_whole
from perfrun.run.interruption import taking_signals
from perfrun.shards.places import ShardPlace
from perfrun.shards.plan import Plan
from perfrun.shards.telling import Teller

_LOOK_S = 0.2
_MOST_JOBS = 256
_GRACE_S = 30.0  # for a run to end its trial and to write what it has


class Local(Staying):
    """Runs shards here, `--jobs` at a time: one, unless the user wants benchmarks side by side."""

    flags = (
        EngineFlag(
            name="jobs",
            metavar="N",
            text="shards at a time (default 1: benchmarks that share a machine disturb each other)",
        ),
    )

    def check(self, options: Options) -> None:
        """Refuse wrong options. Raises UsageError."""
        _jobs(options)

    def submit(self, plan: Plan, indices: Sequence[int], options: Options) -> None:
        """Run shards until all have ended. Raises Interrupted, and PerfrunError."""
        teller = Teller(plan, indices)
        slots = [LocalSlot(plan, f"slot {number + 1}") for number in range(_jobs(options))]
        with taking_signals() as interruption:
            order = shuffled(plan, indices)
            # There is no other machine to which the shards could go.
            Dispatch(slots, order, teller.note, teller.ended, gives_up=False).run(interruption)


class LocalSlot:
    """A share of this machine."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan, self.name = plan, name

    def run(self, index: int, stop: threading.Event) -> Answer:
        """Run a shard in a process of its own, whose output goes to the shard's log."""
        place = ShardPlace(self._plan, index)
        place.make()
        words = [*shard_words(self._plan, index, sys.executable), "--until_stdin_closes"]
        try:
            with (
                place.log.open("ab") as log,
                subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                ) as process,
            ):
                status = wait_for(process, stop)
        except OSError as error:
            raise WorkspaceError(f"{words[0]}: cannot be started: {error.strerror}") from None
        if status in (RAN, BENCHMARK_FAILED, BUSY):
            return Answer.ENDED
        return Answer.MACHINE

    def close(self) -> None:
        """Do nothing: all that a shard leaves is its result."""


def wait_for(process: subprocess.Popen[bytes], stop: threading.Event) -> int:
    """Wait for a process that ends when its input closes, which `stop` does; return its status."""
    assert process.stdin is not None
    stdin: BinaryIO = process.stdin  # type: ignore[assignment]
    while not stop.is_set():
        try:
            return process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    stdin.close()
    try:
        return process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _jobs(options: Options) -> int:
    jobs = parse_whole(options.get("jobs", "1"), "--jobs") or 1
    if jobs > _MOST_JOBS:
        raise UsageError(f"--jobs={jobs}: at most {_MOST_JOBS} at a time on one machine")
    return jobs


def engine() -> Local:
    """Return the engine."""
    return Local()

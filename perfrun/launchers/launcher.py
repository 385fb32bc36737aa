"""The interface of a launcher, and the rules by which all launchers end a worker.

A launcher starts workers in one environment and reports how they ended. `launchers.local` starts
processes of this host, `launchers.container_launcher` one container for each; the harness knows no
more of where a trial runs. The functions here take a launcher's own function `ended`, which waits
up to so many seconds for the end and returns True when it has come.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from perfrun.dataclass import dataclass
from perfrun.trial_user import TrialUser
from perfrun.untrusted import Folder
from perfrun.worker.outcome_file import OUTCOME, STACK

WORKER = Path(__file__).resolve().parent.parent / "worker"
ENTRY = WORKER / "entry.py"
# The folder that holds `benchmarks/`: a checkout's root, or one of an installed package's own.
_INSTALLED = WORKER.parent / "shipped"
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else WORKER.parent.parent
ORDER = "order.json"
REPORT = "exit.json"  # how the worker ended, when a supervisor inside a container writes it
TERM_GRACE_S = 2.0  # between SIGTERM and the dump
DUMP_POLL_S = 0.05  # between two polls of the dump, which takes a millisecond of the processor
DUMP_STILL_POLLS = 10  # in a row without a further byte: the dump is written line by line
DUMP_POLLS = 100  # at most: a worker may not get the processor, or cannot dump
# For a process that was sent SIGKILL. Freeing much memory, or a GPU, takes seconds; a process that
# waits for a driver or a file server that does not answer never ends, and is left behind.
KILL_GRACE_S = 60.0
EXIT_GRACE_S = 30.0  # for a worker that has written its outcome to end
POLL_S = 1.0  # for the outcome; the end of the worker wakes the wait at once
Ended = Callable[[float], bool]
Due = Literal["deadline", "exit", "disk"]


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The end of a worker's process."""

    exit_code: int | None  # None when a signal ended it
    signal_number: int | None
    stopped_for: str | None  # "deadline", "interrupt", "exit", "disk" when perfrun ended it
    elapsed_s: float
    user_cpu_s: float
    system_cpu_s: float
    max_rss_bytes: int  # ru_maxrss: of the process, its start, or its largest waited-for child
    strays: tuple[str, ...]  # processes that the worker left behind; they were killed
    # `worker.procfs.usage_counts` of wait4's answer, and `io_counts` of the zombie:
    resources: Mapping[str, Any] | None = None
    # Of a trial in a cgroup of its own:
    cgroup: Mapping[str, Any] | None = None  # figures of `worker.cgroups`, read after its end
    # Of a container:
    no_cgroup: str | None = None  # why it had none of its own, and how to give it one
    container: Mapping[str, Any] | None = None  # facts of this trial's, for its summary
    disturbance: str | None = None  # what ended it from outside, when that is not the benchmark
    unended: str | None = None  # what still runs after SIGKILL; the figures are of that moment
    notes: tuple[str, ...] = ()  # on what a supervisor said wrong


class Running(Protocol):
    """A worker that carries out a trial's order."""

    @property
    def pid(self) -> int | None:
        """The worker's pid as this host sees it, to be sampled; None when it is not known."""

    @property
    def own_cgroup(self) -> bool:
        """True when the worker is in a control group of the trial's own."""

    def wait(self, timeout_s: float | None) -> Exit:
        """Wait for the end, enforce the deadline, leave nothing running.

        A KeyboardInterrupt (or `Interrupted`) ends the wait; call `stop` and then `wait` again.
        """

    def stop(self, why: str) -> None:
        """End the worker by SIGTERM, a dump of its stacks, and SIGKILL to all that it started."""

    def kill(self) -> None:
        """End the worker and all that it started at once."""

    def close(self) -> Mapping[str, Any]:
        """Remove a worker that has ended; return the facts that are known only then."""


class Serving(Protocol):
    """A throw-away worker that answers one question."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its status, minus its signal, or None if it has not ended."""

    def end(self) -> None:
        """End it and all that it started; may be called more than once."""


class Launcher(Protocol):
    """Starts workers in one environment."""

    @property
    def name(self) -> str:
        """The flag that names the environment, for messages: `--python=...`."""

    def start(self, order: Mapping[str, Any], folder: Path, private: Path) -> Running:
        """Start the worker of a trial. Raises OSError when it cannot be started."""

    def serve(self, order: Mapping[str, Any], folder: Path, log: Path) -> Serving:
        """Start a throw-away worker, which answers into `folder`. Raises OSError likewise."""

    def set_variables(self, variables: Mapping[str, str]) -> None:
        """Add environment variables to the workers that are started from now on."""

    def container_facts(self) -> Mapping[str, Any] | None:
        """Return facts of the environment's image and engine; None outside containers."""


def wait_until_due(
    ended: Ended,
    private: Path,
    deadline: float | None,
    *,
    poll_s: float = POLL_S,
    fills_the_disk: Callable[[], bool] | None = None,
) -> Due | None:
    """Wait for the end; return why the worker has to be ended, or None when it ended by itself.

    `deadline` is a time of `time.perf_counter`. A worker whose outcome is in `private` has
    `EXIT_GRACE_S` left to end.
    """
    outcome_at: float | None = None
    while not ended(_pause_s(deadline, poll_s)):
        now = time.perf_counter()
        if fills_the_disk is not None and fills_the_disk():
            return "disk"
        if deadline is not None and now >= deadline:
            return "deadline"
        if outcome_at is None and has_outcome(private):
            outcome_at = now
        if outcome_at is not None and now - outcome_at > EXIT_GRACE_S:
            return "exit"
    return None


def ask_to_end(
    ended: Ended, private: Path, terminate: Callable[[], None], dump: Callable[[], None]
) -> bool:
    """Send SIGTERM, then ask a worker that does not end for a dump of its stacks; True if it ended.

    The dump goes into `private`. Polls are counted, not seconds: on a machine that stood still
    nothing was written meanwhile.
    """
    terminate()
    if ended(TERM_GRACE_S):
        return True
    begun = size = _bytes_of_stacks(private)
    still = 0
    dump()
    for _ in range(DUMP_POLLS):
        if ended(DUMP_POLL_S):
            return True
        before, size = size, _bytes_of_stacks(private)
        still = still + 1 if begun < size == before else 0
        if still == DUMP_STILL_POLLS:
            return False
    return False


def _bytes_of_stacks(private: Path) -> int:
    try:
        with Folder(private) as folder:
            return folder.size(STACK) or 0
    except OSError:
        return 0


def has_outcome(private: Path) -> bool:
    """Return True when the worker has written its outcome.

    To be called before SIGTERM, whose effect on the method would be the outcome otherwise.
    """
    try:
        with Folder(private) as folder:
            return folder.exists(OUTCOME)
    except OSError:
        return False


def write_order_file(path: Path, order: Mapping[str, Any]) -> None:
    """Write a worker's order. Raises OSError. It is not read back: the worker may change it."""
    with Folder(path.parent) as folder:
        file = folder.replaced(path.name)
    with os.fdopen(file, "wb") as opened:
        opened.write(json.dumps(order).encode())


@contextlib.contextmanager
def stream_file(path: Path, user: TrialUser | None = None) -> Iterator[int]:
    """Make the empty file into which a worker prints; yield its descriptor. Raises OSError.

    `user`: who the worker is, when that is not the user of this process.
    """
    with Folder(path.parent) as folder:
        file = folder.replaced(path.name)
    try:
        if user is not None:  # a program may open its standard output by a name, as a shell does
            user.lend(file, stat.S_IRGRP | stat.S_IWGRP)
        yield file
    finally:
        os.close(file)


def _pause_s(deadline: float | None, poll_s: float) -> float:
    left_s = poll_s if deadline is None else deadline - time.perf_counter()
    return max(0.0, min(poll_s, left_s))

"""What every launcher promises: it starts workers in one environment, and says how they end.

The harness knows nothing else of where a trial runs. `launchers.local` starts processes of this
host, `launchers.container` a container for each.

When a worker is to be ended, and how it is asked to: the same wherever it runs.

A launcher brings a function that waits for the end in its own way, for so many seconds at most, and
says whether it has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from perfrun.dataclass import dataclass
from perfrun.worker.files import OUTCOME, STACK

WORKER = Path(__file__).resolve().parent.parent / "worker"
ENTRY = WORKER / "entry.py"
# The folder that holds `benchmarks/`: a checkout's root, or one of an installed package's own.
_INSTALLED = WORKER.parent / "shipped"
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else WORKER.parent.parent
ORDER = "order.json"
REPORT = "exit.json"  # how the worker ended, when a supervisor inside a container writes it


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How the worker's process ended."""

    exit_code: int | None  # None when a signal ended it
    signal_number: int | None
    stopped_for: str | None  # "deadline", "interrupt", "exit", "disk" when perfrun ended it
    elapsed_s: float
    user_cpu_s: float
    system_cpu_s: float
    max_rss_bytes: int  # ru_maxrss: of the process, its start, or its largest waited-for child
    strays: tuple[str, ...]  # processes left behind, killed
    # `worker.procfs.usage_counts` of what wait4 said, and `io_counts` of the zombie:
    resources: Mapping[str, Any] | None = None
    # Of a trial in a cgroup of its own:
    cgroup: Mapping[str, Any] | None = None  # `worker.cgroups`' figures, read when it had ended
    # Of a container:
    no_cgroup: str | None = None  # why it had none of its own, and what would give it one
    container: Mapping[str, Any] | None = None  # facts of this trial's, for its summary
    disturbance: str | None = None  # what ended it from outside, when that is not the benchmark
    unended: str | None = None  # what is still there after SIGKILL; the figures are as of then


class Running(Protocol):
    """A worker that carries out a trial's order."""

    @property
    def pid(self) -> int | None:
        """The worker's pid as this host sees it, to be sampled; None when it cannot be had."""

    @property
    def own_cgroup(self) -> bool:
        """Whether the worker is in a control group that is the trial's alone."""

    def wait(self, timeout_s: float | None) -> Exit:
        """Wait for the end, enforce the deadline, leave nothing running.

        A KeyboardInterrupt (or `Interrupted`) that arrives meanwhile goes through; call `stop`
        and then `wait` again.
        """

    def stop(self, why: str) -> None:
        """End the worker: SIGTERM, a dump of its stacks, SIGKILL to all that it started."""

    def kill(self) -> None:
        """End all of it at once."""

    def close(self) -> Mapping[str, Any]:
        """Remove what it was made of, once it has ended; return what is known only then."""


class Serving(Protocol):
    """A throw-away worker that answers one question."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; the exit status, minus the signal, or None when it has not ended."""

    def end(self) -> None:
        """Leave nothing of it running; may be called more than once."""


class Launcher(Protocol):
    """Starts workers in one environment."""

    @property
    def name(self) -> str:
        """What the user named the environment with, for messages: `--python=...`."""

    def start(self, order: Mapping[str, Any], folder: Path, private: Path) -> Running:
        """Start the worker of a trial. Raises OSError when it cannot be started."""

    def serve(self, order: Mapping[str, Any], folder: Path, log: Path) -> Serving:
        """Start a throw-away worker, which answers into `folder`. Raises OSError likewise."""

    def container_facts(self) -> Mapping[str, Any] | None:
        """What is known of the environment's image and engine; None outside containers."""


TERM_GRACE_S = 2.0  # between SIGTERM and the dump
DUMP_LOOK_S = 0.05  # whether the dump is written, which takes a millisecond of the processor
DUMP_STILL_LOOKS = 10  # in a row without a byte more: it is written line by line
DUMP_LOOKS = 100  # for one that does not get the processor, or cannot dump
# For a process that was sent SIGKILL. To give back much memory, or a GPU, takes seconds; one that
# waits for a driver or a file server that does not answer never ends, and is left behind.
KILL_GRACE_S = 60.0
EXIT_GRACE_S = 30.0  # for a worker that has written its outcome to end
LOOK_EVERY_S = 1.0  # for the outcome; the end itself is waited for, and wakes at once

Ended = Callable[[float], bool]
Due = Literal["deadline", "exit", "disk"]


def wait_until_due(
    ended: Ended,
    private: Path,
    deadline: float | None,
    *,
    look_every_s: float = LOOK_EVERY_S,
    fills_the_disk: Callable[[], bool] | None = None,
) -> Due | None:
    """Wait for the end; return why it has to be brought about, or None when it came by itself.

    `deadline` is a time of `time.perf_counter`. A worker whose outcome is in `private` has
    `EXIT_GRACE_S` left to end.
    """
    outcome_at: float | None = None
    while not ended(_pause_s(deadline, look_every_s)):
        now = time.perf_counter()
        if fills_the_disk is not None and fills_the_disk():
            return "disk"
        if deadline is not None and now >= deadline:
            return "deadline"
        if outcome_at is None and has_said_last_word(private):
            outcome_at = now
        if outcome_at is not None and now - outcome_at > EXIT_GRACE_S:
            return "exit"
    return None


def ask_to_end(
    ended: Ended, private: Path, terminate: Callable[[], None], dump: Callable[[], None]
) -> bool:
    """SIGTERM, and a dump of the stacks of one that does not obey; whether it has ended by then.

    The dump goes into `private`. Looks are counted, not seconds: a machine that stood still has not
    let anybody write.
    """
    terminate()
    if ended(TERM_GRACE_S):
        return True
    stacks = private / STACK
    begun = size = _bytes_in(stacks)
    still = 0
    dump()
    for _ in range(DUMP_LOOKS):
        if ended(DUMP_LOOK_S):
            return True
        before, size = size, _bytes_in(stacks)
        still = still + 1 if begun < size == before else 0
        if still == DUMP_STILL_LOOKS:
            return False
    return False


def _bytes_in(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def has_said_last_word(private: Path) -> bool:
    """Whether its outcome stands.

    What is written after SIGTERM says what that made of the method, so this is asked before.
    """
    return (private / OUTCOME).exists()


def _pause_s(deadline: float | None, look_every_s: float) -> float:
    left_s = look_every_s if deadline is None else deadline - time.perf_counter()
    return max(0.0, min(look_every_s, left_s))

"""What every launcher promises: it starts workers in one environment, and says how they end.

The harness knows nothing else of where a trial runs. `launchers.local` starts processes of this
host, `launchers.container` a container for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from perfrun.dataclass import dataclass

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

"""The engines on which shards run, by name, and the protocol that each of them meets.

An engine is a module `perfrun.fleet.<name>` with a function `engine() -> Engine`. It imports what
only it needs (a scheduler's client) inside its functions, since the help of `perfrun submit` asks
each engine for its flags.

An engine starts `shard_words(plan, index)` once for each shard, wherever it likes, as long as no
two benchmarks share a machine unless the user asked for that. All that counts about a shard is in
the files that this process leaves (`perfrun.shards.places`), and in its exit status
(`perfrun.fleet.shard_command`): an engine never reads a result. So an engine that forgets, restarts
or starts a shard twice neither loses a result nor makes a second one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from perfrun.errors import UsageError
from perfrun.options.parsers import nearest
from perfrun.shards.plan import Plan, ShardState

NAMES = tuple(
    name
    for name in ("local", "ssh", "slurm", "kubernetes")
    if importlib.util.find_spec(f"perfrun.fleet.{name}")
)
Options = Mapping[str, str]  # flags of the engine that were given, by name without dashes


@dataclass(frozen=True, kw_only=True)
class EngineFlag:
    """A flag of `perfrun submit` that belongs to one engine (or to several, by the same words)."""

    name: str  # without dashes
    metavar: str
    text: str  # for the help


class Engine(Protocol):
    """An engine on which shards run."""

    @property
    def flags(self) -> Sequence[EngineFlag]:
        """The flags that it takes."""

    @property
    def stays(self) -> bool:
        """True when `submit` returns only after its shards have ended: it runs them itself.

        False when something else runs them, a scheduler for example, and `states` asks that.
        """

    def check(self, options: Options) -> None:
        """Refuse wrong options, before anything is written. Raises UsageError, of one line.

        It also says what is missing here: a package with the `pip install` to run, a program.
        """

    def submit(self, plan: Plan, indices: Sequence[int], options: Options) -> None:
        """Have these shards run; none of them is waiting or running. The plan is on disk.

        What the engine must remember, such as the numbers of jobs, it keeps in files of
        `places.engine_folder(plan)`, written durably before `submit` returns (and after each part
        that is submitted: a killed `submit` must leave no job that nobody knows).

        Raises PerfrunError when nothing, or not all, could be submitted; Interrupted, where it
        `stays`, after it has ended what it runs.
        """

    def states(self, plan: Plan, indices: Sequence[int]) -> Mapping[int, ShardState]:
        """Return the states of these shards as the engine knows them, by one throttled question.

        Only what it knows: WAITING, RUNNING, PREEMPTED, CANCELLED, MACHINE (the node failed, time
        or memory ran out). A shard that it has never had, or of which it only knows that its
        process ended, is left out: the shard's files say more (`perfrun.shards.status`). What the
        files say of a result or a failure outweighs what the engine says, unless the engine says
        WAITING or RUNNING. Raises PerfrunError when the engine cannot be asked.
        """

    def cancel(self, plan: Plan, indices: Sequence[int]) -> None:
        """Cancel what waits or runs of these shards. Raises PerfrunError."""


class Staying:
    """The engines that run their shards themselves: nothing goes on without them."""

    stays = True

    def states(self, plan: Plan, indices: Sequence[int]) -> Mapping[int, ShardState]:  # noqa: ARG002
        """Return nothing: the files of the shards say all."""
        return {}

    def cancel(self, plan: Plan, indices: Sequence[int]) -> None:  # noqa: ARG002
        """Raise UsageError: what it runs ends with the command that runs it."""
        raise UsageError(
            f"--cancel: what --engine={plan.engine} runs ends with its `perfrun submit`: press "
            "Ctrl-C there"
        )


@runtime_checkable
class OnNodes(Protocol):
    """An engine that can have a shard run on the node that it names; `--per_node` needs that."""

    def nodes(self, options: Options) -> Sequence[str]:
        """Return the nodes that the options choose. Raises PerfrunError."""


@runtime_checkable
class Previewing(Protocol):
    """An engine that can say what it would hand on; `submit --dry_run` prints that."""

    def preview(self, plan: Plan, indices: Sequence[int], options: Options) -> Mapping[str, Any]:
        """Return the document that its scheduler takes. Raises UsageError."""


@runtime_checkable
class Gathering(Protocol):
    """An engine at whose places results wait until somebody takes them."""

    def gather(self, plan: Plan) -> None:
        """Bring what waits into attempts of the shards; what cannot come is said, and waits.

        Raises PerfrunError when the engine cannot be asked.
        """


def engine_named(name: str) -> Engine:
    """Return an engine by its name. Raises UsageError."""
    if name not in NAMES:
        near = nearest(name, NAMES)
        hint = f"; did you mean {near}?" if near else ""
        raise UsageError(f"--engine={name}: must be one of {', '.join(NAMES)}{hint}")
    made: Engine = importlib.import_module(f"perfrun.fleet.{name}").engine()
    return made


def shard_words(plan: Plan, index: int, python: str = sys.executable) -> tuple[str, ...]:
    """Return the command line that runs a shard where the submission's folder can be seen."""
    return (python, "-m", "perfrun", "shard", str(plan.folder), str(index))

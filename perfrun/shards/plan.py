"""A submission as values: its shards, each of which one process runs somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from perfrun.options.sweeps import Setting, setting_text

FOLDER = "submissions"  # of a workspace


class ShardState(str, Enum):
    """The state of a shard. A preempted or killed one is not a failed one."""

    WAITING = "waiting"  # an engine has it and has not begun it
    RUNNING = "running"
    DONE = "done"  # it has a result, and all of its trials ran
    FAILED = "benchmark failed"  # it has a result, which says what failed
    MACHINE = "machine failed"  # it could not be measured there; elsewhere it may
    PREEMPTED = "preempted"  # it began, and was ended from outside: preempted, killed, interrupted
    CANCELLED = "cancelled"
    UNKNOWN = "not begun"  # neither the files nor the engine know of it

    @property
    def has_result(self) -> bool:
        """True when there is something to collect."""
        return self in (ShardState.DONE, ShardState.FAILED)

    @property
    def is_open(self) -> bool:
        """True when an engine still works on it: it must not be submitted again."""
        return self in (ShardState.WAITING, ShardState.RUNNING)

    @property
    def is_bad(self) -> bool:
        """True when something has to be done about it: it failed, or nothing will run it."""
        return not self.is_open and self is not ShardState.DONE


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The part of a submission that is run in one piece: a method in an environment, in a round."""

    index: int  # from 0, without gaps
    method: str  # as the suite names it
    environment: str  # its name in the suite
    round: int = 1  # from 1; a later round repeats the same in another process, often elsewhere
    setting: Setting = ()
    node: str = ""  # the only one that may run it, as its engine names it; empty: any
    # Flags of `perfrun run`, without --workspace. A folder of `--python_path` that begins with
    # `code/` lies in the submission's folder.
    words: tuple[str, ...] = ()

    @property
    def setting_text(self) -> str:
        """The setting as people read it; empty without a sweep."""
        return setting_text(self.setting)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One submission. Its file is never changed: what happens to the shards lies beside it.

    `<workspace>/submissions/<id>/` has `plan.json`, `code/` (copies of the suite's own folders of
    code, so that later edits change no waiting shard) and `shards/<index>/`, whose files
    `perfrun.shards.places` names. The folder can be copied to another machine as it is.
    """

    submission: str  # its id, which is the execution label of its trials
    suite: str
    digest: str  # of the suite's text
    created: float  # seconds since the epoch
    engine: str  # of the first submission; the shards submitted again may go to another one
    options: Mapping[str, str] = field(default_factory=dict)  # of that engine, by flag
    shards: tuple[Shard, ...]
    store: str = ""  # of the suite: the index that gets the results; empty: the workspace's own
    folder: Path  # where the plan lies: not in the file

    @property
    def path(self) -> Path:
        """The file of the plan."""
        return self.folder / "plan.json"

    @property
    def workspace(self) -> Path:
        """The workspace into which the results are collected."""
        return self.folder.parent.parent

"""Lines about shards that have ended, while the command that runs them waits."""

from __future__ import annotations

from collections.abc import Sequence

from perfrun.reports.table import Column
from perfrun.shards.plan import Plan, Shard
from perfrun.shards.status import ShardStatus, by_files
from perfrun.shown import say


def shard_text(shard: Shard) -> str:
    """Return a shard in words: method, environment, setting, round."""
    parts = [shard.method, shard.setting_text, shard.environment]
    return f"{' '.join(part for part in parts if part)}, round {shard.round}"


SHARD_COLUMNS = (
    Column(heading="shard", right=True),
    Column(heading="method"),
    Column(heading="setting"),
    Column(heading="environment"),
    Column(heading="round", right=True),
)


def shard_cells(shard: Shard) -> tuple[str, ...]:
    """Return the cells of a shard under `SHARD_COLUMNS`."""
    return (
        str(shard.index),
        shard.method,
        shard.setting_text,
        shard.environment,
        str(shard.round),
    )


def status_text(status: ShardStatus) -> str:
    """Return the state of a shard in words, with host and time where they are known."""
    seconds = "" if status.seconds is None else f", {status.seconds:.1f} s"
    host = f" on {status.host}" if status.host else ""
    reason = f": {status.reason}" if status.reason else ""
    return f"{status.state.value}{host}{seconds}{reason}"


class Teller:
    """Says of each shard how it ended."""

    def __init__(self, plan: Plan, indices: Sequence[int]) -> None:
        self._plan, self._total, self._ended = plan, len(indices), set[int]()

    def note(self, text: str) -> None:
        """Say something about the engine."""
        say(text)

    def ended(self, index: int) -> None:
        """Say how a shard has ended."""
        status = by_files(self._plan, self._plan.shards[index])
        if status.state.has_result:
            self._ended.add(index)
        done = f"[{len(self._ended)}/{self._total}]"
        say(f"{done} {shard_text(status.shard)}: {status_text(status)}")

"""The state of each shard, by its files first and by what its engine says."""

from __future__ import annotations

from dataclasses import dataclass

from perfrun.shards.places import Attempt, How, ShardPlace
from perfrun.shards.plan import Plan, Shard, ShardState

_STATES = {
    How.RAN: ShardState.DONE,
    How.FAILED: ShardState.FAILED,
    How.MACHINE: ShardState.MACHINE,
    How.INTERRUPTED: ShardState.PREEMPTED,
}


@dataclass(frozen=True, kw_only=True)
class ShardStatus:
    """A shard and what is known of it."""

    shard: Shard
    state: ShardState
    attempts: tuple[Attempt, ...] = ()

    @property
    def last(self) -> Attempt | None:
        """The attempt that counts, or else the last one."""
        return self.attempts[-1] if self.attempts else None

    @property
    def is_over(self) -> bool:
        """True when it need not be run: it has a result, or a process works on it."""
        return self.state.has_result or self.state is ShardState.RUNNING

    @property
    def host(self) -> str:
        """The host of the last attempt; empty when unknown."""
        return self.last.begun.host if self.last and self.last.begun else ""

    @property
    def reason(self) -> str:
        """The reason of a failure, in one line; empty without one."""
        return self.last.ended.reason if self.last and self.last.ended else ""

    @property
    def seconds(self) -> float | None:
        """The time that the last attempt took; None while it runs, or when it was killed."""
        last = self.last
        if last is None or last.begun is None or last.ended is None:
            return None
        return max(0.0, last.ended.ended - last.begun.begun)


def by_files(plan: Plan, shard: Shard) -> ShardStatus:
    """Return what the files of a shard say of it."""
    place = ShardPlace(plan, shard.index)
    attempts = place.attempts()
    counts = place.counted()
    if counts is not None and counts.ended is not None:
        others = tuple(one for one in attempts if one.number != counts.number)
        state = _STATES[counts.ended.how]
        return ShardStatus(shard=shard, state=state, attempts=(*others, counts))
    if place.is_held():
        state = ShardState.RUNNING
    elif not attempts:
        state = ShardState.UNKNOWN
    else:
        ended = attempts[-1].ended
        # An end that made no result was withdrawn, or killed just before it could.
        how = How.INTERRUPTED if ended is None else ended.how
        state = ShardState.UNKNOWN if how in (How.RAN, How.FAILED) else _STATES[how]
    return ShardStatus(shard=shard, state=state, attempts=attempts)


def merged(status: ShardStatus, said: ShardState | None) -> ShardStatus:
    """Return the status with what the engine says of the shard.

    A result outweighs everything. What goes on outweighs how an earlier attempt ended. Else the
    files know better, except of a cancellation, which they can only take for a kill.
    """
    if status.state.has_result or said is None or said.has_result:
        return status
    if said.is_open or status.state is ShardState.UNKNOWN:
        return ShardStatus(shard=status.shard, state=said, attempts=status.attempts)
    if status.state is ShardState.PREEMPTED and said in (
        ShardState.CANCELLED,
        ShardState.MACHINE,
    ):
        return ShardStatus(shard=status.shard, state=said, attempts=status.attempts)
    return status


def statuses(plan: Plan) -> tuple[ShardStatus, ...]:
    """Return what the files say of every shard."""
    return tuple(by_files(plan, shard) for shard in plan.shards)

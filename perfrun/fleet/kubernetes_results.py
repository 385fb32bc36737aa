"""Take the results that wait in pods without a volume, and note why pods failed.

A pod whose result waits is `Ready` (`perfrun.fleet.keeping`). Its results come as a stream of tar
by a command in the pod, are checked like those of a host of `ssh`, and are on this disk before the
pod hears so and ends. A pod that is evicted or killed before that makes its Job run the index
again: a Job counts an index as done only when its result is here. So nothing comes twice, and what
is lost with a node is measured again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

from perfrun.durable import sync_names
from perfrun.errors import PerfrunError, WorkspaceError
from perfrun.fleet.keeping import ACKNOWLEDGED
from perfrun.fleet.kubernetes_client import Client, Pod
from perfrun.fleet.kubernetes_job import CONTAINER, folder_in_pod
from perfrun.fleet.transfer import Limits, receive_results, with_result
from perfrun.shards.places import Ended, How, ShardPlace
from perfrun.shards.plan import Plan
from perfrun.shown import line
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import remove_tree

_RELEASED = "released"  # in the folder of a shard: no pod keeps a result of it
_RESULTS_S = 3600.0  # for results; large ones get more
_LEAST_BYTES_S = 4 * 2**20
_MARK_S = 60.0
_LONGEST_REASON = 500
_GONE = "which went with the pod"


@dataclass(frozen=True, kw_only=True)
class ShardPod:
    """A pod, the shard that it runs, and the most that its results may have."""

    shard: int
    pod: Pod
    limits: Limits


def to_release(plan: Plan, indices: Sequence[int]) -> set[int]:
    """Return the shards of which a pod may keep a result."""
    return {at for at in indices if not (ShardPlace(plan, at).folder / _RELEASED).exists()}


def note_submitted(plan: Plan, indices: Sequence[int]) -> None:
    """Take note that pods of these shards are about to be made. Raises WorkspaceError."""
    for index in indices:
        try:
            (ShardPlace(plan, index).folder / _RELEASED).unlink(missing_ok=True)
        except OSError as error:
            raise WorkspaceError(f"{plan.folder}: cannot be written: {error.strerror}") from None


def note_released(plan: Plan, indices: Sequence[int]) -> None:
    """Take note that no pod of these shards keeps a result. Raises WorkspaceError."""
    for index in indices:
        place = ShardPlace(plan, index)
        place.make()
        try:
            write_whole(place.folder / _RELEASED, "")
        except OSError as error:
            raise WorkspaceError(f"{place.folder}: cannot be written: {error.strerror}") from None


def take(plan: Plan, client: Client, pods: Sequence[ShardPod], say: Callable[[str], None]) -> None:
    """Bring what waits in these pods into attempts of their own; say what cannot be brought.

    Raises WorkspaceError where it cannot be written down why a pod failed.
    """
    for one in pods:
        if one.pod.status.phase == "Failed":
            _note_failure(plan, one)
        elif one.pod.is_ready:
            try:
                _take_one(plan, client, one)
            except WorkspaceError as error:
                why = line(str(error), _LONGEST_REASON)
                say(f"shard {one.shard}: pod {one.pod.metadata.name} keeps its result: {why}")


def _take_one(plan: Plan, client: Client, one: ShardPod) -> None:
    place = ShardPlace(plan, one.shard)
    place.make()
    name, folder = one.pod.metadata.name, folder_in_pod(plan)
    words = ["perfrun", "shard", folder, str(one.shard)]
    with place.held() as free:
        if not free:
            return  # another perfrun takes it
        place.settle()
        if place.counted() is not None or _has_attempt(place, name, is_over=True):
            # It may be gone by now, and if it is not, the next look finds it again.
            with (
                contextlib.suppress(WorkspaceError),
                client.command(name, CONTAINER, [*words, "--taken"], _MARK_S) as command,
            ):
                command.end(b"")
            return
        attempt = place.claim(name, one.pod.spec.nodeName or name)
        sent = [*words, "--send", "--acknowledged", *one.limits.words]
        most_s = _RESULTS_S + one.limits.results / _LEAST_BYTES_S
        is_kept = False
        try:
            with client.command(name, CONTAINER, sent, most_s) as command:
                try:
                    received = receive_results(attempt, cast("BinaryIO", command), one.limits)
                except PerfrunError as error:
                    raise WorkspaceError(command.reason() or str(error)) from None
                began = attempt.begun.begun if attempt.begun else time.time()
                ended = with_result(attempt, received, began + received.seconds, _GONE)
                if isinstance(ended, str):
                    ended = Ended(how=How.MACHINE, ended=time.time(), reason=ended)
                place.end(attempt, ended)
                is_kept = True
                sync_names(place.folder)
                command.end(ACKNOWLEDGED)
        finally:
            if not is_kept:  # the attempt is in the pod, and still there
                remove_tree(attempt.folder)


def _note_failure(plan: Plan, one: ShardPod) -> None:
    """Write down why a pod failed, once, as an attempt without a result."""
    place = ShardPlace(plan, one.shard)
    name = one.pod.metadata.name
    if place.counted() is not None or _has_attempt(place, name):
        return
    place.make()
    with place.held() as free:
        if free and not _has_attempt(place, name):  # nor has another perfrun noted it meanwhile
            attempt = place.claim(name, one.pod.spec.nodeName or name)
            how = How.INTERRUPTED if one.pod.was_disrupted else How.MACHINE
            reason = line(one.pod.failure, _LONGEST_REASON)
            place.end(attempt, Ended(how=how, ended=time.time(), reason=reason))


def _has_attempt(place: ShardPlace, pod: str, *, is_over: bool = False) -> bool:
    """Return True when an attempt came from this pod: its result was taken, or why it failed."""
    own = (one for one in place.attempts() if one.begun and one.begun.job == pod)
    return any(one.ended is not None or not is_over for one in own)

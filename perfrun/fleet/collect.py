"""Collect the results of shards into the workspace: once each, however often it is tried.

The folder of a trial moves by a rename from its attempt into `<workspace>/output`, as it is:
nothing in it is opened but the summary, which must be the one that the attempt's end names. So a
collection that was killed is simply done again, and what came in by another way, by hand for
example, is known by the SHA-256 of its summary. Names that two machines gave are told apart by it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfrun.durable import make_folder, sync_names
from perfrun.errors import PerfrunError, WorkspaceError
from perfrun.fleet.places import Attempt, ShardPlace
from perfrun.fleet.shards import Plan
from perfrun.locks import FileLock
from perfrun.options.store_address import Address
from perfrun.run.digest import sha256_of
from perfrun.summary.record import SUMMARY, BadSummary, read_content
from perfrun.summary.result_folder import write_whole

_COLLECTED = "collected"  # in an attempt: its trials are in the workspace, or were
_LOCK = ".collect.lock"  # of a workspace's submissions


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The result of a collection."""

    new: tuple[Path, ...] = ()  # summaries that were brought into the workspace
    known: int = 0  # trials that were there already
    problems: tuple[str, ...] = ()  # trials that could not be used


def collect(plan: Plan, indices: Sequence[int], notify: Callable[[str], None]) -> Collected:
    """Bring the results of these shards into the workspace. Raises WorkspaceError."""
    output = plan.workspace / "output"
    new: list[Path] = []
    known, problems = 0, []
    try:
        for above in make_folder(output):
            sync_names(above)
        with FileLock(plan.folder.parent / _LOCK) as lock:
            lock.own(lambda: notify("waiting for another perfrun that collects results"))
            for index in indices:
                attempt = ShardPlace(plan, index).counted()
                if attempt is None or (attempt.folder / _COLLECTED).exists():
                    continue
                bad = 0
                for name, digest in attempt.ended.trials if attempt.ended else ():
                    try:
                        target = _bring(attempt, name, digest, output)
                    except _Unusable as error:
                        problems.append(f"shard {index}, {name}: {error}")
                        bad += 1
                        continue
                    new += [target] if target else []
                    known += target is None
                sync_names(output)
                if not bad:
                    write_whole(attempt.folder / _COLLECTED, "")
    except OSError as error:
        place = error.filename or output
        raise WorkspaceError(f"{place}: {error.strerror or error}; collect again later") from None
    return Collected(new=tuple(new), known=known, problems=tuple(problems))


class _Unusable(ValueError):  # noqa: N818 - it is a finding about a file
    """A trial that cannot be collected; the text says why."""


def _bring(attempt: Attempt, name: str, digest: str, output: Path) -> Path | None:
    """Move a trial's folder into the workspace; None when the same result is there already."""
    if name in (".", "..") or "/" in name:
        raise _Unusable("is no name of a folder")
    targets = (output / name, output / f"{name}-{digest[:12]}")
    if any(_digest(target) == digest for target in targets):
        return None
    source = attempt.folder / "output" / name
    try:
        mode = source.lstat().st_mode
    except OSError:
        raise _Unusable("its folder is gone") from None
    if not stat.S_ISDIR(mode):
        raise _Unusable("is no folder")
    if _digest(source) != digest:
        raise _Unusable("its summary is not the one that was written")
    for target in targets:
        if os.path.lexists(target):
            continue
        source.rename(target)
        return target / SUMMARY
    raise _Unusable(f"{targets[-1]} is in the way")


def collected_summary(plan: Plan, attempt: Attempt, name: str, digest: str) -> Path | None:
    """Return the summary of a trial of an attempt: where it was brought, or where it still is."""
    output = plan.workspace / "output"
    places = (output / name, output / f"{name}-{digest[:12]}", attempt.folder / "output" / name)
    return next((place / SUMMARY for place in places if _digest(place) == digest), None)


def _digest(folder: Path) -> str | None:
    try:
        return sha256_of(read_content(folder / SUMMARY))
    except (OSError, BadSummary):
        return None


def add_to_index(address: Address, collected: Collected, notify: Callable[[str], None]) -> None:
    """Add what was collected to an index; a failure is only said: the summaries are in place.

    The workspace's own index is left alone where there is none: commands make it when they need it.
    """
    if not collected.new or (address.workspace and address.file and not address.file.exists()):
        return
    from perfrun.store.index import open_store

    try:
        with open_store(address) as store:
            store.add(collected.new)
    except PerfrunError as error:
        notify(f"not indexed yet ({error}); `perfrun index` adds them later")

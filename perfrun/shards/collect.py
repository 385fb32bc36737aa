"""Collect the results of shards into the workspace: once each, however often it is tried.

The folder of a trial moves by a rename from its attempt into `<workspace>/output`, as it is:
nothing in it is opened but the summary, which must be the one that the attempt's end names. So a
collection that was killed is simply done again, and what came in by another way, by hand for
example, is known by the SHA-256 of its summary. Names that two machines gave are told apart by it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfrun.durable import make_folder, sync_names
from perfrun.errors import PerfrunError, WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.store_address import Address
from perfrun.run.digest import sha256_of
from perfrun.shards.places import Attempt, ShardPlace
from perfrun.shards.plan import Plan
from perfrun.summary.record import SUMMARY, BadSummary, read_content
from perfrun.summary.result_folder import write_whole

# In an attempt: its trials are in the workspace, or were; and the index has been told of them.
_COLLECTED, _INDEXED = "collected", "indexed"
_LOCK = ".collect.lock"  # of a workspace's submissions


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The result of a collection."""

    new: tuple[Path, ...] = ()  # summaries that were brought into the workspace
    known: int = 0  # trials that were there already
    problems: tuple[str, ...] = ()  # trials that could not be used
    # Summaries in the workspace of which no index has been told, as far as the attempts say that;
    # and the attempts that are wholly in it once these are.
    to_index: tuple[Path, ...] = ()
    to_mark: tuple[Path, ...] = ()


def collect(plan: Plan, indices: Sequence[int], notify: Callable[[str], None]) -> Collected:
    """Bring the results of these shards into the workspace. Raises WorkspaceError."""
    output = plan.workspace / "output"
    new: list[Path] = []
    to_index: list[Path] = []
    to_mark: list[Path] = []
    known, problems = 0, []
    try:
        for above in make_folder(output):
            sync_names(above)
        with FileLock(plan.folder.parent / _LOCK) as lock:
            lock.own(lambda: notify("waiting for another perfrun that collects results"))
            for index in indices:
                attempt = ShardPlace(plan, index).counted()
                if attempt is None or (attempt.folder / _INDEXED).exists():
                    continue
                trials = attempt.ended.trials if attempt.ended else ()
                is_whole = True
                if not (attempt.folder / _COLLECTED).exists():
                    for name, digest in trials:
                        try:
                            target = _bring(attempt, name, digest, output)
                        except _Unusable as error:
                            problems.append(f"shard {index}, {name}: {error}")
                            is_whole = False
                            continue
                        new += [target] if target else []
                        known += target is None
                    sync_names(output)
                    if is_whole:
                        write_whole(attempt.folder / _COLLECTED, "")
                places = (_brought(output, name, digest) for name, digest in trials)
                to_index += [place / SUMMARY for place in places if place is not None]
                to_mark += [attempt.folder] if is_whole else []
    except OSError as error:
        place = error.filename or output
        raise WorkspaceError(f"{place}: {error.strerror or error}; collect again later") from None
    return Collected(
        new=tuple(new),
        known=known,
        problems=tuple(problems),
        to_index=tuple(to_index),
        to_mark=tuple(to_mark),
    )


def is_collected(attempt: Attempt) -> bool:
    """Return True when all trials of an attempt are in the workspace, or were, and indexed."""
    return (attempt.folder / _INDEXED).exists()


class _Unusable(ValueError):  # noqa: N818 - it is a finding about a file
    """A trial that cannot be collected; the text says why."""


def _bring(attempt: Attempt, name: str, digest: str, output: Path) -> Path | None:
    """Move a trial's folder into the workspace; None when the same result is there already."""
    if not _is_name(name):
        raise _Unusable("is no name of a folder")
    if _brought(output, name, digest) is not None:
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
    targets = _targets(output, name, digest)
    for target in targets:
        if os.path.lexists(target):
            continue
        source.rename(target)
        return target / SUMMARY
    raise _Unusable(f"{targets[-1]} is in the way")


def collected_summary(plan: Plan, attempt: Attempt, name: str, digest: str) -> Path | None:
    """Return the summary of a trial of an attempt: where it was brought, or where it still is."""
    place = _brought(plan.workspace / "output", name, digest)
    if place is None and _digest(attempt.folder / "output" / name) == digest:
        place = attempt.folder / "output" / name
    return None if place is None else place / SUMMARY


def _targets(output: Path, name: str, digest: str) -> tuple[Path, Path]:
    """Return the folders in the workspace that a trial may have."""
    return output / name, output / f"{name}-{digest[:12]}"


def _brought(output: Path, name: str, digest: str) -> Path | None:
    """Return the folder of a trial that is in the workspace."""
    if not _is_name(name):
        return None
    return next((one for one in _targets(output, name, digest) if _digest(one) == digest), None)


def _is_name(name: str) -> bool:
    return name not in (".", "..") and "/" not in name


def _digest(folder: Path) -> str | None:
    try:
        return sha256_of(read_content(folder / SUMMARY))
    except (OSError, BadSummary):
        return None


def add_to_index(address: Address, collected: Collected, notify: Callable[[str], None]) -> None:
    """Tell an index what was collected; a failure is only said: the summaries are in place.

    What it could not be told, as it failed or this process was killed, it is told the next time.
    The workspace's own index is left alone where there is none: commands make it when they need it.
    """
    is_absent = address.workspace and address.file and not address.file.exists()
    if collected.to_index and not is_absent:
        from perfrun.store.index import open_store

        try:
            with open_store(address) as store:
                store.add(collected.to_index)
        except PerfrunError as error:
            named = "" if address.workspace else f" --store={address.shown}"
            notify(
                f"not indexed yet ({error}); `perfrun fleet` or `perfrun index{named}` adds them"
            )
            return
    with contextlib.suppress(OSError):  # then they are added again, and are there once
        for folder in collected.to_mark:
            write_whole(folder / _INDEXED, "")

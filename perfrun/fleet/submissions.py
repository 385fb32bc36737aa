"""The submissions of a workspace: find one, ask how it stands, bring in its results."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from perfrun.durable import sync_names
from perfrun.errors import UsageError, WorkspaceError
from perfrun.fleet.engines import Engine, Gathering, engine_named
from perfrun.options.parsers import parse_workspace, shown
from perfrun.options.store_address import parse_address
from perfrun.shards.collect import Collected, add_to_index, collect
from perfrun.shards.places import HOSTS, engine_folder
from perfrun.shards.plan import FOLDER, Plan, ShardState
from perfrun.shards.plan_file import FILE, plan_files, read_plan
from perfrun.shards.status import ShardStatus, merged, statuses
from perfrun.shown import line, say
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import Folder, Refused, remove_tree

_USED = "used"  # beside what the engines remember: their names, one a line
_LARGEST_USED = 4096


def missing_of(found: Sequence[ShardStatus]) -> list[int]:
    """Return the shards that have no result, and on which nothing works."""
    return [
        status.shard.index
        for status in found
        if not status.state.has_result and not status.state.is_open
    ]


def look(plan: Plan, engines: Sequence[Engine]) -> tuple[ShardStatus, ...]:
    """Return the status of all shards; engines are asked about those without a result only.

    Results that wait at an engine's places are brought here before. What one engine still has, it
    has, whatever another one says. Raises PerfrunError.
    """
    for engine in engines:
        if isinstance(engine, Gathering):
            engine.gather(plan)
    by_files = statuses(plan)
    left = [one.shard.index for one in by_files if not one.state.has_result]
    said: dict[int, ShardState] = {}
    for engine in engines:
        known = engine.states(plan, left) if left and not engine.stays else {}
        said.update({at: state for at, state in known.items() if _outweighs(state, said.get(at))})
    return tuple(merged(one, said.get(one.shard.index)) for one in by_files)


def _outweighs(later: ShardState, earlier: ShardState | None) -> bool:
    if earlier is None or not earlier.is_open:
        return True
    return later is ShardState.RUNNING


def used_by(plan: Plan) -> tuple[str, ...]:
    """Return the names of the engines that may have shards: the plan's, and those of a resumption.

    Raises WorkspaceError for names that cannot be read: then nobody knows what waits somewhere.
    """
    path = plan.folder / "engine" / _USED
    try:
        with Folder(path.parent) as folder:
            names = folder.read(_USED, _LARGEST_USED).decode("ascii").split()
    except FileNotFoundError:
        names = []
    except (OSError, Refused, UnicodeDecodeError) as error:
        raise WorkspaceError(f"{path}: cannot be read: {line(str(error), 200)}") from None
    return tuple(dict.fromkeys((plan.engine, *names)))


def remember_engine(plan: Plan, name: str) -> None:
    """Write down that an engine is about to get shards. Hold the submission's lock.

    Raises WorkspaceError.
    """
    names = used_by(plan)
    if name in names:
        return
    try:
        folder = engine_folder(plan)
        sync_names(plan.folder)
        write_whole(folder / _USED, "".join(f"{one}\n" for one in (*names, name)))
        sync_names(folder)
    except OSError as error:
        raise WorkspaceError(f"{plan.folder}: cannot be written: {error.strerror}") from None


def engines_of(plan: Plan) -> tuple[Engine, ...]:
    """Return the engines that may have shards. Raises UsageError and WorkspaceError."""
    return tuple(map(engine_named, used_by(plan)))


def find_plan(workspace: Path, word: str) -> Plan:
    """Return a submission by id or folder, or the newest one by `last`. Raises UsageError."""
    if "/" in word:
        return read_plan(Path(word))
    folder = workspace / FOLDER
    if word != "last":
        if not os.path.isfile(folder / word / FILE):  # noqa: PTH113 - pathlib raises for a long name
            raise UsageError(
                f"{shown(word)}: there is no such submission in {folder}; `perfrun fleet` without "
                "a name shows the newest one"
            )
        return read_plan(folder / word)
    plans = plan_files(workspace)
    if not plans:
        raise UsageError(f"{folder}: there is no submission; `perfrun submit SUITE.toml` makes one")
    return read_plan(plans[0])


def name_of(plan: Plan) -> str:
    """Return the word by which commands find a submission from this folder: its id, or its path."""
    is_near = plan.workspace == parse_workspace(None)
    return plan.submission if is_near else shlex.quote(str(plan.folder))


def bring_in(plan: Plan, found: Sequence[ShardStatus], store: str | None) -> Collected:
    """Collect all results there are, and add them to the index. Raises WorkspaceError.

    That is `store`, or else the suite's when it was submitted, or else the workspace's own.
    """
    done = [status.shard.index for status in found if status.state.has_result]
    collected = collect(plan, done, say)
    for text in collected.problems:
        say(text)
    if len(done) == len(found):  # nothing of it will fetch a commit any more
        remove_tree(plan.folder / HOSTS)
    add_to_index(parse_address(store or plan.store, plan.workspace), collected, say)
    return collected

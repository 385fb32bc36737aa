"""Make the plan of a submission from a suite: its shards, the pinned commits, the copied code."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from perfrun.errors import UsageError, WorkspaceError
from perfrun.fleet.engines import Options
from perfrun.nightly.suite import Night, Suite, Unit, units, words
from perfrun.nodes.order import interleaved
from perfrun.options.plan import parse_repos
from perfrun.options.sweeps import Sweep, merged
from perfrun.shards.plan import FOLDER, Plan, Shard
from perfrun.shards.plan_file import MOST_SHARDS
from perfrun.workspace.remote import tip_of

_CODE = "code"  # of a submission
_MOST_CODE_FILES, _MOST_CODE_BYTES = 20_000, 256 * 2**20
_WORKSPACE = "--workspace="


def new_id(suite: Suite, now: float) -> str:
    """Return the id of a new submission."""
    return f"{suite.name}-{datetime.fromtimestamp(now):%Y-%m-%d}-{os.urandom(3).hex()}"


def with_sweep(suite: Suite, sweep: Sweep) -> Suite:
    """Return the suite with a sweep of the command line over its own. Raises UsageError.

    Names that only the command line has go to the methods that do not list theirs.
    """
    for name, _ in sweep:
        if all(one.sweep is not None and name not in one.sweep for one in suite.methods):
            raise UsageError(
                f"--sweep: no method of {suite.path} takes part in a sweep of {name}: each lists "
                "its own names in `sweep`"
            )
    return replace(suite, sweep=merged(suite.sweep, sweep))


def shards_of(
    suite: Suite,
    submission: str,
    *,
    rounds: int,
    pinned: Mapping[str, str],
    nodes: Sequence[str] = (),
) -> tuple[Shard, ...]:
    """Return all shards: rounds of settings of environments of methods. Raises UsageError.

    With `nodes`, each of them runs all of it, in an order of its own, with the suite's first canary
    in between.
    """
    night = Night(night=submission, pinned=dict(pinned))
    kinds = [replace(unit, methods=(method,)) for unit in units(suite) for method in unit.methods]
    count = rounds * len(kinds) * (2 * len(nodes) or 1)  # not more canaries than methods
    if count > MOST_SHARDS:
        raise UsageError(f"{suite.path}: {count:,} shards are too many; {MOST_SHARDS:,} at most")
    if nodes:
        order = _order_of_nodes(kinds, nodes, rounds, submission)
    else:
        order = [("", kind, number) for number in range(1, rounds + 1) for kind in kinds]
    found: list[Shard] = []
    for node, unit, number in order:
        found.append(
            Shard(
                index=len(found),
                method=unit.methods[0].selector.text,
                environment=unit.environment.name,
                round=number,
                setting=unit.setting,
                node=node,
                words=_words(suite, unit, night),
            )
        )
    return tuple(found)


def _order_of_nodes(
    kinds: Sequence[Unit], nodes: Sequence[str], rounds: int, submission: str
) -> list[tuple[str, Unit, int]]:
    """Return what each node runs, one node after the other, with the number of the round."""
    canary = next((at for at, unit in enumerate(kinds) if unit.methods[0].canary), None)
    plans = interleaved(
        nodes,
        [str(at) for at in range(len(kinds))],
        None if canary is None else str(canary),
        rounds=rounds,
        seed=zlib.crc32(submission.encode()),
    )
    return [(node, kinds[int(step.method)], step.round) for node in nodes for step in plans[node]]


def _words(suite: Suite, unit: Unit, night: Night) -> tuple[str, ...]:
    """Return the words of a unit's run, without the workspace, which is the attempt's own."""
    given = words(suite, unit, night)
    at = next(place for place, word in enumerate(given) if word.startswith(_WORKSPACE))
    return (*given[:at], *given[at + 1 :])


def make_plan(
    suite: Suite,
    now: float,
    *,
    rounds: int,
    engine: str,
    options: Options,
    notify: Callable[[str], None],
    nodes: Sequence[str] = (),
) -> Plan:
    """Return the plan of a new submission; its folder is not made. Branches are looked up.

    Every shard has the commit that a branch has now. Raises UsageError and WorkspaceError.
    """
    submission = new_id(suite, now)
    folder = Path(os.path.abspath(suite.workspace)) / FOLDER / submission  # noqa: PTH100
    pinned = pins(suite, notify)
    moved, _ = _with_copies(suite)
    shards = shards_of(moved, submission, rounds=rounds, pinned=pinned, nodes=nodes)
    return Plan(
        submission=submission,
        suite=suite.name,
        digest=suite.digest,
        created=now,
        engine=engine,
        options=dict(options),
        shards=shards,
        folder=folder,
    )


def pins(suite: Suite, notify: Callable[[str], None]) -> dict[str, str]:
    """Return the commit of each repository that the suite does not pin. Raises WorkspaceError."""
    found = {}
    for pin in suite.repos:
        (repo,) = parse_repos(pin.item())
        if repo.git_hash is None:
            found[pin.directory] = tip_of(repo)
            notify(f"{repo.shown_url}: every shard has commit {found[pin.directory][:12]}")
    return found


def copy_code(suite: Suite, folder: Path) -> None:
    """Copy the suite's own folders of code into a submission. Raises UsageError, WorkspaceError."""
    _, sources = _with_copies(suite)
    counted = [0, 0]
    inside = os.path.realpath(suite.workspace)

    def left_out(place: str, names: list[str]) -> list[str]:
        return [
            name
            for name in names
            if name == "__pycache__"
            or (name.startswith(".") and os.path.isdir(f"{place}/{name}"))  # noqa: PTH112
            or os.path.realpath(f"{place}/{name}") == inside
            or _is_workspace(f"{place}/{name}")
            or not os.path.exists(f"{place}/{name}")  # noqa: PTH110 - a link of an editor, which locks
        ]

    def copy(source: str, target: str) -> str:
        counted[0] += 1
        counted[1] += os.stat(source).st_size  # noqa: PTH116
        if counted[0] > _MOST_CODE_FILES or counted[1] > _MOST_CODE_BYTES:
            raise UsageError(
                f"{suite.path}: python_path: its folders have more than {_MOST_CODE_FILES:,} files "
                f"or {_MOST_CODE_BYTES // 2**20} MiB, too much to copy for every shard; name a "
                "smaller folder, or a git repository in [[repos]]"
            )
        return str(shutil.copyfile(source, target))

    for number, source in enumerate(sources):
        target = folder / _CODE / str(number)
        try:
            shutil.copytree(source, target, ignore=left_out, copy_function=copy)
        except (OSError, shutil.Error) as error:
            raise WorkspaceError(f"{source}: cannot be copied to {target}: {error}") from None


def _is_workspace(folder: str) -> bool:
    """Return True for a folder with results: another suite's workspace, beside its code."""
    return os.path.isdir(f"{folder}/output") and any(  # noqa: PTH112
        os.path.isdir(f"{folder}/{name}")  # noqa: PTH112
        for name in ("runs", FOLDER)
    )


def _with_copies(suite: Suite) -> tuple[Suite, Sequence[str]]:
    """Return the suite with the folders of its code in the submission, and where they are now."""
    flags = dict(suite.flags)
    items: list[str] = []
    sources: list[str] = []
    for item in filter(None, flags.get("python_path", "").split(",")):
        if os.path.isabs(item):  # noqa: PTH117
            if not os.path.isdir(item):  # noqa: PTH112
                raise UsageError(f"{suite.path}: python_path: {item} is not a folder")
            items.append(f"{_CODE}/{len(sources)}")
            sources.append(item)
        else:
            items.append(item)
    if not items:
        return suite, sources
    flags["python_path"] = ",".join(items)
    return replace(suite, flags=tuple(flags.items())), sources

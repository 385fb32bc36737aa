"""`perfrun prune`: remove results by policy; never a change's neighbours or an unfinished run's.

Take folders of results away, so that a kill at any moment leaves no half of one.

The trials that `ab`, `confirm` and `bisect` have left in a workspace, as what they belong to.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from perfrun.changes.detect import find_changes, watch_series
from perfrun.changes.search_log import LOCK_NAME, LOG_NAME, has_ended
from perfrun.errors import UsageError
from perfrun.locks import FileLock
from perfrun.nightly.night import Nights
from perfrun.nightly.retention import PairSet, Policy, pairs_to_be_removed, parse_age, to_be_removed
from perfrun.options.store_address import parse_address
from perfrun.options.values import CommandParser, parse_whole, parse_workspace
from perfrun.run.journal import Journal, folders_of, going_on
from perfrun.store.index import Store, open_store
from perfrun.summary.record import SUMMARY, SummaryRecord, read_record

_ASIDE = ".pruned"


def remove(workspace: Path, folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Move each aside and remove it there. Which are gone, and why others are not."""
    aside = workspace / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)  # what a killed prune left
    removed, failures = [], []
    for folder in folders:
        try:
            aside.mkdir(exist_ok=True)
            folder.replace(aside / folder.name)
        except OSError as error:
            failures.append(f"{folder}: {error.strerror or error}")
            continue
        shutil.rmtree(aside / folder.name, ignore_errors=True)
        removed.append(folder)
    with suppress(OSError):
        aside.rmdir()
    return removed, failures


def bytes_in(folder: Path) -> int:
    """How much its files hold; what goes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def pair_sets(workspace: Path) -> list[PairSet]:
    """Return each set of pairs, and each search as a whole.

    What was interrupted, or is going on, has its record with it. What is linked or cannot be read
    is not there.
    """
    return [*_of_sides(workspace / "ab"), *_searches(workspace / "bisect")]


def _of_sides(pairs: Path) -> Iterator[PairSet]:
    """The trials of each run of a side; both sides of pairs are of the same hour."""
    for side in ("a", "b"):
        resumable = going_on(pairs / side / "runs")
        runs: dict[tuple[str, str], list[SummaryRecord]] = defaultdict(list)
        begun: dict[str, list[SummaryRecord]] = {run_id: [] for run_id in sorted(resumable)}
        for trial in _trials_below(pairs / side / "output"):
            if trial.run_id in resumable:
                begun[trial.run_id].append(trial)
            elif trial.run_id:
                runs[trial.run_id, trial.method].append(trial)
        for (_, method), trials in runs.items():
            yield PairSet(
                kind=f"ab/{side}",
                methods=(method,),
                newest=max(trial.timestamp for trial in trials),
                folders=tuple(sorted(trial.path.parent for trial in trials)),
                trials=len(trials),
            )
        for run_id, trials in begun.items():
            journal = pairs / side / "runs" / f"{run_id}.jsonl"
            yield from _interrupted(f"ab/{side}", journal, pairs / side / "output", trials)


def _interrupted(
    kind: str, journal: Path, output: Path, trials: Sequence[SummaryRecord]
) -> Iterator[PairSet]:
    """A run that did not come to its end, with the trials that have no summary."""
    folders = {trial.path.parent for trial in trials}
    for folder in folders_of(journal):
        here = output / folder.name  # a workspace that was moved still says where it was
        if here.is_dir() and not here.is_symlink():
            folders.add(here)
    if folders:
        yield PairSet(
            kind=kind,
            methods=tuple(sorted({trial.method for trial in trials})),
            newest=_newest(trials, journal),
            folders=tuple(sorted(folders)),
            trials=len(trials),
            unfinished=journal,
        )


def _searches(searches: Path) -> Iterator[PairSet]:
    """Searches go as a whole: each has checkouts of its own."""
    for log in sorted(searches.glob(f"*/{LOG_NAME}")):
        folder = log.parent
        trials = [trial for side in "ab" for trial in _trials_below(folder / side / "output")]
        ended = has_ended(log)
        if folder.is_symlink() or (ended and not trials):
            continue
        yield PairSet(
            kind="bisect",
            methods=tuple(sorted({trial.method for trial in trials})),
            newest=_newest(trials, log),
            folders=(folder,),
            trials=len(trials),
            unfinished=None if ended else log,
        )


def _newest(trials: Sequence[SummaryRecord], record: Path) -> float:
    """When the newest was run; before any, when the record was written last."""
    if trials:
        return max(trial.timestamp for trial in trials)
    try:
        return record.stat().st_mtime
    except OSError:
        return time.time()  # removed since


def _trials_below(output: Path) -> Iterator[SummaryRecord]:
    for path in sorted(output.glob(f"*/{SUMMARY}")):
        if path.parent.is_symlink():
            continue
        try:
            yield read_record(path)
        except (OSError, ValueError):
            continue


_EPILOG = """\
A trial is removed when every policy that is given lets it go. Trials next to a change of level, and
what is running, always stay; what was interrupted stays for --resume, unless
--unfinished_older_than lets it go. Pairs of ab, detect --confirm and bisect go as a whole. All of
it is in docs/nightly.md.
"""
_MOST_LOCKS = 200  # far below the 1,024 files that a process may usually have open


def parser() -> CommandParser:
    """The flags of `perfrun prune`."""
    made = CommandParser("perfrun prune", "Remove the folders of old trials.", _EPILOG)
    made.add_workspace()
    made.flag("--keep_nights", "N", "keep the last N nights that had any", parse_whole)
    made.flag("--keep_per_series", "N", "keep the newest N of each series", parse_whole)
    made.flag("--older_than", "AGE", "keep what is younger (90d, 12w, 48h)", parse_age)
    text = "what was interrupted so long ago counts as ended (default: keep it for --resume)"
    made.flag("--unfinished_older_than", "AGE", text, parse_age)
    made.switch("--dry_run", "only show what would be removed")
    made.add_format()
    return made


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What was removed, or would be."""

    removed: tuple[Path, ...]  # folders
    trials: int  # of the history, in them
    pair_trials: int  # of `ab`, `confirm` and `bisect`, in them
    bytes: int
    kept: int  # of the history
    neighbours: int  # kept for being next to a change
    failures: tuple[str, ...] = ()


def prune_command(argv: Sequence[str]) -> int:
    """Carry out `perfrun prune`: 1 when something could not be removed."""
    given = parser().parse_args(list(argv))
    policy = Policy(
        keep_nights=given.keep_nights,
        keep_per_series=given.keep_per_series,
        older_than_s=given.older_than,
        unfinished_older_than_s=given.unfinished_older_than,
    )
    if policy.is_empty:
        raise UsageError(
            "say what to keep: --keep_nights, --keep_per_series, --older_than or "
            "--unfinished_older_than"
        )
    workspace = parse_workspace(given.workspace)
    if not workspace.is_dir():
        raise UsageError(f"--workspace={workspace}: there is no such folder")
    done = prune(workspace, policy, dry_run=given.dry_run)
    if given.format == "json":
        sys.stdout.write(json.dumps(_document(done, dry_run=given.dry_run)) + "\n")
    else:
        _show(done, dry_run=given.dry_run)
    return 1 if done.failures else 0


def prune(workspace: Path, policy: Policy, *, dry_run: bool = False) -> Pruned:
    """Remove what the policy lets go, and take it out of the workspace's index."""
    now = time.time()
    with open_store(parse_address(None, workspace)) as store, _Locks() as locks:
        store.refresh()
        trials, over = _trials(store, workspace)
        neighbours = _neighbours(store)
        begun = going_on(workspace / "runs") - over
        given_up = _given_up(workspace, trials, begun, policy, now, locks)
        chosen = to_be_removed(
            trials, policy, now=now, neighbours=neighbours, unfinished=begun - given_up
        )
        pairs = [
            one
            for one in pairs_to_be_removed(pair_sets(workspace), trials, policy, now=now)
            if one.unfinished is None or _is_idle(one.unfinished, locks)
        ]
        removed = [trial.path.parent for trial in chosen]
        removed += [folder for one in pairs for folder in one.folders]
        size, failures = sum(map(bytes_in, removed)), list[str]()
        if not dry_run:
            removed, failures = remove(workspace, removed)
            _end(chosen, given_up, workspace)
            _end_pairs(pairs, removed)
            store.refresh()
    gone = set(removed)
    return Pruned(
        removed=tuple(removed),
        trials=sum(trial.path.parent in gone for trial in chosen),
        pair_trials=sum(one.trials for one in pairs if gone.issuperset(one.folders)),
        bytes=size,
        kept=sum(trial.path.parent not in gone for trial in trials),
        neighbours=sum(trial.execution_id in neighbours for trial in trials),
        failures=tuple(failures),
    )


def _given_up(
    workspace: Path,
    trials: Sequence[SummaryRecord],
    begun: Collection[str],
    policy: Policy,
    now: float,
    locks: _Locks,
) -> set[str]:
    """The runs that were interrupted so long ago that nobody will resume them."""
    newest: dict[str, float] = {}
    for trial in trials:
        if trial.run_id in begun:
            newest[trial.run_id] = max(trial.timestamp, newest.get(trial.run_id, 0.0))
    return {
        run_id
        for run_id, time_s in newest.items()
        if policy.gives_up(time_s, now) and _is_idle(_journal(workspace, run_id), locks)
    }


class _Locks(ExitStack):
    """Locks that are held until what they guard is gone. Each takes a file descriptor."""

    room = _MOST_LOCKS


def _is_idle(record: Path, locks: _Locks) -> bool:
    """Whether no perfrun is at what was begun; then none can resume it until `locks` are left.

    Beyond as many as can be locked at once nothing counts as idle: the next prune takes those.
    """
    if not locks.room:
        return False
    locks.room -= 1
    if record.name == LOG_NAME:
        return locks.enter_context(FileLock(record.parent / LOCK_NAME)).try_own()
    return locks.enter_context(Journal(record).held())


def _end(chosen: Sequence[SummaryRecord], given_up: Collection[str], workspace: Path) -> None:
    """What has lost trials cannot be resumed."""
    for run_id in {trial.run_id for trial in chosen} & set(given_up):
        Journal(_journal(workspace, run_id)).end()


def _end_pairs(pairs: Sequence[PairSet], removed: Collection[Path]) -> None:
    """Searches are gone with their records."""
    gone = set(removed)
    for one in pairs:
        if one.unfinished and one.unfinished.name != LOG_NAME and not gone.isdisjoint(one.folders):
            Journal(one.unfinished).end()


def _journal(workspace: Path, run_id: str) -> Path:
    return workspace / "runs" / f"{run_id}.jsonl"


def _trials(store: Store, workspace: Path) -> tuple[list[SummaryRecord], set[str]]:
    """The trials whose folders are the workspace's own: what is linked or elsewhere is not ours.

    And the runs of nights that are over: one that a deadline cut short is not resumed.
    """
    output = (workspace / "output").resolve()
    nights = Nights(workspace).over()
    found: list[SummaryRecord] = []
    over: set[str] = set()
    for trial in store.trials():
        if trial.label in nights:
            over.add(trial.run_id)
        folder = trial.path.parent
        if folder.parent.resolve() == output and folder.is_dir() and not folder.is_symlink():
            found.append(trial)
    return found, over


def _neighbours(store: Store) -> set[str]:
    try:
        watched, left_out = watch_series(store.series(which="primary"))
    except UsageError:  # no trial has a figure
        return set()
    changes = find_changes(watched, left_out).rows
    return {one for row in changes for one in (row.before_execution_id, row.after_execution_id)}


def _document(done: Pruned, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "removed": [str(folder) for folder in done.removed],
        "trials": done.trials,
        "pair_trials": done.pair_trials,
        "bytes": done.bytes,
        "kept": done.kept,
        "neighbours_of_changes": done.neighbours,
        "failures": list(done.failures),
    }


def _show(done: Pruned, *, dry_run: bool) -> None:
    for folder in done.removed:
        sys.stdout.write(f"{folder}\n")
    what = "would be removed" if dry_run else "removed"
    sys.stdout.write(
        f"{removed_text(done)} {what} ({done.bytes / 2**20:.1f} MiB), {done.kept} kept, "
        f"{done.neighbours} of them next to a change of level\n"
    )
    for text in done.failures:
        sys.stderr.write(f"perfrun: {text}\n")


def removed_text(done: Pruned) -> str:
    """How many, as a person says it."""
    pairs = f" and {done.pair_trials} of pairs" if done.pair_trials else ""
    return f"{done.trials} trial{'' if done.trials == 1 else 's'}{pairs}"

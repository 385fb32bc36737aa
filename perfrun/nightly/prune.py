"""`perfrun prune`: remove old results, except the neighbours of changes and what is running.

A kill at any moment leaves each folder of results whole or gone. Pairs of `ab` and `confirm`, turns
of `explain`, searches of `bisect`, what `replay` has run and unpacked, and submissions are removed
as a whole.
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from perfrun.changes.detect import find_changes
from perfrun.changes.search_log import LOCK_NAME, LOG_NAME, has_ended
from perfrun.changes.suspects import read_state
from perfrun.changes.watched import watch_series
from perfrun.compare import baselines
from perfrun.compare.baselines import NamedTrial
from perfrun.errors import UsageError, WorkspaceError
from perfrun.incidents import ledger
from perfrun.locks import FileLock
from perfrun.nightly.night_state import Nights
from perfrun.nightly.retention import (
    SUBMISSION,
    PairSet,
    Policy,
    pairs_to_be_removed,
    parse_age,
    to_be_removed,
)
from perfrun.options.parsers import CommandParser, parse_whole, parse_workspace
from perfrun.options.store_address import parse_address
from perfrun.run.journal import Journal, folders_of, going_on
from perfrun.shards.plan import FOLDER
from perfrun.shown import say, write_json, write_lines, write_prose
from perfrun.store.index import Store, open_store
from perfrun.store.query import Series
from perfrun.summary.record import SUMMARY, SummaryRecord, read_record
from perfrun.text import counted

_ASIDE = ".pruned"
_MOST_LOCKS = 200  # a process may usually have 1,024 files open
_EPILOG = """\
A trial is removed when every policy that is given lets it go. Trials next to a change of level,
trials of a baseline, the sides of open suspects and incidents, and trials of what is running,
always stay. What was interrupted stays for --resume, unless --unfinished_older_than lets it go.
A submission that is over goes with the last of its trials; while it is open, or has results that
were not collected, it stays. Pairs of ab, detect --confirm, explain and bisect, and replays with
what they unpacked, are removed as a whole.

Exit status: 0, or 1 when a folder could not be removed, 2 wrong usage. All of it is in
docs/guides/nightly.md.
"""


def remove(workspace: Path, folders: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Remove folders by moving each aside first. Return those removed, and a line a failure."""
    aside = workspace / _ASIDE
    for left in workspace.glob(f"{_ASIDE}*"):  # by a killed prune
        remove_tree(left)
    removed, failures = [], []
    for folder in folders:
        try:
            aside.mkdir(exist_ok=True)
            folder.replace(aside / folder.name)
        except OSError as error:
            failures.append(f"{folder}: {error.strerror or error}")
            continue
        remove_tree(aside / folder.name)
        removed.append(folder)
    with suppress(OSError):
        aside.rmdir()
    return removed, failures


def remove_tree(folder: Path) -> None:
    """Remove a folder and all below it, as far as the system allows, however deep it is.

    A benchmark may nest more folders than a path has room for, or Python has calls for. So a
    subfolder is first moved up, beside its parent's files, and then emptied like the others.
    """
    left = [folder]
    while left:
        place = left.pop()
        try:
            opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # it is gone, or no folder
        try:
            with suppress(OSError):
                os.fchmod(opened, 0o700)  # the benchmark may have made it read-only
            with os.scandir(opened) as entries:
                names = [entry.name for entry in entries]
            for name in names:
                with suppress(OSError):
                    status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        os.unlink(name, dir_fd=opened)
                        continue
                    _make_writable(name, opened)  # it could not be moved otherwise
                    up = folder.parent / f"{_ASIDE}-{os.urandom(8).hex()}"
                    os.rename(name, up, src_dir_fd=opened)
                    left.append(up)
        finally:
            os.close(opened)
        with suppress(OSError):
            place.rmdir()


def _make_writable(name: str, folder: int) -> None:
    with suppress(OSError):
        itself = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            Path(f"/proc/self/fd/{itself}").chmod(0o700)
        finally:
            os.close(itself)


def bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder; files that vanish meanwhile count nothing."""
    total, left = 0, [str(folder)]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as entries:  # beyond a path's room: nothing
            for entry in entries:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_size
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
    return total


def pair_sets(workspace: Path) -> list[PairSet]:
    """Return the sets of pairs, the searches and the replays of a workspace.

    An unfinished one, running or interrupted, has its log with it. Links and unreadable summaries
    are left out.
    """
    pairs = [one for name in ("ab", "explain") for one in _of_arms(workspace / name)]
    return [*pairs, *_searches(workspace / "bisect"), *_replays(workspace / "replays")]


def _of_arms(pairs: Path) -> Iterator[PairSet]:
    """Yield the sets of each arm, by run and method; those of a pair are of the same time."""
    for arm in ("a", "b"):
        output, runs_folder = pairs / arm / "output", pairs / arm / "runs"
        resumable = going_on(runs_folder)
        runs: dict[tuple[str, str], list[SummaryRecord]] = defaultdict(list)
        unfinished: dict[str, list[SummaryRecord]] = {run_id: [] for run_id in sorted(resumable)}
        for trial in _trials_below(output):
            if trial.run_id in resumable:
                unfinished[trial.run_id].append(trial)
            elif trial.run_id:
                runs[trial.run_id, trial.method].append(trial)
        for (_, method), trials in runs.items():
            yield PairSet(
                kind=f"{pairs.name}/{arm}",
                methods=(method,),
                newest=max(trial.timestamp for trial in trials),
                folders=tuple(sorted(trial.path.parent for trial in trials)),
                trials=len(trials),
            )
        for run_id, trials in unfinished.items():
            journal = runs_folder / f"{run_id}.jsonl"
            yield from _interrupted(f"{pairs.name}/{arm}", journal, output, trials)


def _interrupted(
    kind: str, journal: Path, output: Path, trials: Sequence[SummaryRecord]
) -> Iterator[PairSet]:
    """Yield an unfinished run, with its trials that have no summary."""
    folders = {trial.path.parent for trial in trials}
    for folder in folders_of(journal):
        here = output / folder.name  # the journal of a moved workspace has the old path
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
    """Yield the searches, each with its whole folder: it has checkouts of its own."""
    for log in sorted(searches.glob(f"*/{LOG_NAME}")):
        folder = log.parent
        trials = [trial for arm in "ab" for trial in _trials_below(folder / arm / "output")]
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


def _replays(replays: Path) -> Iterator[PairSet]:
    """Yield the places of replays, each with the capsule and the environment that it has."""
    for place in sorted(replays.glob("*")):
        if place.is_symlink() or not place.is_dir() or place.name.startswith("."):
            continue
        trials = list(_trials_below(place / "output"))
        journals = [place / "runs" / f"{name}.jsonl" for name in sorted(going_on(place / "runs"))]
        yield PairSet(
            kind="replay",
            methods=tuple(sorted({trial.method for trial in trials})),
            newest=_newest(trials, place),
            folders=(place,),
            trials=len(trials),
            unfinished=journals[0] if journals else None,
            held_by=(*journals[1:], replays / ".locks" / place.name),
        )


def _newest(trials: Sequence[SummaryRecord], log: Path) -> float:
    """Return the time of the newest trial, or of the last write to the log without trials."""
    if trials:
        return max(trial.timestamp for trial in trials)
    try:
        return log.stat().st_mtime
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


def parser() -> CommandParser:
    """Return the parser of the flags of `perfrun prune`."""
    made = CommandParser("perfrun prune", "Remove the folders of old trials.", _EPILOG)
    made.never_suggested = (
        *("--keep_nights", "--keep_per_series", "--older_than", "--unfinished_older_than"),
    )
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
    """The folders that were removed, or would be, and numbers of trials."""

    removed: tuple[Path, ...]  # folders
    trials: int  # of the history, in these folders
    submissions: int
    pair_trials: int  # of `ab`, `confirm`, `explain`, `bisect` and `replay`, in these folders
    bytes: int
    kept: int  # trials of the history
    neighbours: int  # trials that stay because they are next to a change
    of_baselines: int  # trials that stay because a baseline names them
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
    try:
        done = prune(workspace, policy, dry_run=given.dry_run)
    except OSError as error:  # of a folder; those that it concerns alone are failures
        if error.filename is None:
            raise
        raise WorkspaceError(f"{error.filename}: {error.strerror}; not all was removed") from None
    if given.format == "json":
        write_json(_document(done, dry_run=given.dry_run))
    else:
        _show(done, dry_run=given.dry_run)
    return 1 if done.failures else 0


def prune(workspace: Path, policy: Policy, *, dry_run: bool = False) -> Pruned:
    """Remove what the policy lets go, and remove it from the workspace's index."""
    now = time.time()
    with open_store(parse_address(None, workspace)) as store, _Locks() as locks:
        store.refresh()
        trials, over = _trials(store, workspace)
        neighbours = _neighbours(store) | _of_suspects(workspace) | _of_incidents(workspace)
        of_baselines = baselines.named_trials(workspace)
        named = {trial.uid for trial in of_baselines}
        unfinished = going_on(workspace / "runs") - over
        abandoned = _abandoned(workspace, trials, unfinished, policy, now, locks)
        chosen = to_be_removed(
            trials,
            policy,
            now=now,
            neighbours=neighbours,
            unfinished=unfinished - abandoned,
            named=named,
        )
        pairs = [
            one
            for one in (
                *pairs_to_be_removed(pair_sets(workspace), trials, policy, now=now),
                *_old_submissions(workspace, trials, chosen, policy, now),
            )
            if not _holds(one, of_baselines, workspace)
            and all(_is_idle(log, locks) for log in (one.unfinished, *one.held_by) if log)
        ]
        removed = [trial.path.parent for trial in chosen]
        removed += [folder for one in pairs for folder in one.folders]
        size, failures = sum(map(bytes_in, removed)), list[str]()
        if not dry_run:
            removed, failures = remove(workspace, removed)
            _end(chosen, abandoned, workspace)
            _end_pairs(pairs, removed)
            store.refresh()
    gone = set(removed)
    return Pruned(
        removed=tuple(removed),
        trials=sum(trial.path.parent in gone for trial in chosen),
        submissions=sum(one.kind == SUBMISSION and gone.issuperset(one.folders) for one in pairs),
        pair_trials=sum(one.trials for one in pairs if gone.issuperset(one.folders)),
        bytes=size,
        kept=sum(trial.path.parent not in gone for trial in trials),
        neighbours=sum(trial.execution_id in neighbours for trial in trials),
        of_baselines=sum(trial.uid in named for trial in trials),
        failures=tuple(failures),
    )


def _old_submissions(
    workspace: Path,
    trials: Sequence[SummaryRecord],
    going: Sequence[SummaryRecord],
    policy: Policy,
    now: float,
) -> tuple[PairSet, ...]:
    if not (workspace / FOLDER).is_dir():
        return ()
    from perfrun.nightly.old_submissions import old_submissions  # msgspec: 20 ms

    return old_submissions(workspace, trials, going, policy, now=now)


def _holds(one: PairSet, trials: Sequence[NamedTrial], workspace: Path) -> bool:
    """Return True when a baseline names a trial in the folders of the set."""
    places = [baselines.place_of(trial, workspace) for trial in trials]
    above = {parent for place in places if place is not None for parent in place.parents}
    return not above.isdisjoint(one.folders)


def _abandoned(
    workspace: Path,
    trials: Sequence[SummaryRecord],
    unfinished: Collection[str],
    policy: Policy,
    now: float,
    locks: _Locks,
) -> set[str]:
    """Return the runs that were interrupted so long ago that they count as ended."""
    newest: dict[str, float] = {}
    for trial in trials:
        if trial.run_id in unfinished:
            newest[trial.run_id] = max(trial.timestamp, newest.get(trial.run_id, 0.0))
    return {
        run_id
        for run_id, time_s in newest.items()
        if policy.counts_as_ended(time_s, now) and _is_idle(_journal(workspace, run_id), locks)
    }


class _Locks(ExitStack):
    """Locks that are held until the removal is done. Each takes a file descriptor."""

    room = _MOST_LOCKS


def _is_idle(log: Path, locks: _Locks) -> bool:
    """Return True when no perfrun is at a run or search, and keep others from it by a lock.

    Beyond the number that can be locked at once none counts as idle: the next call removes those.
    """
    if not locks.room:
        return False
    locks.room -= 1
    if log.parent.name == ".locks":
        return not log.exists() or locks.enter_context(FileLock(log)).try_own()
    if log.parent.parent.name == FOLDER:
        from perfrun.shards.plan_file import FILE, LOCK

        if log.name == FILE:
            return locks.enter_context(FileLock(log.parent / LOCK)).try_own()
    if log.name == LOG_NAME:
        return locks.enter_context(FileLock(log.parent / LOCK_NAME)).try_own()
    return locks.enter_context(Journal(log).held())


def _end(chosen: Sequence[SummaryRecord], abandoned: Collection[str], workspace: Path) -> None:
    """End abandoned runs that have lost trials: they cannot be resumed."""
    for run_id in {trial.run_id for trial in chosen} & set(abandoned):
        Journal(_journal(workspace, run_id)).end()


def _end_pairs(pairs: Sequence[PairSet], removed: Collection[Path]) -> None:
    """End unfinished pairs that have lost trials; others go with their logs."""
    gone = set(removed)
    for one in pairs:
        of_run = one.unfinished if one.kind not in ("bisect", "replay", SUBMISSION) else None
        if of_run and not gone.isdisjoint(one.folders):
            Journal(of_run).end()


def _journal(workspace: Path, run_id: str) -> Path:
    return workspace / "runs" / f"{run_id}.jsonl"


def _trials(store: Store, workspace: Path) -> tuple[list[SummaryRecord], set[str]]:
    """Return the trials whose folders are the workspace's own, and the runs of ended nights.

    Links and folders elsewhere are not removed. A run of an ended night is not resumed, even when
    the deadline has cut it short.
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
    found = _neighbours_of(store, store.series(which="primary"))
    if store.left_out:  # those of nodes in quarantine may count again one day
        found |= _neighbours_of(store, store.series(which="primary", with_quarantine=True))
    return found


def _neighbours_of(store: Store, series: Iterable[Series]) -> set[str]:
    try:
        watched, left_out = watch_series(series)
    except UsageError:  # no trial has a figure
        return set()
    changes = find_changes(watched, left_out, beside=store.scans_beside).rows
    return {one for row in changes for one in (row.before_execution_id, row.after_execution_id)}


def _of_suspects(workspace: Path) -> set[str]:
    """Return the trials that the pairs of open suspects run again."""
    open_ = read_state(workspace).open
    return {one for row in open_ for one in (row.before_execution_id, row.after_execution_id)}


def _of_incidents(workspace: Path) -> set[str]:
    """Return the trials that a bisection or an explanation of open incidents runs again."""
    changes = [
        own for one in ledger.read(workspace).incidents if one.is_open for own in one.changes
    ]
    return {one for own in changes for one in (own.before_execution_id, own.after_execution_id)}


def _document(done: Pruned, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "removed": [str(folder) for folder in done.removed],
        "trials": done.trials,
        "pair_trials": done.pair_trials,
        "submissions": done.submissions,
        "bytes": done.bytes,
        "kept": done.kept,
        "neighbours_of_changes": done.neighbours,
        "of_baselines": done.of_baselines,
        "failures": list(done.failures),
    }


def _show(done: Pruned, *, dry_run: bool) -> None:
    write_lines(map(str, done.removed))
    what = "would be removed" if dry_run else "removed"
    size = f"{done.bytes / 2**20:.1f} MiB"
    near = f"{done.neighbours} of them next to a change of level or a suspect"
    if done.of_baselines:
        near += f", {done.of_baselines} of baselines"
    write_prose([f"{removed_text(done)} {what} ({size}), {done.kept} kept, {near}"])
    for text in done.failures:
        say(text)


def removed_text(done: Pruned) -> str:
    """Return the number of removed trials, as text."""
    pairs = f" and {done.pair_trials} of pairs" if done.pair_trials else ""
    more = f", {counted(done.submissions, 'submission')}" if done.submissions else ""
    return f"{counted(done.trials, 'trial')}{pairs}{more}"

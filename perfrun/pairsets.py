"""The trials that `ab`, `confirm` and `bisect` have left in a workspace, as what they belong to."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfrun.journal import folders_of, going_on
from perfrun.retention import PairSet
from perfrun.searchlog import NAME, has_ended
from perfrun.summary_record import SUMMARY, SummaryRecord, read_record


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
        for trial in _trials(pairs / side / "output"):
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
    for log in sorted(searches.glob(f"*/{NAME}")):
        folder = log.parent
        trials = [trial for side in "ab" for trial in _trials(folder / side / "output")]
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


def _trials(output: Path) -> Iterator[SummaryRecord]:
    for path in sorted(output.glob(f"*/{SUMMARY}")):
        if path.parent.is_symlink():
            continue
        try:
            yield read_record(path)
        except (OSError, ValueError):
            continue

"""The trials that `ab`, `confirm` and `bisect` have left in a workspace, as what they belong to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from perfrun.journal import going_on
from perfrun.readings import SUMMARY, Reading, read_summary
from perfrun.retention import PairSet
from perfrun.searchlog import NAME, has_ended


def pair_sets(workspace: Path) -> list[PairSet]:
    """Return what has come to its end: each set of pairs, and each search as a whole.

    What is interrupted is not there, since it can go on. Nor is what is linked or cannot be read.
    """
    return [*_of_sides(workspace / "ab"), *_searches(workspace / "bisect")]


def _of_sides(pairs: Path) -> Iterator[PairSet]:
    """The trials of each run of a side; both sides of pairs are of the same hour."""
    for side in ("a", "b"):
        resumable = going_on(pairs / side / "runs")
        runs: dict[tuple[str, str], list[Reading]] = defaultdict(list)
        for trial in _trials(pairs / side / "output"):
            if trial.run_id and trial.run_id not in resumable:
                runs[trial.run_id, trial.method].append(trial)
        for (_, method), trials in runs.items():
            yield PairSet(
                kind=f"ab/{side}",
                methods=(method,),
                newest=max(trial.timestamp for trial in trials),
                folders=tuple(sorted(trial.path.parent for trial in trials)),
                trials=len(trials),
            )


def _searches(searches: Path) -> Iterator[PairSet]:
    """Searches go as a whole: each has checkouts of its own."""
    for log in sorted(searches.glob(f"*/{NAME}")):
        folder = log.parent
        trials = [trial for side in "ab" for trial in _trials(folder / side / "output")]
        if folder.is_symlink() or not trials or not has_ended(log):
            continue
        yield PairSet(
            kind="bisect",
            methods=tuple(sorted({trial.method for trial in trials})),
            newest=max(trial.timestamp for trial in trials),
            folders=(folder,),
            trials=len(trials),
        )


def _trials(output: Path) -> Iterator[Reading]:
    for path in sorted(output.glob(f"*/{SUMMARY}")):
        if path.parent.is_symlink():
            continue
        try:
            yield read_summary(path)
        except (OSError, ValueError):
            continue

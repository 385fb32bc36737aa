"""The document of a search that has ended: what `perfrun bisect --format=json` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.analysis.bisecting import End, SearchRule
from perfrun.analysis.directions import Direction, worse_or_better
from perfrun.analysis.pairs import Judgement
from perfrun.analysis.search_cost import expected_trials
from perfrun.changes.search import Revision, SearchState
from perfrun.changes.search_log import SearchLog
from perfrun.compare.command import difference_row
from perfrun.compare.differences import differences
from perfrun.summary.record import SummaryRecord, read_record


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a search looks for."""

    method: str
    metric: str
    rule: SearchRule
    trial_s: float | None = None  # of a trial of the method, as earlier results tell it


def answer_of(
    asked: Asked, revisions: Sequence[Revision], log: SearchLog, found: SearchState
) -> dict[str, Any]:
    """Return the document that `--format=json` prints, of a search that has ended."""
    end = found.end
    assert end is not None
    records = _records(log, end.after, end.last)
    directions = [r.directions[asked.metric] for side in records for r in side]
    direction: Direction = directions[-1] if directions else "none"
    judged = end.change or end.verified
    culprit = _row(revisions[end.last]) if end.status == "found" else None
    trials = Counter(index for pair in log.pairs for index in (pair.a, pair.b))
    return {
        "status": end.status,
        "method": asked.method,
        "metric": asked.metric,
        "direction": _direction(judged, direction),
        "culprit": culprit,
        "previous": _row(revisions[end.after]),
        "candidates": [_row(one) for one in revisions[end.after + 1 : end.last + 1]],
        "probability": end.probability,
        **_judged(end.change),
        "good_against_bad": _judged(end.verified),
        "revisions": len(revisions),
        "tested": [
            {"name": revisions[index].name, "trials": trials[index]} for index in sorted(trials)
        ],
        "skipped": [
            {
                "name": revisions[index].name,
                "repository": revisions[index].repository,
                "reason": log.broken[index],
                "trials": log.lost.get(index, (0, 0.0))[0],
                "spent_s": log.lost.get(index, (0, 0.0))[1],
            }
            for index in sorted(log.broken)
        ],
        "pairs_run": len(log.pairs),
        "trials_run": log.trials,
        "spent_s": log.spent_s,
        "estimate": estimate_of(asked, len(revisions)),
        "stopped_by": _stopped_by(found, end, len(log.pairs) >= asked.rule.max_pairs),
        "environment_differences": [
            difference_row(found) for found in (differences(*records) if all(records) else ())
        ],
        "seed": log.seed,
        "folder": str(log.folder),
        "inside": None,
    }


def estimate_of(asked: Asked, revisions: int) -> dict[str, float | None]:
    """Return what a search was expected to cost before it began, as the document has it."""
    most = 2 * asked.rule.max_pairs
    return {
        "trials_clear": min(expected_trials(revisions - 1), most),
        "trials_noisy": min(expected_trials(revisions - 1, noise=1.0), most),
        "trials_most": most,
        "trial_s": asked.trial_s,
    }


def _row(revision: Revision) -> dict[str, Any]:
    return {
        "name": revision.name,
        "author": revision.author,
        "date": revision.date,
        "subject": revision.subject,
        "repository": revision.repository,
        "commits": dict(revision.commits),
        "is_merge": len(revision.parents) > 1,
        "pull_request": revision.pull_request,
        "branch": revision.branch,
    }


def _judged(judged: Judgement | None) -> dict[str, Any]:
    """Return the keys of a comparison; all are null where the two were not paired."""
    interval = judged.interval if judged else None
    return {
        "ratio": judged.ratio if judged else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "p_value": judged.p_value if judged else None,
        "pairs": judged.pairs if judged else 0,
    }


def _direction(judged: Judgement, direction: Direction) -> str | None:
    """Return `worse` or `better`, or `changed` for a metric without a direction."""
    if judged.verdict not in ("faster", "slower"):
        return None
    if direction == "none":
        return "changed"
    grew = judged.verdict == "slower"  # the search takes lower as better for every metric
    return worse_or_better(grew=grew, direction=direction)


def _stopped_by(found: SearchState, end: End, is_spent: bool) -> str:
    if end.status != "undecided":
        return "decided"
    if found.out_of_time:
        return "time_budget"
    return "max_pairs" if is_spent else "noise"


def _records(log: SearchLog, a: int, b: int) -> tuple[list[SummaryRecord], list[SummaryRecord]]:
    """Read the summaries of two revisions from all pairs that have one of them."""
    sides: tuple[list[SummaryRecord], list[SummaryRecord]] = ([], [])
    for pair in log.pairs:
        for side, index in zip(sides, (a, b), strict=True):
            for own, path in zip((pair.a, pair.b), pair.summaries, strict=True):
                if own == index:
                    try:
                        side.append(read_record(Path(path)))
                    except (OSError, ValueError):
                        continue  # removed since
    return sides

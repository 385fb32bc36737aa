"""A run's result as a value, and its document: what `--format=json` prints and `runs/` keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfrun.dataclass import asdict, dataclass
from perfrun.document import Status, TrialResult
from perfrun.estimates import MethodEstimate, estimate, observe


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """All trials of a run, those of an earlier, resumed part included."""

    trials: tuple[TrialResult, ...]
    interrupted: bool
    methods: tuple[MethodEstimate, ...] = ()
    seed: int | None = None  # of the order; None when there was one round in the order given
    profiles: tuple[TrialResult, ...] = ()  # of the trials under a profiler, which do not count


def estimates(
    trials: Sequence[TrialResult], stopped_by: Mapping[str, str | None], *, sequential: bool
) -> tuple[MethodEstimate, ...]:
    """Sum up each method that was to run. One asked for twice is one method here."""
    by_name: dict[str, list[TrialResult]] = {name: [] for name in stopped_by}
    for trial in trials:
        if trial.status is not Status.INTERRUPTED:
            by_name.setdefault(trial.name, []).append(trial)
    return tuple(
        estimate(
            name,
            [observe(trial.document) for trial in own],
            stopped_by=stopped_by.get(name),
            sequential=sequential,
        )
        for name, own in by_name.items()
    )


def run_document(result: RunResult) -> dict[str, Any]:
    """The trials with their outcomes and files, and what they say together."""
    return {
        "results": [
            {
                "name": trial.name,
                "trial_id": trial.trial_id,
                "status": trial.status.value,
                "grade": trial.grade,
                "summary": trial.summary,
            }
            for trial in result.trials
        ],
        "methods": [asdict(method) for method in result.methods],
        "seed": result.seed,
        "interrupted": result.interrupted,
        "profiles": [
            {
                "name": profile.name,
                "kind": profile.document["perfrun"]["order"]["profile"],
                "status": profile.status.value,
                "summary": profile.summary,
            }
            for profile in result.profiles
        ],
    }

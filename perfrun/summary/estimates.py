"""Estimate the median of each method of a run, and build the run's own document.

numpy and scipy are imported only for methods of two trials or more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from perfrun.dataclass import asdict, dataclass, field
from perfrun.summary.counted_trials import counted
from perfrun.summary.document import Status, TrialResult


@dataclass(frozen=True, kw_only=True)
class TrialObservation:
    """The part of one trial that the statistics need."""

    value: float | None  # seconds: the first report's wall time, when it is more than 0
    ran: bool  # the method ended by itself
    disturbed: bool = False
    cost_s: float = 0.0  # from starting the worker to its end


@dataclass(frozen=True, kw_only=True)
class MethodEstimate:
    """The figures of all trials of one method. None is unknown: one trial has no interval."""

    name: str
    trials: int  # with any outcome
    used: int  # those that entered the figures below
    disturbed: int
    failed: int
    median_s: float | None
    low_s: float | None  # 95 % confidence interval of the median
    high_s: float | None
    relative_half_width: float | None  # of that interval, over the median
    relative_noise: float | None  # standard deviation of one trial by the MAD, over the median
    minimum_detectable_effect: float | None  # relative, for another set of as many trials
    stopped_by: str | None  # the reason for this number of trials


def observe(document: Mapping[str, Any]) -> TrialObservation:
    """Take the observation of one trial from its summary."""
    own = document["perfrun"]
    ran = Status(own["outcome"]["status"]).ran
    wall_time = document["benchmark_result"]["wall_time"]
    usable = ran and isinstance(wall_time, int | float) and 0 < wall_time < math.inf
    return TrialObservation(
        value=float(wall_time) if usable else None,
        ran=ran,
        disturbed=bool((own.get("quality") or {}).get("disturbed")),
        cost_s=(own.get("usage") or {}).get("elapsed_s") or 0.0,
    )


def used_values(observations: Sequence[TrialObservation]) -> tuple[float, ...]:
    """Return the values that count: of undisturbed trials, or of all when most were disturbed."""
    known = [seen for seen in observations if seen.value is not None]
    return tuple(seen.value for seen in counted(known) if seen.value is not None)


def relative_half_width(values: Sequence[float], *, sequential: bool) -> float | None:
    """Return half the width of the interval of the median, over the median, of values so far.

    `sequential` says that the values decide the number of trials.
    """
    from perfrun.analysis import precision, stats

    if sequential:
        return precision.relative_half_width(values)
    found = stats.median_interval(values)
    return found.half_width / stats.median(values) if found else None


def estimate(
    name: str,
    observations: Sequence[TrialObservation],
    *,
    stopped_by: str | None,
    sequential: bool,
) -> MethodEstimate:
    """Estimate one method. `sequential` says that its values decided the number of trials."""
    values = used_values(observations)
    middle = low = high = noise = effect = None
    if len(values) == 1:
        middle = values[0]
    elif values:
        from perfrun.analysis import precision, stats

        middle = stats.median(values)
        found = (precision.sequential_interval if sequential else stats.median_interval)(values)
        assert found
        low, high = found.low, found.high
        noise = stats.relative_noise(values)
        if noise is not None:
            effect = stats.minimum_detectable_effect(noise, len(values))
    return MethodEstimate(
        name=name,
        trials=len(observations),
        used=len(values),
        disturbed=sum(seen.disturbed for seen in observations),
        failed=sum(not seen.ran for seen in observations),
        median_s=middle,
        low_s=low,
        high_s=high,
        relative_half_width=(high - low) / 2 / middle if middle and low and high else None,
        relative_noise=noise,
        minimum_detectable_effect=effect,
        stopped_by=stopped_by,
    )


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The trials of a run, those of an earlier, resumed part included."""

    trials: tuple[TrialResult, ...]
    interrupted: bool
    methods: tuple[MethodEstimate, ...] = ()
    seed: int | None = None  # of the order; None for one round in the order given
    profiles: tuple[TrialResult, ...] = ()  # of the trials under a profiler, which do not count
    setup_s: Mapping[str, float] = field(default_factory=dict)  # data and checkouts, before them


def estimates(
    trials: Sequence[TrialResult], stopped_by: Mapping[str, str | None], *, sequential: bool
) -> tuple[MethodEstimate, ...]:
    """Estimate each planned method; one that was asked for twice is one method here."""
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
    """Return the document of a run: `--format=json` prints it and `runs/` keeps it."""
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

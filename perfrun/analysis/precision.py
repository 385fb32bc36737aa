"""When a method has had enough trials, and which methods get the next ones. Pure.

The rule looks at the data after every trial, and whoever stops when an interval happens to be
narrow stops too often on a wrong one: plain 95 % intervals then cover 90 %. So the interval that
steers, and is reported, is taken at 96 %, which leaves 93 to 97 % at the end whatever ended it.
simulations/stop_rule.py measures that; docs/measurement.md has its table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from perfrun.analysis.stats import ConfidenceInterval, median, median_interval

Verdict = Literal["precision", "noise", "max_trials"]

PILOT = 6  # the fewest values whose range covers 96 %
CONFIDENCE = 0.95  # as stated
SEQUENTIAL_CONFIDENCE = 0.96  # as computed, see above
# nvbench's idea (its stdrel criterion): noise that has settled above the target will not get there.
# Ours looks ahead too, since an interval of trials gets narrower with their number.
SETTLED_OVER = 5  # so many last estimates of the noise ...
SETTLED_WITHIN = 0.05  # ... whose relative standard deviation is below this ...
HOPELESS = 2.0  # ... and so many times the allowed trials would be needed


@dataclass(frozen=True, kw_only=True)
class PrecisionTarget:
    """What is asked of each method. `precision` is relative: 0.01 for 1 %."""

    precision: float
    max_trials: int
    min_trials: int = PILOT


@dataclass(frozen=True, kw_only=True)
class MethodProgress:
    """What one method has shown so far."""

    values: tuple[float, ...]  # in the order they came, positive
    trials: int  # all that were run for it, those without a usable value too
    cost_s: float  # what one more is likely to take


def sequential_interval(values: Sequence[float]) -> ConfidenceInterval | None:
    """The 95 % interval of the median of a series that may have been ended because of itself."""
    found = median_interval(values, SEQUENTIAL_CONFIDENCE)
    return found and ConfidenceInterval(low=found.low, high=found.high, confidence=CONFIDENCE)


def relative_half_width(values: Sequence[float]) -> float | None:
    """Half the width of that interval over the median; None where there is no interval."""
    return _width_of(tuple(values))


@lru_cache(maxsize=1 << 16)
def _width_of(values: tuple[float, ...]) -> float | None:
    """Kept: of a thousand methods, one has a new value when it is asked which comes next."""
    found = sequential_interval(values)
    return found.half_width / median(values) if found else None


def verdict(progress: MethodProgress, target: PrecisionTarget) -> Verdict | None:
    """Why a method needs no further trial; None when it does."""
    enough = len(progress.values) >= PILOT and progress.trials >= target.min_trials
    if enough:
        width = relative_half_width(progress.values)
        if width is not None and width <= target.precision:
            return "precision"
    if progress.trials >= target.max_trials:
        return "max_trials"
    if enough and _is_hopeless(progress.values, target):
        return "noise"
    return None


def _is_hopeless(values: Sequence[float], target: PrecisionTarget) -> bool:
    """The noise has settled, and at its level the target is far beyond the trials allowed."""
    first = len(values) - SETTLED_OVER + 1
    if first < PILOT:
        return False
    noises = []
    for count in range(first, len(values) + 1):
        width = relative_half_width(values[:count])
        assert width is not None
        noises.append(width * math.sqrt(count))
    mean = sum(noises) / len(noises)
    spread = math.sqrt(sum((noise - mean) ** 2 for noise in noises) / len(noises))
    needed = (noises[-1] / target.precision) ** 2
    return spread <= SETTLED_WITHIN * mean and needed > HOPELESS * target.max_trials


def next_round(
    methods: Mapping[str, MethodProgress],
    target: PrecisionTarget,
    time_left_s: float | None,
    overrun: float = 0.0,
) -> tuple[str, ...]:
    """Name the methods of the next round, of those that need trials (`verdict` is None).

    While the time left is enough for all, all of them: their trials then spread over the same
    minutes, and slow drift of the machine falls on all alike. When it is not, the one trial that
    buys most precision a second. Nothing when no trial fits into the time any more, of which
    the share `overrun` of a trial may go beyond the end.
    """
    if time_left_s is None:
        return tuple(methods)
    fitting = {n: p for n, p in methods.items() if p.cost_s * (1 - overrun) <= time_left_s}
    if len(fitting) == len(methods):
        to_come = sum(trials_to_come(p, target) * p.cost_s for p in methods.values())
        if to_come <= time_left_s:
            return tuple(methods)
    if not fitting:
        return ()
    return (max(fitting, key=lambda name: worth(fitting[name], target)),)


def worth(progress: MethodProgress, target: PrecisionTarget) -> float:
    """How much nearer to the target one more trial is likely to bring a method, a second.

    Half-widths fall with the root of the number of trials. What is narrower than the target is
    worth nothing, and a method without an interval comes before all that have one.
    """
    count = len(progress.values)
    width = relative_half_width(progress.values) if count >= PILOT else None
    cost_s = max(progress.cost_s, 1e-6)
    if width is None:
        return 1e9 / cost_s
    gain = width * (1 - math.sqrt(count / (count + 1)))
    return min(gain, max(0.0, width - target.precision)) / cost_s


def trials_to_come(progress: MethodProgress, target: PrecisionTarget) -> int:
    """How many trials a method is likely to need still, by the width that it has now."""
    missing = max(PILOT - len(progress.values), target.min_trials - progress.trials, 0)
    allowed = max(target.max_trials - progress.trials, 0)
    width = relative_half_width(progress.values) if len(progress.values) >= PILOT else None
    if width is None:
        return min(missing, allowed)
    needed = math.ceil(len(progress.values) * (width / target.precision) ** 2)
    return min(max(missing, needed - len(progress.values), 0), allowed)

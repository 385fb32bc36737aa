"""Decide when a method has had enough trials, and which methods get the next ones.

The rule judges after every trial, and a rule that stops when an interval happens to be narrow stops
too often on a wrong one: plain 95 % intervals then cover 90 %. So the interval that steers, and is
reported, is computed at 96 %, and 93 to 97 % of them hold the median, whatever ended the trials.
simulations/stop_rule.py measures that; docs/research/measurement.md has its table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from scipy import special

from perfrun.analysis.stats import ConfidenceInterval, median, median_interval

Verdict = Literal["precision", "noise", "max_trials"]

PILOT = 6  # the fewest values whose range covers 96 %
CONFIDENCE = 0.95  # as stated
SEQUENTIAL_CONFIDENCE = 0.96  # as computed, see above
# nvbench's idea (its stdrel criterion): noise that has settled above the target stays there. This
# rule also predicts, since an interval gets narrower with the number of trials.
SETTLED_OVER = 5  # the noise has settled when so many last estimates of it ...
SETTLED_WITHIN = 0.05  # ... have a relative standard deviation below this
HOPELESS = 2.0  # the target is out of reach when this multiple of the allowed trials is needed


@dataclass(frozen=True, kw_only=True)
class PrecisionTarget:
    """The goal for each method. `precision` is relative: 0.01 for 1 %."""

    precision: float
    max_trials: int
    min_trials: int = PILOT


@dataclass(frozen=True, kw_only=True)
class MethodProgress:
    """The trials of one method so far."""

    values: tuple[float, ...]  # in the order they came, positive
    trials: int  # all that were run, with or without a usable value
    cost_s: float  # expected duration of one more


def sequential_interval(values: Sequence[float]) -> ConfidenceInterval | None:
    """Return the 95 % interval of the median of trials that this rule may have ended."""
    found = median_interval(values, SEQUENTIAL_CONFIDENCE)
    return found and ConfidenceInterval(low=found.low, high=found.high, confidence=CONFIDENCE)


def relative_half_width(values: Sequence[float]) -> float | None:
    """Return half the width of that interval over the median; None without an interval."""
    return _width_of(tuple(values))


@lru_cache(maxsize=1 << 16)
def _width_of(values: tuple[float, ...]) -> float | None:
    """Cached: of a thousand methods, only one has a new value from one decision to the next."""
    found = sequential_interval(values)
    return found.half_width / median(values) if found else None


def verdict(progress: MethodProgress, target: PrecisionTarget) -> Verdict | None:
    """Return the reason why a method needs no further trial; None when it needs one."""
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
    """True when the noise has settled at a level that needs far more trials than allowed."""
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


def trials_for(noise: float, precision: float) -> int:
    """Return how many trials probably give this precision, by the noise of one trial, relative.

    Half the width of the interval falls with the root of their number; for a median it is 1.25
    times that of a mean of Gaussian values (David and Nagaraja, Order Statistics, 3rd ed., 2.5).
    """
    reach = math.sqrt(math.pi / 2) * float(special.ndtri(0.5 + SEQUENTIAL_CONFIDENCE / 2))
    return max(PILOT, math.ceil((reach * noise / precision) ** 2))


def next_round(
    methods: Mapping[str, MethodProgress],
    target: PrecisionTarget,
    time_left_s: float | None,
    overrun: float = 0.0,
) -> tuple[str, ...]:
    """Return the methods of the next round, of those that need trials (`verdict` is None).

    While the time left is enough, these are all of them: their trials then spread over the same
    minutes, and slow drift of the machine affects all alike. When it is not, it is the one method
    that gains most precision a second. None is returned when no trial fits into the time left; the
    share `overrun` of a trial may go beyond it.
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
    """Return the precision that a method is expected to gain a second by one more trial.

    Half-widths fall with the root of the number of trials. Beyond the target nothing is gained, and
    a method without an interval comes before all that have one.
    """
    count = len(progress.values)
    width = relative_half_width(progress.values) if count >= PILOT else None
    cost_s = max(progress.cost_s, 1e-6)
    if width is None:
        return 1e9 / cost_s
    gain = width * (1 - math.sqrt(count / (count + 1)))
    return min(gain, max(0.0, width - target.precision)) / cost_s


def trials_to_come(progress: MethodProgress, target: PrecisionTarget) -> int:
    """Return the number of trials that a method is expected to need, by its present width."""
    missing = max(PILOT - len(progress.values), target.min_trials - progress.trials, 0)
    allowed = max(target.max_trials - progress.trials, 0)
    width = relative_half_width(progress.values) if len(progress.values) >= PILOT else None
    if width is None:
        return min(missing, allowed)
    needed = math.ceil(len(progress.values) * (width / target.precision) ** 2)
    return min(max(missing, needed - len(progress.values), 0), allowed)

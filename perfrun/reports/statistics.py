"""What the trials of each method say together, as lines of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfrun.estimates import MethodEstimate
from perfrun.quantities import duration, scale_of

_REASONS = {
    "precision": "precision reached",
    "noise": "stopped: its noise will not let it reach the precision",
    "max_trials": "stopped by --max_trials",
    "time_budget": "stopped by --time_budget",
    "failed": "stopped: it keeps failing",
    "no_figure": "stopped: it reports no wall time above 0 to go by",
    "interrupted": "interrupted",
}
_ONE_TRIAL = (
    "One trial a method: no interval, and no telling how small a change it would show "
    "(--benchmark_num_trials or --precision give more)."
)


def statistics_lines(methods: Sequence[MethodEstimate]) -> list[str]:
    """One line a method that has more than one trial; one for all when none has."""
    if all(method.trials <= 1 for method in methods):
        if not any(method.used for method in methods):
            return []
        return [_ONE_TRIAL]
    return ["", *(_line(method) for method in methods)]


def _line(method: MethodEstimate) -> str:
    said = [
        _median(method),
        _noise(method),
        *_not_used(method),
        _REASONS.get(method.stopped_by or "", ""),
    ]
    return f"{method.name}: " + "; ".join(text for text in said if text)


def _median(method: MethodEstimate) -> str:
    trials = f"{method.used} of {method.trials} trials"
    if method.used == method.trials:
        trials = f"{method.trials} trial{'s' * (method.trials != 1)}"
    if method.median_s is None:
        return f"{trials} with a figure"
    text = f"{trials}, median {duration(method.median_s)}"
    if method.low_s is None or method.high_s is None:
        return f"{text}, no interval"
    scale, unit = scale_of(method.median_s, "s")
    low, high = method.low_s / scale, method.high_s / scale
    around = f" (\u00b1{percent(method.relative_half_width)})"
    return f"{text}, 95 % in {_digits(low, high)} {unit}{around}"


def _noise(method: MethodEstimate) -> str:
    if method.median_s is None:
        return ""
    if method.minimum_detectable_effect is None:
        return "changes it would show: unknown"
    return (
        f"noise {percent(method.relative_noise)}, "
        f"shows changes from {percent(method.minimum_detectable_effect)}"
    )


def _not_used(method: MethodEstimate) -> list[str]:
    counts = ((method.failed, "failed"), (method.disturbed, "disturbed"))
    return [f"{count} {what}" for count, what in counts if count]


def _digits(low: float, high: float) -> str:
    """Both ends with as many decimals as it takes to tell them apart."""
    width = high - low
    decimals = min(9, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else 3
    return f"{low:.{decimals}f}..{high:.{decimals}f}"


def percent(share: float | None) -> str:
    """Two figures."""
    if share is None:
        return "?"
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"

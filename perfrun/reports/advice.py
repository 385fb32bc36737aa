"""Advice on the trials that a precision takes on this machine, from the noise of a run."""

from __future__ import annotations

from collections.abc import Sequence

from perfrun.options.parsers import MOST_TRIALS
from perfrun.reports.figures import percent, time_left, trials_text
from perfrun.summary.document import TrialResult
from perfrun.summary.estimates import MethodEstimate, observe

USUAL = 0.05  # half the width of an interval, relative, with which most people can do something
FEWEST = 3  # trials that tell anything about noise
TOO_MANY = 1000  # trials; a machine that needs more has to be made quieter first


def advice(
    methods: Sequence[MethodEstimate],
    results: Sequence[TrialResult],
    wanted: float | None = None,
) -> str | None:
    """Return the trials and the time that a precision needs; None when there is nothing to say.

    The precision is the one that was `wanted`, or a usual one. Methods that have it need nothing.
    """
    precision = wanted or USUAL
    needs: dict[str, int] = {}
    for method in methods:
        width = method.relative_half_width
        if method.used < FEWEST or not method.relative_noise or width is None:
            continue
        if width > precision:
            from perfrun.analysis.precision import trials_for  # there are statistics already

            needs[method.name] = trials_for(method.relative_noise, precision)
    if not needs:
        return None
    which = "" if len(needs) == len(methods) else f" for {len(needs)} of {len(methods)} methods"
    begin = f"On this machine, as it was, \u00b1{percent(precision)} needs"
    if max(needs.values()) > TOO_MANY:
        return f"{begin} more than {TOO_MANY:,} trials{which}: make it quieter first"
    spent_s = sum(needs[name] * _trial_s(name, results) for name in needs)
    most = max(needs.values())
    flags = f"--precision={100 * precision:g}%"
    flags += f" --max_trials={most}" if most > MOST_TRIALS else ""
    each = " each" if len(needs) > 1 else ""
    trials = f"{trials_text(list(needs.values()))}{each}{which}"
    return f"{begin} about {trials}, {time_left(spent_s)} in all: {flags}"


def _trial_s(name: str, results: Sequence[TrialResult]) -> float:
    """Return the median duration of the trials of a method."""
    costs = sorted(observe(trial.document).cost_s for trial in results if trial.name == name)
    return costs[len(costs) // 2] if costs else 0.0

"""How often methods run and in which order, as asked for: `--precision` and the flags around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfrun.arguments import parse_duration, parse_whole, shown
from perfrun.dataclass import dataclass
from perfrun.errors import UsageError

FEWEST_TRIALS = 6  # with --precision: below this there is no interval (analysis.stopping.PILOT)
MOST_TRIALS = 30  # default of --max_trials
RERUNS = 2  # default of --max_reruns with --precision
OVERRUN = 0.1  # of a trial's usual time may go beyond the time budget: better than a gap


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The rules for trials beyond `--benchmark_num_trials`."""

    precision: float | None = None  # relative half-width to reach; None = a fixed number of trials
    max_trials: int = MOST_TRIALS  # of a method, re-runs not counted; with a precision only
    time_budget_s: float | None = None  # for all trials together; with a precision only
    max_reruns: int = 0  # of disturbed trials, per method
    seed: int | None = None  # of the order; None = a random one, which is recorded


def parse_repetition(given: Mapping[str, Any], num_trials: int) -> Repetition:
    """Parse the flags. Raises UsageError for what cannot be meant."""
    precision = _precision(given["precision"])
    max_trials = parse_whole(given["max_trials"], "--max_trials", FEWEST_TRIALS)
    reruns = parse_whole(given["max_reruns"], "--max_reruns", 0)
    budget_s = parse_duration(given["time_budget"], "--time_budget")
    if precision is None:
        for flag, value in (("--max_trials", max_trials), ("--time_budget", budget_s)):
            if value is not None:
                raise UsageError(
                    f"{flag} needs --precision; without it, --benchmark_num_trials is the number"
                )
    if max_trials is not None and max_trials < num_trials:
        raise UsageError(
            f"--max_trials={max_trials}: is less than --benchmark_num_trials={num_trials}, "
            "the fewest with --precision"
        )
    return Repetition(
        precision=precision,
        max_trials=max(MOST_TRIALS, num_trials) if max_trials is None else max_trials,
        time_budget_s=budget_s,
        max_reruns=reruns if reruns is not None else RERUNS if precision else 0,
        seed=parse_whole(given["seed"], "--seed", 0),
    )


def _precision(text: str | None) -> float | None:
    if not text:
        return None
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--precision={shown(text)}: write 1% or 0.01") from None
    if not 0 < value < 1:
        raise UsageError(
            f"--precision={shown(text)}: must be more than 0 and below 100% (1% = 0.01)"
        )
    return value

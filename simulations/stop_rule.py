"""A simulation of the rules of `--precision`: coverage and cost, printed as Markdown.

    python -m simulations.stop_rule            # tables of docs/research/measurement.md, minutes
    python -m simulations.stop_rule --runs=200

The rule under test is the one that ships (`perfrun.analysis.precision`, `perfrun.run.schedule`).
The series have a known median.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats as scipy_stats

from perfrun.analysis import precision, stats
from perfrun.analysis.stats import ConfidenceInterval
from perfrun.options.parsers import MOST_TRIALS, Repetition
from perfrun.run.schedule import Schedule
from perfrun.summary.estimates import TrialObservation
from simulations.noises import NOISES, Floats, Noise, drifting, true_median

SPREADS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1)
SIZES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
PRECISION = 0.01
SPREAD = 0.02
Row = list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2000, help="simulated series of each kind")
    runs = parser.parse_args(arguments).runs
    for title, header, rows in (
        intervals(runs),
        stop_rule(runs),
        naive(runs),
        allocation(max(20, runs // 10)),
        detectable(runs),
    ):
        sys.stdout.write(f"{title}\n\n{table(header, rows)}\n")
        sys.stdout.flush()
    return 0


def table(header: Row, rows: list[Row]) -> str:
    """Return a Markdown table, the first column aligned to the left."""
    rule = ["---", *("---:" for _ in header[1:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))


def share(hits: Sequence[bool]) -> str:
    return f"{100 * sum(hits) / len(hits):.1f}" if hits else "-"


def holds(interval: ConfidenceInterval | None, reference: float) -> bool:
    return interval is not None and interval.low <= reference <= interval.high


def intervals(runs: int) -> tuple[str, Row, list[Row]]:
    """Return the coverage of 95 % intervals of the median for a fixed number of trials."""
    ways: dict[str, Callable[[Floats], ConfidenceInterval | None]] = {
        "used": stats.median_interval,
        "bootstrap": _bootstrap_of_median,
        "t on logs": lambda values: stats._t_interval(np.sort(values), 0.95),
    }
    rows = []
    for noise, make in NOISES.items():
        for way, interval in ways.items():
            cells = [f"{noise}, {way}"]
            for size in SIZES:
                series = make(np.random.default_rng(size), (runs, size), SPREAD)
                reference = true_median(noise, SPREAD)
                cells.append(share([holds(interval(values), reference) for values in series]))
            rows.append(cells)
    title = (
        f"Share of {runs:,} series (noise 2 %) whose 95 % interval holds the true median, by the "
        "number of trials. `used` is `median_interval`; `bootstrap` the percentile bootstrap of "
        "the median."
    )
    return title, ["noise, interval", *map(str, SIZES)], rows


def _bootstrap_of_median(values: Floats) -> ConfidenceInterval:
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(values), (399, len(values)))
    low, high = np.quantile(np.median(values[picks], axis=1), [0.025, 0.975])
    return ConfidenceInterval(low=float(low), high=float(high), confidence=0.95)


def sequence(values: Sequence[float], target: precision.PrecisionTarget) -> tuple[int, str]:
    """Run the stop rule over a series; return where it stopped and why."""
    for count in range(precision.PILOT, len(values) + 1):
        progress = precision.MethodProgress(values=tuple(values[:count]), trials=count, cost_s=1.0)
        why = precision.verdict(progress, target)
        if why:
            return count, why
    raise AssertionError("max_trials ends every series")


def stop_rule(runs: int, spreads: Sequence[float] = SPREADS) -> tuple[str, Row, list[Row]]:
    """Return coverage and cost of the whole rule."""
    kinds: dict[str, Noise] = {**NOISES, "drifting (AR(1) 0.5)": drifting}
    target = precision.PrecisionTarget(precision=PRECISION, max_trials=MOST_TRIALS)
    rows = []
    for noise, make in kinds.items():
        for spread in spreads:
            reference = true_median(noise, spread)
            series = make(np.random.default_rng(1), (runs, MOST_TRIALS), spread)
            hits, counts, reasons = [], [], Counter[str]()
            for values in series.tolist():
                count, why = sequence(values, target)
                hits.append(holds(precision.sequential_interval(values[:count]), reference))
                counts.append(count)
                reasons[why] += 1
            parts = [f"{100 * reasons[why] / runs:.0f}" for why in _REASONS]
            cost = [f"{np.mean(counts):.1f}", f"{np.quantile(counts, 0.9):.0f}"]
            rows.append([f"{noise} {100 * spread:g} %", share(hits), *cost, *parts])
    title = (
        f"The whole rule with `--precision=1%` and the default `--max_trials={MOST_TRIALS}`, "
        f"{runs:,} runs a row: share of runs whose stated 95 % interval holds the true median, "
        "trials that it took, and what ended them (%)."
    )
    return title, ["noise", "covers %", "mean trials", "90th pct", *_REASONS], rows


_REASONS = ("precision", "noise", "max_trials")


def naive(runs: int) -> tuple[str, Row, list[Row]]:
    """Return the coverage of stopping on the plain interval."""
    rows = []
    for noise, make in NOISES.items():
        cells = [noise]
        for spread in SPREADS:
            reference = true_median(noise, spread)
            series = make(np.random.default_rng(2), (runs, MOST_TRIALS), spread)
            cells.append(share([holds(_plain(values), reference) for values in series]))
        rows.append(cells)
    title = (
        "For comparison, the same with the plain 95 % interval from five trials on, computed "
        "after every trial: share that holds the true median, by the noise."
    )
    return title, ["noise", *(f"{100 * spread:g} %" for spread in SPREADS)], rows


def _plain(values: Floats) -> ConfidenceInterval | None:
    found = None
    for count in range(5, len(values) + 1):
        found = stats.median_interval(values[:count])
        if found and found.half_width <= PRECISION * float(np.median(values[:count])):
            break
    return found


def allocation(runs: int) -> tuple[str, Row, list[Row]]:
    """Compare the reach of a time budget: trials in rounds, against the schedule's choice."""
    # Seconds a trial and noise: quick and slow, quiet and noisy.
    methods = {"a": (1.0, 0.004), "b": (1.0, 0.015), "c": (10.0, 0.004), "d": (10.0, 0.015)}
    rows = []
    for budget_s in (150.0, 250.0, 400.0):
        for name, steered in (("rounds", False), ("as shipped", True)):
            results = [_spend(methods, budget_s, steered, run) for run in range(runs)]
            widths = np.array([[widths[name] for name in methods] for widths, _ in results])
            cells = [f"{100 * np.mean(widths[:, at] <= PRECISION):.0f}" for at in range(4)]
            rows.append(
                [
                    f"{budget_s:.0f} s, {name}",
                    *cells,
                    f"{100 * np.mean(widths):.2f}",
                    f"{np.mean([spent for _, spent in results]):.0f}",
                ]
            )
    title = (
        f"Four methods (1 s and 10 s a trial, noise 0.4 % and 1.5 %), `--precision=1%` and a time "
        f"budget, {runs} runs a row: share (%) of runs in which each reached the precision, mean "
        "half-width over all (%), and seconds spent. `rounds` goes round all of them to the end."
    )
    header = ["budget", "1 s quiet", "1 s noisy", "10 s quiet", "10 s noisy", "half-width", "spent"]
    return title, header, rows


def _spend(
    methods: dict[str, tuple[float, float]], budget_s: float, steered: bool, run: int
) -> tuple[dict[str, float], float]:
    """Simulate one run on a clock of its own."""
    generator = np.random.default_rng(run)
    # Without steering nothing is ever precise enough, so that all go round until the time is up.
    precision = PRECISION if steered else 1e-9
    rules = Repetition(precision=precision, max_trials=1000 if not steered else MOST_TRIALS)
    schedule = Schedule(tuple(methods), 1, rules, seed=run)
    spent_s = 0.0
    values: dict[str, list[float]] = {name: [] for name in methods}
    while steps := schedule.next_round(budget_s - spent_s if steered else None):
        for step in steps:
            cost_s, spread = methods[step.method]
            if not steered and spent_s + 0.9 * cost_s > budget_s:
                return _widths(values), spent_s
            if steered and not schedule.fits(step, budget_s - spent_s):
                continue
            value = float(np.exp(spread * generator.standard_normal()))
            values[step.method].append(value)
            spent_s += cost_s
            schedule.note(step, TrialObservation(value=value, ran=True, cost_s=cost_s))
    return _widths(values), spent_s


def _widths(values: dict[str, list[float]]) -> dict[str, float]:
    found = {name: precision.relative_half_width(own) for name, own in values.items()}
    return {name: math.inf if width is None else width for name, width in found.items()}


def detectable(runs: int) -> tuple[str, Row, list[Row]]:
    """Return how often an effect of the size that a report names is found."""
    rows = []
    for noise in ("gaussian", "log-normal", "5 % outliers", "skewed"):
        cells = [noise]
        for size in (4, 6, 10, 20, 30):
            generator = np.random.default_rng(size)
            calm = NOISES[noise](generator, (20000,), SPREAD)
            effect = stats.minimum_detectable_effect(stats.relative_noise(calm) or 0.0, size) or 0.0
            base = np.log(NOISES[noise](generator, (runs, size), SPREAD))
            other = np.log((1 + effect) * NOISES[noise](generator, (runs, size), SPREAD))
            t = scipy_stats.ttest_ind(base, other, axis=1).pvalue < 0.05
            u = scipy_stats.mannwhitneyu(base, other, axis=1).pvalue < 0.05
            cells.append(f"{100 * np.mean(t):.0f} / {100 * np.mean(u):.0f}")
        rows.append(cells)
    title = (
        "Share (%) of comparisons of two samples that find (p < 0.05) a change of the size that "
        "a report names as detectable (meant: 80), by t test of logarithms / Mann-Whitney, by "
        "the number of trials a side."
    )
    return title, ["noise", "4", "6", "10", "20", "30"], rows


if __name__ == "__main__":
    raise SystemExit(main())

"""Find reasons to doubt the series of a trial: no steady state, few values, outliers, page faults.

With n independent values, the interval from the smallest to the largest holds the q-quantile with
probability 1 - q**n - (1-q)**n. That is 95 % from 6 values on for the median, from 29 for p90, from
299 for p99. Fewer values give no 95 % confidence interval of the percentile. Source: David &
Nagaraja, Order Statistics, 3rd ed., 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfrun.summary.finding import Finding, Severity
from perfrun.text import duration

CONFIDENCE = 0.95
PERCENTILES = {"p90": 0.90, "p99": 0.99}
TIMER_SHARE = 0.001  # of an interval; the timer may take this much (goal of `Benchmark.measure`)
RESOLUTION_STEPS = 1000  # steps of the clock that an interval must have for 0.1 %
# Tukey's outer fences (Exploratory Data Analysis, 1977): 1 in 400,000 normal values is beyond.
FENCE = 3.0
OUTLIERS_SHARE = 0.01  # a larger share affects the figures
OFF = 0.05  # of the median: without this, tiny deviations of an even sleep are outliers
_ENOUGH = 20  # fewer values have no useful quartiles
FAULTS_SHARE = 0.05  # of a step in the kernel, for page faults: the rest of it suffers, too
# A fault takes 0.25 us on a bare machine, 2 us in a virtual one; one that is served by a huge page
# takes the 100 us in which 2 MiB are cleared, and comes among hundreds of small ones. Where the
# kernel's time is more per fault than this, it has other reasons, such as reading and writing.
LONGEST_FAULT_S = 25e-6


def values_needed(quantile: float) -> int:
    """Return the least number of values that contain a 95 % interval of this quantile."""
    extreme = max(quantile, 1.0 - quantile)
    count = math.ceil(math.log(1.0 - CONFIDENCE) / math.log(extreme))
    while 1.0 - extreme**count - (1.0 - extreme) ** count < CONFIDENCE:
        count += 1
    return count


def series_findings(
    series: Sequence[Mapping[str, Any]], allocator: str = "default"
) -> Iterator[Finding]:
    """Yield the findings about each series; `series` is `perfrun.series` of the summary.

    `allocator` is the one that the trial had, by the name of `--allocator`.
    """
    for one in series:
        if one.get("statistics"):
            yield from _steadiness(one)
            yield from _percentiles(one)
            yield from _outliers(one)
            yield from _timer(one)
            yield from _page_faults(one, allocator)


def _steadiness(one: Mapping[str, Any]) -> Iterator[Finding]:
    found = one.get("steadiness") or {}
    kind, count = found.get("kind"), one["statistics"]["count"]
    compiled = {k: v for k, v in (one.get("recompilations") or {}).items() if v}
    if compiled:
        times = {name: n for name, n in compiled.items() if not name.endswith("_us")}
        what = ", ".join(f"{n} x {name}" for name, n in (times or compiled).items())
        yield Finding(
            code="recompiled",
            severity=Severity.WARNING,
            text=f"{one['name']}: compiled while it was timed ({what})",
            value=sum(times.values()) if times else None,
            limit=0,
            unit="times",
            mend="fix the shapes, or a longer warm-up",
        )
    if kind == "too_few":
        yield Finding(
            code="too_few_to_tell",
            severity=Severity.WARNING,
            text=f"{one['name']}: {count} timed iterations do not tell whether it is steady",
            value=count,
            unit="iterations",
            mend="more iterations, or a longer time",
        )
    elif kind == "slowdown" and found.get("steady"):
        yield Finding(
            code="slowdown",
            severity=Severity.WARNING,
            text=f"{one['name']}: became slower while it was timed; "
            f"the figures are of the last {count} iterations",
            value=count,
            unit="iterations",
            mend="look for a leak, a cache that fills up, heat, or other work that began",
        )
    elif found.get("steady") is False and not compiled:
        yield Finding(
            code="not_steady",
            severity=Severity.WARNING,
            text=f"{one['name']}: never came to a steady state ({kind})",
            mend="a longer warm-up; look at the series for a leak, a cache or a cycle",
        )


def _percentiles(one: Mapping[str, Any]) -> Iterator[Finding]:
    statistics = one["statistics"]
    for name, quantile in PERCENTILES.items():
        count, enough = statistics["count"], values_needed(quantile)
        if count >= enough:
            continue
        given = statistics.get(f"{name}_s") is not None
        yield Finding(
            code="too_few_samples",
            severity=Severity.WARNING if given else Severity.INFO,
            text=f"{one['name']}: {name} of {count} values "
            + ("is a guess" if given else "cannot be given")
            + f"; it needs {enough}",
            value=count,
            limit=enough,
            unit="values",
            mend="more iterations",
        )


def _outliers(one: Mapping[str, Any]) -> Iterator[Finding]:
    """Find values beyond the outer fences in the part that the statistics cover."""
    start = (one.get("steadiness") or {}).get("steady_from") or 0
    every = one.get("times_every") or 1
    times = (one.get("times_s") or ())[math.ceil(start / every) :]
    if len(times) < _ENOUGH:
        return
    ordered = sorted(times)
    low, high = ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]
    median = ordered[len(ordered) // 2]
    reach = max(FENCE * (high - low), OFF * median)
    beyond = [t for t in ordered if not low - reach <= t <= high + reach]
    share = len(beyond) / len(ordered)
    if beyond:
        yield Finding(
            code="outliers",
            severity=Severity.WARNING if share > OUTLIERS_SHARE else Severity.INFO,
            text=f"{one['name']}: {share:.1%} of the times are far from the others, "
            f"up to {_distance(beyond, median)}",
            value=share,
            limit=OUTLIERS_SHARE,
            unit="share",
            mend="look for interrupts, garbage collection and other work; the median stays right",
        )


def _distance(values: Sequence[float], median: float) -> str:
    farthest = max(values, key=lambda value: abs(value - median))
    if farthest >= 2 * median > 0:
        return f"{farthest / median:.1f} times the median"
    return f"{abs(farthest / median - 1):.0%} off the median" if median else duration(farthest, 2)


def _timer(one: Mapping[str, Any]) -> Iterator[Finding]:
    share = (one.get("timer") or {}).get("share")
    resolution = (one.get("clock") or {}).get("resolution_s")
    if share is not None and share > TIMER_SHARE:
        yield Finding(
            code="timer_overhead",
            severity=Severity.WARNING,
            text=f"{one['name']}: the timer takes {share:.2%} of the timed interval",
            value=share,
            limit=TIMER_SHARE,
            unit="share",
            mend="a larger block_size",
        )
    shortest = one["statistics"]["min_s"] * (one.get("block_size") or 1)
    if resolution and shortest < RESOLUTION_STEPS * resolution:
        yield Finding(
            code="timer_too_coarse",
            severity=Severity.WARNING,
            text=f"{one['name']}: an interval of {duration(shortest, 2)} is short for a clock with "
            f"steps of {duration(resolution, 2)}",
            value=shortest,
            limit=RESOLUTION_STEPS * resolution,
            unit="s",
            mend="a larger block_size",
        )


def _page_faults(one: Mapping[str, Any], allocator: str) -> Iterator[Finding]:
    """Find a step that spends much of its time on having its memory given back to it.

    The time of the step is its CPU time, or its latency where that is longer: a kernel that works
    while the step waits for a device costs the step nothing.
    """
    faults, system_s = one.get("minor_faults_per_step"), one.get("system_cpu_s")
    if not faults or not system_s:
        return
    step_s = max(one.get("cpu_s") or 0.0, one["statistics"]["median_s"])
    share = min(1.0, system_s / step_s) if step_s > 0 else 1.0
    if share > FAULTS_SHARE and system_s < LONGEST_FAULT_S * faults:
        yield Finding(
            code="page_faults",
            severity=Severity.WARNING,
            text=f"{one['name']}: {share:.0%} of a step is the kernel's work, with {faults:,.0f} "
            "page faults: memory is given back to the system and asked for again",
            value=share,
            limit=FAULTS_SHARE,
            unit="share",
            mend=_KEEPING.get(allocator, _KEEPING_OTHER),
        )


_KEEPING = {
    "default": "--allocator=retain keeps freed memory; without it, this figure is the allocator's",
    "tcmalloc": "--env=TCMALLOC_RELEASE_RATE=0 makes tcmalloc keep memory",
    "jemalloc": "--env=MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1 makes jemalloc keep memory",
}
_KEEPING_OTHER = "this memory is not taken by malloc: look for mmap, or fresh files and buffers"

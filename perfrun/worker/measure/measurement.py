"""The figures of a series, computed from its raw rows: for the benchmark and for the summary.

The worker evaluates a whole series; the harness evaluates, by the same function, a series whose
worker has died.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from perfrun.worker.measure.series_files import Columns
from perfrun.worker.measure.statistics import describe, median_of, standard_deviation, thinned
from perfrun.worker.measure.stopping import steady_part

KEPT_TIMES = 10_000  # in a summary; the file of rows keeps all
KEPT_WARMUP_TIMES = 1_000
LOWER, HIGHER = "lower", "higher"


def evaluate(rows: Columns) -> Dict[str, Any]:
    """Compute all figures that raw rows give by themselves. Times are seconds per step."""
    warm, timed = _parts(rows)
    warmup = warm.part(1)
    warm_kept, warm_every = thinned(_times(warmup), KEPT_WARMUP_TIMES)
    times = _times(timed)
    facts: Dict[str, Any] = {
        "first_call_s": warm.wall_ns[0] / 1e9 if warm.steps else None,
        "warmup": {
            "iterations": len(warmup.steps),
            "steps": -sum(warmup.steps),
            "time_s": sum(warmup.wall_ns) / 1e9,
            "times_s": _rounded(warm_kept),
            "every": warm_every,
        },
        "iterations": len(times),
        "steps": sum(timed.steps),
        "timed_s": sum(timed.wall_ns) / 1e9,
        "statistics": None,
        "steadiness": None,
        "cpu_s": None,
        "device_time_s": None,
        **_kept(times),
    }
    if times:
        facts.update(_evaluate_timed(timed, times))
    return facts


def kept_times(rows: Columns) -> Dict[str, Any]:
    """Return the times of a summary: all of them, or every k-th of a very long series."""
    return _kept(_times(_parts(rows)[1]))


def _kept(times: List[float]) -> Dict[str, Any]:
    kept, every = thinned(times, KEPT_TIMES)
    return {"times_s": _rounded(kept), "times_every": every}


def _parts(rows: Columns) -> Tuple[Columns, Columns]:
    """Split rows into those before the timed part, and the timed part."""
    count = len(rows.steps)
    begin = next((number for number, steps in enumerate(rows.steps) if steps > 0), count)
    return rows.part(0, begin), rows.part(begin)


def _times(rows: Columns) -> List[float]:
    return [wall_ns / 1e9 / abs(steps) for wall_ns, steps in zip(rows.wall_ns, rows.steps)]


def _evaluate_timed(timed: Columns, times: List[float]) -> Dict[str, Any]:
    kind, begin = steady_part(times)
    steady = timed.part(begin or 0)
    pairs = zip(steady.device_ns, steady.steps)
    on_device = [device_ns / 1e9 / steps for device_ns, steps in pairs if device_ns >= 0]
    return {
        "steadiness": {"kind": kind, "steady_from": begin},
        "statistics": _statistics(times[begin:] if begin else times, begin),
        "cpu_s": sum(steady.cpu_ns) / 1e9 / sum(steady.steps),
        "device_time_s": median_of(sorted(on_device)) if on_device else None,
    }


def _statistics(times: List[float], begin: Optional[int]) -> Dict[str, Any]:
    found = describe(times)
    interval = found.interval
    rate_deviation = None
    if found.minimum > 0:
        rates = [1.0 / time for time in times]
        rate_deviation = standard_deviation(rates, math.fsum(rates) / len(rates))
    return {
        "of": "all timed iterations" if not begin else "the steady part, from iteration %d" % begin,
        "count": found.size,
        "median_s": found.median,
        "median_low_s": interval.low if interval else None,
        "median_high_s": interval.high if interval else None,
        "precision": found.precision,
        "mean_s": found.mean,
        "std_s": found.deviation,
        "rate_std_per_s": rate_deviation,
        "p50_s": found.median,
        "p90_s": found.p90,
        "p99_s": found.p99,
        "min_s": found.minimum,
        "max_s": found.maximum,
        "correlation": round(found.correlation, 3),
        "absent": dict(found.absent),
    }


def _rounded(times: Sequence[float]) -> List[float]:
    """Round times to a picosecond, which is finer than any clock."""
    return [round(time, 12) for time in times]


class Measurement:
    """The result of one call of `measure`. Times are in seconds per step; None is unknown.

    `facts` has all figures, as they stand in the summary's `perfrun.series`
    (docs/reference/results.md).
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts: Dict[str, Any] = dict(facts)
        statistics: Mapping[str, Any] = self.facts["statistics"]
        self.name: str = self.facts["name"]
        self.first_call_s: float = self.facts["first_call_s"]
        self.warmup_s: float = self.facts["warmup"]["time_s"]
        self.warmup_iterations: int = self.facts["warmup"]["iterations"]
        self.iterations: int = self.facts["iterations"]
        self.block_size: int = self.facts["block_size"]
        self.times_s: List[float] = self.facts["times_s"]
        self.median_s: float = statistics["median_s"]
        self.mean_s: float = statistics["mean_s"]
        self.std_s: Optional[float] = statistics["std_s"]
        self.p90_s: Optional[float] = statistics["p90_s"]
        self.p99_s: Optional[float] = statistics["p99_s"]
        self.min_s: float = statistics["min_s"]
        self.max_s: float = statistics["max_s"]
        self.median_low_s: Optional[float] = statistics["median_low_s"]
        self.median_high_s: Optional[float] = statistics["median_high_s"]
        self.precision: Optional[float] = statistics["precision"]
        self.cpu_s: float = self.facts["cpu_s"]
        self.system_cpu_s: Optional[float] = self.facts["system_cpu_s"]
        self.minor_faults_per_step: Optional[float] = self.facts["minor_faults_per_step"]
        self.major_faults_per_step: Optional[float] = self.facts["major_faults_per_step"]
        self.device_time_s: Optional[float] = self.facts["device_time_s"]
        self.items_per_step: float = self.facts["items_per_step"]
        self.throughput: Optional[float] = self.facts["throughput_per_s"]
        self.throughput_per_device: Optional[float] = self.facts["throughput_per_device_per_s"]
        self.stopped_by: str = self.facts["stopped_by"]
        self.steadiness: str = self.facts["steadiness"]["kind"]
        self.steady: Optional[bool] = self.facts["steadiness"]["steady"]
        self.steady_from: Optional[int] = self.facts["steadiness"]["steady_from"]
        self.notes: List[str] = self.facts["notes"]

    def report_arguments(
        self,
        extras: Optional[Mapping[str, Any]] = None,
        metrics: Sequence[Mapping[str, Any]] = (),
    ) -> Dict[str, Any]:
        """Return arguments for `report_benchmark`: our metrics and extras, then the given ones."""
        own = [
            {"name": name, "value": metric["value"]}
            for name, metric in self.facts["metrics"].items()
        ]
        notes: Dict[str, Any] = {
            "steadiness": self.steadiness,
            "stopped_by": self.stopped_by,
            "block_size": self.block_size,
        }
        return {
            "iters": self.facts["steps"],
            "cpu_time": self.cpu_s,
            "wall_time": self.median_s,
            "throughput": self.throughput,
            "metrics": own + [dict(metric) for metric in metrics],
            "extras": dict(notes, **(extras or {})),
        }

    def __str__(self) -> str:
        spread = "" if self.precision is None else " +- %.2g %%" % (100 * self.precision)
        faults = self.minor_faults_per_step or 0
        kernel = ", %.0f page faults a step" % faults if faults >= 1 else ""
        return "%s: %.4g s per step%s (median of %d), first call %.4g s, %s, stopped by %s%s" % (
            self.name,
            self.median_s,
            spread,
            self.facts["statistics"]["count"],
            self.first_call_s,
            self.steadiness if self.steady is not False else "NOT STEADY (%s)" % self.steadiness,
            self.stopped_by,
            kernel,
        )


def derive(facts: Dict[str, Any]) -> Dict[str, Any]:
    """Add the throughput, the verdict on steadiness and the metrics to an evaluated series."""
    statistics = facts["statistics"]
    facts["throughput_per_s"] = facts["throughput_per_device_per_s"] = None
    facts["metrics"] = {}
    if statistics is None:
        return facts
    steadiness = facts["steadiness"]
    steadiness["steady"] = _is_steady(steadiness, facts.get("recompilations") or {})
    if statistics["median_s"] > 0:  # else the clock is too coarse for these steps
        facts["throughput_per_s"] = facts["items_per_step"] / statistics["median_s"]
        facts["throughput_per_device_per_s"] = facts["throughput_per_s"] / facts["devices"]
    facts["metrics"] = _metrics(facts)
    return facts


def _is_steady(steadiness: Mapping[str, Any], recompilations: Mapping[str, Any]) -> Optional[bool]:
    """Return True for a steady series, in which nothing was compiled; None for one too short."""
    if any(recompilations.values()):
        return False
    if steadiness["kind"] == "too_few":
        return None
    return steadiness["steady_from"] is not None


def _metrics(facts: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """Return the metrics of the report: value, unit, and the better direction."""
    statistics = facts["statistics"]
    seconds = {
        "latency_median_s": statistics["median_s"],
        "latency_mean_s": statistics["mean_s"],
        "latency_std_s": statistics["std_s"],
        "latency_p50_s": statistics["p50_s"],
        "latency_p90_s": statistics["p90_s"],
        "latency_p99_s": statistics["p99_s"],
        "latency_min_s": statistics["min_s"],
        "latency_max_s": statistics["max_s"],
        "latency_median_low_s": statistics["median_low_s"],
        "latency_median_high_s": statistics["median_high_s"],
        "device_time_median_s": facts["device_time_s"],
        "first_call_s": facts["first_call_s"],
        "warmup_s": facts["warmup"]["time_s"] if facts["warmup"]["iterations"] else None,
    }
    item = facts["item"]
    rate_std = statistics["rate_std_per_s"]
    rates = {
        "%ss_per_second" % item: facts["throughput_per_s"],
        "%ss_per_second_per_device" % item: facts["throughput_per_device_per_s"],
    }
    metrics = {
        name: {"value": value, "unit": "s", "direction": LOWER} for name, value in seconds.items()
    }
    for name, value in rates.items():
        metrics[name] = {"value": value, "unit": "%ss/s" % item, "direction": HIGHER}
    if rate_std is not None:
        name, value = "%ss_per_second_std" % item, facts["items_per_step"] * rate_std
        metrics[name] = {"value": value, "unit": "%ss/s" % item, "direction": LOWER}
    return {name: metric for name, metric in metrics.items() if metric["value"] is not None}

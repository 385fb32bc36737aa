"""Take the metrics of a trial from its summary: primary ones, and those derived from them.

Of one call of `Benchmark.measure`, the median time per step is primary; all else that follows from
the same timed steps is derived from it: percentiles, mean, throughput. A regression shows in all of
them and is still one regression. A metric that a user reports himself is always primary, also when
perfrun has a metric of that name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from perfrun.analysis import directions
from perfrun.analysis.directions import Direction
from perfrun.dataclass import dataclass
from perfrun.summary.series_identity import is_number, objects, section, text

WALL_TIME, THROUGHPUT, PEAK_RSS = "wall_time", "throughput", "peak_rss_bytes"
MEDIAN, FIRST_CALL = "latency_median_s", "first_call_s"
_LONGEST_EXTRA = 1000  # characters; some benchmarks report whole logs
_STATED: Mapping[str, Direction] = {"lower": "lower", "higher": "higher", "none": "none"}


@dataclass(frozen=True, kw_only=True)
class MetricValue:
    """The value of one metric of one trial."""

    name: str
    value: float  # always finite
    stated_unit: str = ""  # '' when not stated
    stated_direction: str = ""  # lower, higher or none; '' when not stated
    derived_from: str = ""  # name of the primary metric; '' for a primary metric itself

    @property
    def unit(self) -> str:
        """The unit, as stated or else by the name; '' when unknown."""
        return unit_of(self.name, self.stated_unit)

    @property
    def direction(self) -> Direction:
        """The better direction, as stated or else by the name."""
        return direction_of(self.name, self.stated_direction)


@lru_cache(4096)
def direction_of(name: str, stated: str = "") -> Direction:
    """Return the better direction: as stated, else by the last part of the name, else by all."""
    if stated in _STATED:
        return _STATED[stated]
    own = directions.direction_of(name.rpartition("/")[2])
    return directions.direction_of(name) if own == "none" else own


@lru_cache(4096)
def unit_of(name: str, stated: str = "") -> str:
    """Return the unit, as stated or else by the name; '' when unknown."""
    return stated or directions.unit_of(name.rpartition("/")[2]) or directions.unit_of(name)


def metrics_of(document: Mapping[str, Any]) -> tuple[dict[str, MetricValue], dict[str, Any]]:
    """Return the metrics of a trial whose method ended, and the other extras of its reports."""
    found = _Metrics()
    found.take(document)
    return found.metrics, found.extras


def from_series(
    report: Mapping[str, Any], series: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any] | None]:
    """Return the series' facts about each metric of a report; None for a user's own metric.

    A metric is the series' own when name and value are those of the series, and each counts once: a
    second metric of that name is the user's own.
    """
    unclaimed: dict[str, list[Mapping[str, Any]]] = {}
    for one in series:
        metrics = section(one, "metrics")
        for key in metrics:
            unclaimed.setdefault(key, []).append(section(metrics, key))
    found: list[Mapping[str, Any] | None] = []
    for metric in objects(report.get("metrics")):
        name, value = metric.get("name"), metric.get("value")
        known = unclaimed.get(name, []) if isinstance(name, str) else []
        own = next((facts for facts in known if facts.get("value") == value), None)
        if own is not None:
            known.remove(own)
        found.append(own)
    return found


def series_of(document: Mapping[str, Any], report: str) -> list[Mapping[str, Any]]:
    """Return the series of `Benchmark.measure` from which the report of that name was made."""
    return [
        one
        for one in objects(section(document, "perfrun").get("series"))
        if one.get("report") is not None and text(one["report"]) in (report, "")
    ]


class _Metrics:
    """The metrics of a summary. The first of a name counts; a user's own goes before perfrun's."""

    def __init__(self) -> None:
        self.metrics: dict[str, MetricValue] = {}
        self.extras: dict[str, Any] = {}
        self._of_series: set[str] = set()
        self._medians: dict[float, str] = {}  # wall time -> the metric with that value

    def take(self, document: Mapping[str, Any]) -> None:
        own, result = section(document, "perfrun"), section(document, "benchmark_result")
        reports = objects(own.get("reports"))
        first = reports[0] if reports else {}
        name = text(first.get("name"))
        self._report("", result, first.get("throughput"), series_of(document, name))
        for number, report in enumerate(reports[1:], 2):
            name = text(report.get("name"))
            prefix = f"{name.rpartition('.')[2] or 'report'}/"
            if f"{prefix}{WALL_TIME}" in self.metrics:
                prefix = f"{prefix[:-1]}#{number}/"
            self._report(prefix, report, report.get("throughput"), series_of(document, name))
        for one in objects(own.get("series")):
            if one.get("report") is None:
                self._unreported(one)
        # PerfZero's 0 is unknown: the method ended before the first sample.
        self._add(PEAK_RSS, section(document, "process_info").get("max_rss"), least=1)

    def _report(
        self,
        prefix: str,
        report: Mapping[str, Any],
        throughput: Any,
        series: Sequence[Mapping[str, Any]],
    ) -> None:
        wall_time = report.get("wall_time")
        if wall_time != 0:  # 0 in a report is unknown
            self._add(f"{prefix}{WALL_TIME}", wall_time, ("s", "lower"), least=0)
            if is_number(wall_time) and wall_time > 0:
                self._medians.setdefault(wall_time, f"{prefix}{WALL_TIME}")
        own = from_series(report, series)
        entries = objects(report.get("metrics"))
        primary = self._primary(prefix, wall_time, series, zip(entries, own, strict=True))
        if throughput != 0:
            is_ours = throughput in [one.get("throughput_per_s") for one in series]
            self._add(f"{prefix}{THROUGHPUT}", throughput, derived_from=primary if is_ours else "")
            if is_ours:
                self._of_series.add(f"{prefix}{THROUGHPUT}")
        for metric, facts in zip(entries, own, strict=True):
            self._metric(prefix, text(metric.get("name")), metric.get("value"), facts, primary)
        for extra in objects(report.get("extras")):
            self._extra(prefix, text(extra.get("name")), extra.get("value"))

    def _primary(
        self,
        prefix: str,
        wall_time: Any,
        series: Sequence[Mapping[str, Any]],
        entries: Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
    ) -> str:
        """Return the primary metric of a report's series: its wall time, if it is their median."""
        medians = [section(section(one, "metrics"), MEDIAN).get("value") for one in series]
        if is_number(wall_time) and wall_time in medians:
            return f"{prefix}{WALL_TIME}"
        if any(own is not None and metric.get("name") == MEDIAN for metric, own in entries):
            return f"{prefix}{MEDIAN}"
        return ""

    def _metric(
        self, prefix: str, name: str, value: Any, facts: Mapping[str, Any] | None, primary: str
    ) -> None:
        if not name:
            return
        full = f"{prefix}{name}"
        if facts is None:
            if full in self._of_series:  # the user's own goes before perfrun's of that name
                self._of_series.discard(full)
                self.metrics.pop(full, None)  # no number was there, or a negative one
            self._add(full, value)
        elif full not in self.metrics:
            self._add(full, value, _stated(facts), derived_from=_derived(full, name, primary))
            self._of_series.add(full)

    def _extra(self, prefix: str, name: str, value: Any) -> None:
        """Add an extra; it is a metric if its name tells the direction, as examples_per_second."""
        if is_number(value) and directions.direction_of(name) != "none":
            self._metric(prefix, name, value, None, "")
        elif (
            isinstance(value, bool)
            or is_number(value)
            or (isinstance(value, str) and len(value) <= _LONGEST_EXTRA)
        ):
            self.extras.setdefault(f"{prefix}{name}", value)

    def _unreported(self, series: Mapping[str, Any]) -> None:
        """Add a series without a report; its median may be what the user reported."""
        metrics = section(series, "metrics")
        prefix = f"{text(series.get('name')) or 'series'}/"
        median = section(metrics, MEDIAN).get("value")
        primary = f"{prefix}{MEDIAN}" if is_number(median) else ""
        if is_number(median):
            primary = self._medians.get(median, primary)
        for key in metrics:
            name, facts = text(key), section(metrics, key)
            full = f"{prefix}{name}"
            derived = _derived(full, name, primary)
            self._add(full, facts.get("value"), _stated(facts), derived_from=derived)

    def _add(
        self,
        name: str,
        value: Any,
        stated: tuple[str, str] = ("", ""),
        *,
        derived_from: str = "",
        least: float = -math.inf,
    ) -> None:
        if name not in self.metrics and is_number(value) and value >= least:
            self.metrics[name] = MetricValue(
                name=name,
                value=float(value),
                stated_unit=stated[0],
                stated_direction=stated[1],
                derived_from=derived_from,
            )


def _derived(full: str, name: str, primary: str) -> str:
    """Return the primary metric of a derived one; the first call is no timed step, so primary."""
    return "" if name == FIRST_CALL or full == primary else primary


def _stated(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Return unit and direction, as the series states them."""
    direction = text(facts.get("direction"))
    return text(facts.get("unit")), direction if direction in _STATED else ""

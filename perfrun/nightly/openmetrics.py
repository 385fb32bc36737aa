"""A night as OpenMetrics text, for a textfile collector.

https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perfrun.nightly.report import MethodReport, NightReport
from perfrun.shown import label

_STATES = ("ok", "short", "failed", "out_of_bounds", "not_run")
Sample = tuple[Mapping[str, str], float]  # labels, value


def openmetrics(report: NightReport) -> str:
    """Return the night as gauges.

    One family holds the medians of all metrics, with the metric as a label: names in OpenMetrics
    are restricted, those of a benchmark's metrics are not.
    """
    who = {"suite": report.suite}
    lines = [
        *_family(
            "perfrun_night_begun_timestamp_seconds",
            "When the last night began.",
            [(who, report.begun)],
            unit="seconds",
        ),
        *_family(
            "perfrun_night_ended_timestamp_seconds",
            "When the last night ended.",
            [(who, report.ended)],
            unit="seconds",
        ),
        *_family("perfrun_night_ok", "1 when nothing is wrong.", [(who, float(report.is_ok))]),
        *_family(
            "perfrun_night_errors",
            "What went wrong besides the methods.",
            [(who, float(len(report.errors)))],
        ),
        *_family("perfrun_method_trials", "Trials of a method.", _trials(report)),
        *_family("perfrun_method_state", "1 for the state that a method is in.", _states(report)),
        *_family(
            "perfrun_method_median",
            "Median of a metric over the trials of the night, in the unit of the label.",
            _medians(report),
        ),
        *_family(
            "perfrun_night_regressions",
            "Changes for the worse that the last night has made sure.",
            [(who, float(len(report.regressions)))],
        ),
        "# EOF",
    ]
    return "\n".join(lines) + "\n"


def _labels(report: NightReport, method: MethodReport) -> dict[str, str]:
    return {
        "suite": report.suite,
        "environment": method.environment,
        "unit_of_night": method.unit,
        "method": method.method,
        **({"setting": method.setting_text} if method.setting else {}),
    }


def _trials(report: NightReport) -> list[Sample]:
    return [(_labels(report, method), float(method.trials)) for method in report.methods]


def _states(report: NightReport) -> list[Sample]:
    return [
        ({**_labels(report, method), "state": state}, float(method.state == state))
        for method in report.methods
        for state in _STATES
    ]


def _medians(report: NightReport) -> list[Sample]:
    return [
        (
            {
                **_labels(report, method),
                "metric": figure.metric,
                "unit": figure.unit,
                "direction": figure.direction,
            },
            figure.median,
        )
        for method in report.methods
        for figure in method.figures
    ]


def _family(name: str, text: str, samples: Sequence[Sample], unit: str = "") -> Iterable[str]:
    yield f"# TYPE {name} gauge"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {text}"
    for labels, figure in samples:
        pairs = ",".join(f'{key}="{label(value)}"' for key, value in labels.items())
        yield f"{name}{{{pairs}}} {_number(figure)}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")

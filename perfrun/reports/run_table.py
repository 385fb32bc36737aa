"""The results of a run as text: a table by method, statistics over trials, profiles.

All functions turn values into text and touch nothing else.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.analysis.directions import unit_of
from perfrun.reports.table import Column, Table, TableCell, aligned
from perfrun.summary.document import Status, TrialResult
from perfrun.summary.estimates import MethodEstimate, observe, used_values
from perfrun.summary.finding import Severity
from perfrun.summary.metrics import from_series, series_of
from perfrun.text import duration, rounded, scale_of, spread

_COLUMNS = (
    Column(heading="method", share=3),
    Column(heading="trials", right=True, whole=True),
    Column(heading="outcome", least=len("outcome")),
    Column(heading="grade", least=len("grade")),
    Column(heading="wall time", right=True, whole=True),
    Column(heading="metrics", share=4),
    Column(heading="peak memory", right=True, whole=True),
    Column(heading="folder", share=2),
)
_COLOURS = {
    Status.PASSED: "green",
    Status.OUT_OF_BOUNDS: "yellow",
    Status.INTERRUPTED: "yellow",
}
_MORE = 1.02  # times the worker's memory; only a larger tree has its own line
_REASONS = {
    "precision": "precision reached",
    "noise": "stopped: its noise will not let it reach the precision",
    "max_trials": "stopped by --max_trials",
    "time_budget": "stopped by --time_budget",
    "failed": "stopped: it keeps failing",
    "no_figure": "stopped: it reports no wall time above 0",
    "interrupted": "interrupted",
}
_ONE_TRIAL = (
    "One trial a method: no interval and no smallest detectable change "
    "(--benchmark_num_trials or --precision give both)."
)
SHOWN_ROWS = 5
_LONGEST_NAME = 60
_LACKING = "UnavailableError: "  # the environment under test lacks the profiler
_HEADINGS = {
    "self_s": "self ms",
    "total_s": "total ms",
    "device_s": "device ms",
    "calls": "calls",
    "bytes": "MiB",
    "allocations": "allocations",
    "count": "count",
    "per_step": "per step",
}
_PARTS = {
    "method": "the whole method",
    "process": "import, construction and method",
}


def run_table(results: Sequence[TrialResult]) -> Table:
    """Return the table of a run, with one row for each method."""
    return Table(
        columns=_COLUMNS,
        rows=tuple(
            (
                name,
                str(len(trials)),
                _outcomes(trials),
                grades(trials),
                wall_times(trials),
                TableCell(tuple(_shortened(metric_lines(trials)))),
                TableCell(tuple(peak_memory(trials))),
                TableCell(tuple(folder_lines(trials))),
            )
            for name, trials in _by_method(results).items()
        ),
    )


def _by_method(results: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    methods: dict[str, list[TrialResult]] = {}
    for result in results:
        methods.setdefault(result.name, []).append(result)
    return methods


def _outcomes(trials: Sequence[TrialResult]) -> TableCell:
    counts = Counter(trial.status for trial in trials)
    return TableCell(
        tuple(s.value if len(counts) == 1 else f"{n} {s.value}" for s, n in counts.items()),
        tuple(_COLOURS.get(status, "red") for status in counts),
    )


def grades(trials: Sequence[TrialResult]) -> str:
    """Return the grade of the trials, or the best and the worst one."""
    known = sorted({trial.grade for trial in trials if trial.grade})
    return "-" if not known else known[0] if len(known) == 1 else f"{known[0]}..{known[-1]}"


def quality_line(result: TrialResult) -> str | None:
    """Return the trial's grade and findings in one line; None without warnings.

    A finding on several series or devices is shown once, for the first; the summary has them all.
    """
    quality = result.document["perfrun"].get("quality") or {}
    found: dict[str, list[str]] = {}
    for finding in quality.get("findings", ()):
        if finding["severity"] != Severity.INFO:
            found.setdefault(finding["code"], []).append(finding["text"])
    doubts = [
        texts[0] + (f" (and {len(texts) - 1} more like it)" if len(texts) > 1 else "")
        for texts in found.values()
    ]
    word = ", disturbed" if result.disturbed else ""
    return f"quality {result.grade}{word}: {'; '.join(doubts)}" if doubts else None


def wall_times(trials: Sequence[TrialResult]) -> str:
    """Return the wall time of the trials: one figure, or the median with the range.

    The trials are those that the statistics below the table use, if there are any.
    """
    used = used_values([observe(trial.document) for trial in trials])
    if used:
        return _spread(used, "s")
    values = [trial.document["benchmark_result"]["wall_time"] for trial in trials]
    reported = [value for value in values if value != -1]
    numbers = _finite(reported)
    if numbers:
        return _spread(numbers, "s")
    return "not finite" if reported else "-"


def metric_lines(trials: Sequence[TrialResult]) -> list[str]:
    """Return one line for each metric: median and range over the trials, and its bounds.

    Of the metrics that `Benchmark.measure` reports, these are the ones that people compare, and
    those with bounds.
    """
    values: dict[str, list[float]] = {}
    bounds: dict[str, str] = {}
    for trial in trials:
        report = trial.document["benchmark_result"]
        stated = from_series(report, _series(trial.document))
        for metric, of_series in zip(report["metrics"], stated, strict=True):
            if of_series is not None and not _is_shown(metric["name"]) and not _bounds(metric):
                continue
            for value in _finite([metric["value"]]):
                values.setdefault(metric["name"], []).append(value)
            bounds[metric["name"]] = _bounds(metric)
    return [
        f"{name} {_spread(values[name], _time_unit(name)) if name in values else 'not finite'}"
        f"{bounds[name]}"
        for name in bounds
    ]


def _series(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    reports = document.get("perfrun", {}).get("reports") or ()
    return series_of(document, reports[0]["name"] if reports else "")


def _is_shown(metric: str) -> bool:
    """Return True for a metric of a series that is shown; the summary has the others, too."""
    shown = {"latency_p90_s", "latency_p99_s", "device_time_median_s", "first_call_s"}
    return metric in shown or metric.endswith("s_per_second")


def _finite(values: Sequence[Any]) -> list[float]:
    """Return the finite numbers; a summary that was read from disk has the text `"NaN"` for NaN."""
    return [v for v in values if isinstance(v, int | float) and math.isfinite(v)]


def _shortened(lines: list[str], most: int = 20) -> list[str]:
    """Return the first lines, and how many more the summary has."""
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _bounds(metric: Mapping[str, Any]) -> str:
    low, high = metric.get("min_value"), metric.get("max_value")
    if low is None and high is None:
        return ""
    write = duration if _time_unit(metric["name"]) else rounded
    # An infinite bound of a summary that was read from disk is a text.
    shown = ["" if bound is None else write(float(bound)) for bound in (low, high)]
    return f" in [{', '.join(shown)}]"


def _time_unit(metric: str) -> str:
    """Return `s` for a metric whose name ends in seconds, else an empty text."""
    says = metric.lower().endswith(("_s", "_sec", "_secs", "_seconds"))
    return "s" if says and unit_of(metric) == "s" else ""


def peak_memory(trials: Sequence[TrialResult]) -> list[str]:
    """Return the largest peak of resident memory, and that of the process tree if it is larger."""
    worker, tree = (_largest(trials, key) for key in ("max_rss", "max_tree_pss"))
    if not worker:
        return ["-"]
    own = f"{worker / 2**20:,.0f} MiB"
    return [own, f"tree {tree / 2**20:,.0f} MiB"] if tree > _MORE * worker else [own]


def _largest(trials: Sequence[TrialResult], key: str) -> float:
    return max((trial.document["process_info"].get(key) or 0 for trial in trials), default=0)


def folder_lines(trials: Sequence[TrialResult], most: int = 3) -> list[str]:
    """Return the folders of the trials; of many, the first ones and how many more there are."""
    folders = [shown_path(str(Path(trial.summary).parent)) for trial in trials]
    if len(folders) <= most:
        return folders
    return [*folders[: most - 1], f"and {len(folders) - most + 1} more"]


def _spread(values: Sequence[float], unit: str) -> str:
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return spread(median, ordered[0], ordered[-1], unit)


def shown_path(path: str) -> str:
    """Return the path, relative to the current folder if that is shorter."""
    try:
        relative = os.path.relpath(path)
    except OSError:  # the current folder has been removed
        return path
    return relative if len(relative) < len(path) and sys.platform != "win32" else path


def statistics_lines(methods: Sequence[MethodEstimate]) -> list[str]:
    """Return one line for each method; a single one when no method has more than one trial."""
    if all(method.trials <= 1 for method in methods):
        if not any(method.used for method in methods):
            return []
        return [_ONE_TRIAL]
    return ["", *(_line(method) for method in methods)]


def _line(method: MethodEstimate) -> str:
    texts = [
        _median(method),
        _noise(method),
        *_not_used(method),
        _REASONS.get(method.stopped_by or "", ""),
    ]
    return f"{method.name}: " + "; ".join(text for text in texts if text)


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
    """Return the interval, with as many decimals as its ends need to differ."""
    width = high - low
    decimals = min(9, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else 3
    return f"{low:.{decimals}f}..{high:.{decimals}f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage with two significant digits."""
    if share is None:
        return "?"
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"


def profile_lines(result: TrialResult) -> list[str]:
    """Return the lines of each profile of a profile trial, or the reason why there is none."""
    own = result.document["perfrun"]
    kind, outcome = own["order"]["profile"], own["outcome"]
    lines = []
    if not result.status.ran:
        reason = str(outcome["reason"])
        what = f"{result.status.value} ({reason})"
        if reason.startswith(_LACKING):
            what = f"none: {reason.removeprefix(_LACKING)}"
        lines.append(f"profile {kind} of {result.name}: {what}")
    folder = Path(result.summary).parent
    for profile in own["profiles"]:
        lines += _block(profile, result.name, folder)
    return lines


def _block(profile: Mapping[str, Any], method: str, folder: Path) -> list[str]:
    tool = " ".join(filter(None, (profile["tool"], profile["version"])))
    lines = [f"profile {profile['kind']} of {method}, by {tool}{_recorded(profile['windows'])}"]
    lines += [f"  {text}" for text in (profile["error"], *profile["notes"]) if text]
    lines += [f"  {shown_path(str(folder / one['path']))}" for one in profile["files"]]
    top = profile["top"]
    # A counter is no part of the one above it, and a line of many is within those above it.
    is_short = top and not {"self_s", "bytes"} & set(top[0])
    shown = top if is_short else top[:SHOWN_ROWS]
    return lines + [f"  {line}" for line in _rows(shown)]


def _recorded(windows: Sequence[Mapping[str, Any]]) -> str:
    if not windows:
        return ": nothing recorded"
    seconds = sum(window["end_s"] - window["begin_s"] for window in windows)
    steps = [window["steps"] for window in windows if window["steps"] is not None]
    what = f"{sum(steps)} timed steps" if steps else _PARTS.get(windows[0]["part"], "?")
    return f": {what}, {duration(seconds, 3)}"


def _rows(top: Sequence[Mapping[str, Any]]) -> list[str]:
    if not top:
        return []
    names = [name for name in _HEADINGS if name in top[0]]
    columns = tuple(Column(heading=_HEADINGS[name], right=True) for name in names)
    rows = tuple((*(_figure(name, row[name]) for name in names), _what(row)) for row in top)
    return aligned(Table(columns=(*columns, Column(heading="what")), rows=rows))


def _figure(name: str, value: float) -> str:
    if name == "bytes":
        return f"{value / 2**20:.1f}"
    if name in ("count", "per_step"):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{1e3 * value:.3f}" if name.endswith("_s") else str(value)


def _what(row: Mapping[str, Any]) -> str:
    path, _, line = str(row.get("where") or "").rpartition(":")
    place = f"{'/'.join(Path(path).parts[-2:])}:{line}" if path else ""
    name = str(row["name"])
    if row.get("unit") == "s":
        name = f"{name}, s"
    if len(name) > _LONGEST_NAME:
        name = name[: _LONGEST_NAME - 3] + "..."
    return " ".join(filter(None, (name, place)))

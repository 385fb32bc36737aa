"""The results of a run as text: a table by method, folders, statistics over trials, profiles.

All functions turn values into text and touch nothing else.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfrun.analysis.directions import direction_of
from perfrun.reports.figures import bound_text, metric_text, name_and_unit, percent
from perfrun.reports.quality_words import grades
from perfrun.reports.table import Column, Table, TableCell, aligned
from perfrun.summary.document import Status, TrialResult
from perfrun.summary.estimates import MethodEstimate, observe, used_values
from perfrun.text import duration, spread

STATUS_COLOURS = {
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
MOST_METRICS = 3  # of a method, without --metrics
_MOST_FOLDERS = 12  # of a run; of more, only those of trials that did not pass
# Derived from the samples of the wall time, and no news to people.
_OF_SERIES = r"(?:.*/)?(?:latency|operation|warmup|device_time)_?\w*_s|.*_(?:std|per_device)"
_TIMES = ("latency_p90_s", "latency_p99_s", "first_call_s", "device_time_median_s")
_LAST = 9  # place of a metric that says what another one says
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


def run_table(
    results: Sequence[TrialResult],
    methods: Sequence[MethodEstimate] = (),
    metrics: re.Pattern[str] | None = None,
) -> Table:
    """Return the table of a run, with one row for each method.

    `methods` has the intervals of the wall times; without, the table has the range of the trials.
    `metrics` are those to be shown; without, they are the three that people look for first.
    """
    intervals = {method.name: method for method in methods}
    rows = []
    for name, trials in _by_method(results).items():
        shown = metric_lines(trials, metrics)
        rows.append(
            (
                name,
                str(len(trials)),
                _outcomes(trials),
                grades(trials),
                wall_times(trials, intervals.get(name)),
                TableCell(tuple(shown if metrics else shown[:MOST_METRICS]) or ("-",)),
                TableCell(tuple(peak_memory(trials))),
            )
        )
    repeated = len(results) > len(rows)
    interval = "95 % interval" if any(m.low_s is not None for m in methods) else "lowest..highest"
    return Table(
        columns=(
            Column(heading="method"),
            Column(heading="trials", right=True),
            Column(heading="outcome"),
            Column(heading="grade"),
            Column(heading=f"wall time ({interval})" if repeated else "wall time", right=True),
            Column(heading="metrics (lowest..highest)" if repeated else "metrics"),
            Column(heading="peak memory", right=True),
        ),
        rows=tuple(rows),
    )


def more_metrics(results: Sequence[TrialResult]) -> str | None:
    """Return the line that says how the metrics are seen that the table leaves out."""
    most = max((len(metric_lines(own)) for own in _by_method(results).values()), default=0)
    if most <= MOST_METRICS:
        return None
    return f"Up to {most - MOST_METRICS} more metrics a method: --metrics=all, or the summaries."


def _by_method(results: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    methods: dict[str, list[TrialResult]] = {}
    for result in results:
        methods.setdefault(result.name, []).append(result)
    return methods


def _outcomes(trials: Sequence[TrialResult]) -> TableCell:
    counts = Counter(trial.status for trial in trials)
    return TableCell(
        tuple(s.value if len(counts) == 1 else f"{n} {s.value}" for s, n in counts.items()),
        tuple(STATUS_COLOURS.get(status, "red") for status in counts),
    )


def wall_times(trials: Sequence[TrialResult], method: MethodEstimate | None = None) -> str:
    """Return the wall time of the trials: one figure, or the median with its interval.

    Without an interval it is the range. The trials are those that the statistics use, if there are
    any.
    """
    if method and method.median_s is not None and method.low_s is not None:
        return spread(method.median_s, method.low_s, method.high_s or method.low_s, "s")
    used = used_values([observe(trial.document) for trial in trials])
    if used:
        return _spread(used, "s")
    values = [trial.document["benchmark_result"]["wall_time"] for trial in trials]
    reported = [value for value in values if value != -1]
    numbers = _finite(reported)
    if numbers:
        return _spread(numbers, "s")
    return "not finite" if reported else "-"


def metric_lines(
    trials: Sequence[TrialResult], metrics: re.Pattern[str] | None = None
) -> list[str]:
    """Return one line for each metric: median and range over the trials, and a bound it missed.

    Without `metrics`, those come first that people look for: missed bounds, then rates and what
    the author reports, then times of the series.
    """
    values: dict[str, list[float]] = {}
    missed: dict[str, list[str]] = {}
    for trial in trials:
        for metric in trial.document["benchmark_result"]["metrics"]:
            name = metric["name"]
            if metrics and not metrics.fullmatch(name):
                continue
            values.setdefault(name, []).extend(_finite([metric["value"]]))
            missed.setdefault(name, []).extend(_missed(metric))
    names = list(values)
    if not metrics:
        names.sort(key=lambda name: _place(name, missed[name]))
    return [
        (_metric(name, values[name]) if values[name] else f"{name} not finite")
        + _bound(missed[name], len(trials))
        for name in names
    ]


def _place(name: str, missed: Sequence[str]) -> int:
    if missed:
        return 0
    if name in _TIMES:
        return 2 + _TIMES.index(name)
    if re.fullmatch(_OF_SERIES, name) or name.startswith("peak_"):
        return _LAST
    if name.endswith(("_per_call", "_per_step", "_per_example")):  # amounts of work
        return _LAST - 1
    if direction_of(name) == "none" or name_and_unit(name)[1] == "s":
        return _LAST - 1
    return 1


def _metric(name: str, values: Sequence[float]) -> str:
    ordered = sorted(values)
    return metric_text(name, _middle(ordered), ordered[0], ordered[-1])


def _finite(values: Sequence[Any]) -> list[float]:
    """Return the finite numbers; a summary that was read from disk has the text `"NaN"` for NaN."""
    return [v for v in values if isinstance(v, int | float) and math.isfinite(v)]


def _missed(metric: Mapping[str, Any]) -> list[str]:
    """Return the bound that the value misses, in words, if it does."""
    value = float(metric["value"])  # in a summary that was read from disk, NaN is a text
    for what, bound in (("below", metric.get("min_value")), ("above", metric.get("max_value"))):
        if bound is None:
            continue
        limit = float(bound)
        if math.isnan(value) or (value < limit if what == "below" else value > limit):
            side = "outside" if math.isnan(value) else what
            return [f"{side} its bound {bound_text(metric['name'], limit)}"]
    return []


def _bound(missed: Sequence[str], trials: int) -> str:
    if not missed:
        return ""
    often = f" in {len(missed)} of {trials} trials" if len(missed) < trials else ""
    return f", {missed[0]}{often}"


def peak_memory(trials: Sequence[TrialResult]) -> list[str]:
    """Return the largest peak of resident memory, and that of the process tree if it is larger."""
    worker, tree = (_largest(trials, key) for key in ("max_rss", "max_tree_pss"))
    if not worker:
        return ["-"]
    own = f"{worker / 2**20:,.0f} MiB"
    return [own, f"tree {tree / 2**20:,.0f} MiB"] if tree > _MORE * worker else [own]


def _largest(trials: Sequence[TrialResult], key: str) -> float:
    return max((trial.document["process_info"].get(key) or 0 for trial in trials), default=0)


def folder_lines(trials: Sequence[TrialResult], *, every: bool = False) -> list[str]:
    """Return the folders of the trials, whole and one a line, below the names of their methods.

    Of many trials only those that did not pass have a line, unless `every` one is wanted.
    """
    folders = {id(trial): shown_path(str(Path(trial.summary).parent)) for trial in trials}
    wanted = list(trials)
    lines = []
    if len(trials) > _MOST_FOLDERS and not every:
        wanted = [trial for trial in trials if trial.status is not Status.PASSED]
        places = dict.fromkeys(str(Path(folder).parent) for folder in folders.values())
        lines = [f"{len(trials)} folders with a summary each are in {', '.join(places)}."]
    for name, own in _by_method(wanted).items():
        lines += [f"{name}:", *(f"  {folders[id(trial)]}" for trial in own)]
    return lines


def _spread(values: Sequence[float], unit: str) -> str:
    ordered = sorted(values)
    return spread(_middle(ordered), ordered[0], ordered[-1], unit)


def _middle(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


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
    return [_line(method) for method in methods]


def _line(method: MethodEstimate) -> str:
    texts = [
        _trials(method),
        _noise(method),
        *_not_used(method),
        _REASONS.get(method.stopped_by or "", ""),
    ]
    return f"{method.name}: " + "; ".join(text for text in texts if text)


def _trials(method: MethodEstimate) -> str:
    """Return the number of trials, and how far the median of the table may be off."""
    trials = f"{method.used} of {method.trials} trials"
    if method.used == method.trials:
        trials = f"{method.trials} trial{'s' * (method.trials != 1)}"
    if method.median_s is None:
        return f"{trials} with a figure"
    if method.relative_half_width is None:
        return f"{trials}, no interval"
    return f"{trials}, wall time \u00b1{percent(method.relative_half_width)}"


def _noise(method: MethodEstimate) -> str:
    if method.median_s is None:
        return ""
    if method.minimum_detectable_effect is None:
        return "changes it would miss: unknown"
    return (
        f"noise {percent(method.relative_noise)} per trial; "
        f"changes below {percent(method.minimum_detectable_effect)} would be missed"
    )


def _not_used(method: MethodEstimate) -> list[str]:
    counts = ((method.failed, "failed"), (method.disturbed, "disturbed"))
    return [f"{count} {what}" for count, what in counts if count]


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

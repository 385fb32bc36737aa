"""What a person reads: progress while the run goes on, one table at its end."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from perfrun.document import Status, TrialResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLOURS = {
    Status.PASSED: "green",
    Status.OUT_OF_BOUNDS: "yellow",
    Status.INTERRUPTED: "yellow",
}


class Terminal:
    """Shows a run on a stream: with a spinner on a terminal, as plain lines elsewhere."""

    def __init__(self, stream: TextIO, error_stream: TextIO, *, quiet: bool) -> None:
        self._stream, self._error_stream, self._quiet = stream, error_stream, quiet
        self._live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._status: Any = None
        self._console: Console | None = None
        self._lock = threading.Lock()
        self._begun = time.monotonic()

    def note(self, text: str) -> None:
        """One line about what happens."""
        self._line(f"perfrun: {text}", self._error_stream)

    def trial_started(self, number: int, total: int, method: str, trial_id: int) -> None:
        """Say which trial begins."""
        self._begun = time.monotonic()
        text = f"[{number}/{total}] {method}, trial {trial_id}"
        if not self._live:
            self._line(f"{text} ...", self._stream)
            return
        from rich.markup import escape
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._status = Progress(*columns, console=self.console(), transient=True)
        self._status.add_task(escape(text), total=None)
        self._status.start()

    def stdout(self, text: str) -> None:
        """Pass on what the benchmark prints."""
        self._pass_on(text, self._stream)

    def stderr(self, text: str) -> None:
        """Pass on what the benchmark prints to its standard error."""
        self._pass_on(text, self._error_stream)

    def trial_finished(self, result: TrialResult) -> None:
        """Say how the trial ended and where its summary is."""
        if self._status:
            self._status.stop()
            self._status = None
        reason = result.document["perfrun"]["outcome"]["reason"]
        text = f"{result.status.value}{f' ({reason})' if reason else ''}"
        where = _shown(result.summary)
        spent = time.monotonic() - self._begun
        line = f"{result.name}, trial {result.trial_id}: {text}, {spent:.1f} s, {where}"
        self._line(line, self._stream)
        for note in result.document["perfrun"]["notes"]:
            self._line(f"  note: {note}", self._stream)

    def results(self, results: Sequence[TrialResult]) -> None:
        """Print the table of the run."""
        if results:
            with contextlib.suppress(OSError, ValueError, SystemExit):  # the reader has gone
                self.console().print(results_table(results))

    def console(self) -> Console:
        """rich's console; imported when first needed."""
        if self._console is None:
            from rich.console import Console

            width = None if self._live else int(os.environ.get("COLUMNS") or 160)
            self._console = Console(
                file=self._stream, width=width, highlight=False, soft_wrap=False
            )
        return self._console

    def _pass_on(self, text: str, stream: TextIO) -> None:
        if self._quiet:
            return
        with self._lock:
            if self._status:
                self.console().out(text, end="", highlight=False)
            else:
                _write(stream, text)

    def _line(self, text: str, stream: TextIO) -> None:
        with self._lock:
            _write(stream, text + "\n")


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    # A reader that has gone away (`| head`, a closed terminal) ends the showing, not the run.
    with contextlib.suppress(OSError, ValueError):
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def results_table(results: Sequence[TrialResult]) -> Table:
    """One row a method: trials, outcome, wall time, metrics with bounds, memory, folder."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("method", overflow="fold", ratio=3)
    table.add_column("trials", justify="right")
    table.add_column("outcome")
    table.add_column("wall time", justify="right", no_wrap=True)
    table.add_column("metrics", overflow="fold", ratio=4)
    table.add_column("peak memory", justify="right", no_wrap=True)
    table.add_column("folder", overflow="fold", ratio=2)
    for name, trials in _by_method(results).items():
        outcome = Text()
        for status, count in _counts(trials).items():
            shown = status.value if len(_counts(trials)) == 1 else f"{count} {status.value}"
            outcome.append(f"{shown}\n", style=_COLOURS.get(status, "red"))
        table.add_row(
            Text(name),
            str(len(trials)),
            outcome[:-1],
            wall_times(trials),
            Text("\n".join(metric_lines(trials))),
            peak_memory(trials),
            Text("\n".join(folder_lines(trials))),
        )
    return table


def _by_method(results: Sequence[TrialResult]) -> dict[str, list[TrialResult]]:
    methods: dict[str, list[TrialResult]] = {}
    for result in results:
        methods.setdefault(result.name, []).append(result)
    return methods


def _counts(trials: Sequence[TrialResult]) -> dict[Status, int]:
    counts: dict[Status, int] = {}
    for trial in trials:
        counts[trial.status] = counts.get(trial.status, 0) + 1
    return counts


def wall_times(trials: Sequence[TrialResult]) -> str:
    """The reported wall times: one figure, or the median with the range."""
    values = [trial.document["benchmark_result"]["wall_time"] for trial in trials]
    reported = [value for value in values if value != -1]
    numbers = _finite(reported)
    if numbers:
        return _spread(numbers, "s")
    return "not finite" if reported else "-"


def metric_lines(trials: Sequence[TrialResult]) -> list[str]:
    """One line a metric: median and range over the trials, and its bounds."""
    values: dict[str, list[float]] = {}
    bounds: dict[str, str] = {}
    for trial in trials:
        for metric in trial.document["benchmark_result"]["metrics"]:
            for value in _finite([metric["value"]]):
                values.setdefault(metric["name"], []).append(value)
            bounds[metric["name"]] = _bounds(metric)
    return [
        f"{name} {_spread(values[name], '') if name in values else 'not finite'}{bounds[name]}"
        for name in bounds
    ]


def _finite(values: Sequence[Any]) -> list[float]:
    """The values that are numbers: a summary read back from disk has `"NaN"` for NaN."""
    return [v for v in values if isinstance(v, int | float) and math.isfinite(v)]


def _bounds(metric: Mapping[str, Any]) -> str:
    low, high = metric.get("min_value"), metric.get("max_value")
    if low is None and high is None:
        return ""
    return f" in [{'' if low is None else _number(low)}, {'' if high is None else _number(high)}]"


def peak_memory(trials: Sequence[TrialResult]) -> str:
    """The largest peak of resident memory over the trials, in MiB."""
    peaks = [trial.document["process_info"].get("max_rss") for trial in trials]
    known = [peak for peak in peaks if peak]
    return f"{max(known) / 2**20:,.0f} MiB" if known else "-"


def folder_lines(trials: Sequence[TrialResult], most: int = 3) -> list[str]:
    """The folders of the trials; of many, the first ones and how many more there are."""
    folders = [_shown(str(Path(trial.summary).parent)) for trial in trials]
    if len(folders) <= most:
        return folders
    return [*folders[: most - 1], f"and {len(folders) - most + 1} more"]


def _spread(values: Sequence[float], unit: str) -> str:
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    text = f"{_number(median)}{' ' + unit if unit else ''}"
    if ordered[0] == ordered[-1]:
        return text
    return f"{text} ({_number(ordered[0])}..{_number(ordered[-1])})"


def _number(value: float) -> str:
    """Four figures, and whole numbers whole."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _shown(path: str) -> str:
    """A path as short as it can be from here."""
    try:
        relative = os.path.relpath(path)
    except OSError:  # the current folder has been removed
        return path
    return relative if len(relative) < len(path) and sys.platform != "win32" else path

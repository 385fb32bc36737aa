"""The terminal: shows progress while a run goes on, and tables at its end.

rich draws on a terminal. Elsewhere (a pipe, a log) lines are plain and never wrapped, at most one a
trial, and rich is not imported: its import would be a third of the cost of a run beyond its
benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from perfrun.reports.advice import advice
from perfrun.reports.figures import percent, time_left
from perfrun.reports.quality_words import common_causes, quality_line, quality_word
from perfrun.reports.run_table import (
    STATUS_COLOURS,
    folder_lines,
    more_metrics,
    profile_lines,
    run_table,
    shown_path,
    statistics_lines,
)
from perfrun.reports.table import Table, plain_text
from perfrun.shown import LiveText, as_is, fitting, line
from perfrun.summary.document import TrialResult
from perfrun.summary.estimates import MethodEstimate

if TYPE_CHECKING:
    from rich.console import Console

    from perfrun.reports.live_line import LiveLine

# Information that TensorFlow's C++ code logs at each start: 6 lines (1.1 kB) a trial with
# TensorFlow 2.21, so 30 in a run of five trials, where perfrun itself prints 27.
#   I0000 00:00:1795286017.858660   18365 port.cc:153] ...
#   2026-11-21 20:32:01.123456: I tensorflow/core/util/port.cc:153] ...
# Warnings, errors and the log of Python code are shown. A line that is read in pieces is shown,
# too, because no text is held back; in those five trials there was none.
_FRAMEWORK_LOG = (
    r"(?m)^(?:WARNING: All log messages before absl::InitializeLog\(\) is called are written to"
    r" STDERR"
    r"|(?:I\d{4} [\d:.]+ +\d+|\d{4}-\d\d-\d\d [\d:.]+: I) \S+\.(?:cc|cpp|cu|h):\d+\] .*"
    r"(?:\nTo enable the following instructions: .*)?)\n"
)
_LOG = "in stderr.log beside the summary, as always"


_SHADES = {"red": "31", "green": "32", "yellow": "33"}  # as terminals know them
_LAST_PHASE = "method"
_SHORTEST_LEFT_S = 0.5  # a time that is worth a word
_SHORTEST_NAME = 12  # characters of a name that tell anything


class Terminal:
    """Shows a run on a stream: with a line that moves on a terminal, as plain lines elsewhere.

    A `quiet` one shows errors, and the tables that it is told to draw. `verbose` adds all findings
    about each trial, and its folder. Without `benchmark_output` what benchmarks print is not shown.
    """

    def __init__(
        self,
        stream: TextIO,
        error_stream: TextIO,
        *,
        quiet: bool,
        verbose: bool = False,
        benchmark_output: bool = True,
        metrics: re.Pattern[str] | None = None,
    ) -> None:
        self._stream, self._error_stream, self._quiet = stream, error_stream, quiet
        self._verbose, self._metrics = verbose, metrics
        self._passes_on = benchmark_output and not quiet
        can_draw = (stream.encoding or "").lower() in ("utf-8", "utf8")
        self._live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb" and can_draw
        self.is_live = self._live and not quiet  # a line shows what goes on
        self._coloured = self._live and not os.environ.get("NO_COLOR")
        self._line_shown: LiveLine | None = None
        self._console: Console | None = None
        self._lock = threading.Lock()
        # What a benchmark prints; both streams may be the same terminal.
        self._texts = {
            id(each): LiveText(on_terminal=each.isatty()) for each in (stream, error_stream)
        }
        self._begun = time.monotonic()
        self._number = ""  # of the trial
        self._standings: dict[str, str] = {}  # of the pairs of each method
        self._outlook: tuple[float | None, float | None] = (None, None)
        self._read_phase: Callable[[], str | None] | None = None
        self._phase = ""
        self._hidden = 0  # lines of the trial that runs
        self._hidden_told = False  # the user knows where the hidden lines are

    def prepare(self) -> None:
        """Import what will draw before a benchmark runs."""
        if self.is_live:
            from rich import box, console, table, text  # noqa: F401

            from perfrun.reports import layout, live_line  # noqa: F401

    def note(self, text: str) -> None:
        """Print one line of information to standard error."""
        if not self._quiet:
            self._line(f"perfrun: {text}", self._error_stream)

    def problem(self, text: str) -> None:
        """Print one line about something that went wrong to standard error."""
        self._line(f"perfrun: {text}", self._error_stream)

    def outlook(
        self,
        *,
        left_s: float | None,
        half_width: float | None,
        phase: Callable[[], str | None] | None = None,
    ) -> None:
        """Take the time that is left, the width of the interval, and a reader of the phase."""
        self._outlook, self._read_phase = (left_s, half_width), phase

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        """Show which trial begins."""
        self._begun, self._hidden, self._phase = time.monotonic(), 0, ""
        self._number = f"[{number}{f'/{total}' if total else ''}] "  # unknown with a precision
        if not self.is_live:
            return
        from perfrun.reports.live_line import LiveLine

        begin = next((v for k, v in self._standings.items() if method.endswith(k)), self._number)
        name = f"{method}, trial {trial_id}"
        live = LiveLine(self._lock, lambda: self._progress(begin, name), self._write_live)
        with self._lock:
            self._line_shown = live
            live.draw()
        live.start()

    def stdout(self, text: str) -> None:
        """Show text that the benchmark prints."""
        self._pass_on(text, self._stream)

    def stderr(self, text: str) -> None:
        """Show text that the benchmark prints to standard error, without its framework's log."""
        shown = re.sub(_FRAMEWORK_LOG, "", text)
        self._hidden += text.count("\n") - shown.count("\n")
        if shown:
            self._pass_on(shown, self._error_stream)

    def trial_ended(self, result: TrialResult) -> None:
        """Take in that a trial has ended of which no line tells."""
        if self._verbose:
            self.trial_finished(result)
        else:
            self._end_line()

    def trial_finished(self, result: TrialResult) -> None:
        """Print how the trial ended, in one line."""
        self._end_line()
        spent = time.monotonic() - self._begun
        own = result.document["perfrun"]
        reason = own["outcome"]["reason"]
        what = f"{result.status.value}{f' ({reason})' if reason else ''}"
        name = f"{result.name}, trial {result.trial_id}"
        where = shown_path(result.summary)
        if self._quiet:
            if not result.status.ran:
                self.problem(f"{name}: {what}; {where}")
            return
        words = [what, f"{spent:.1f} s", *(() if result.status.ran else (where,))]
        word = quality_word(result)
        notes = [f"note: {note}" for note in own["notes"]]
        text = f"{self._number}{name}: {', '.join(words)}"
        colours = {result.status.value: STATUS_COLOURS.get(result.status, "red")}
        if word:
            colours[word] = "yellow"
        parts = [text, *filter(None, [word, self._left(spent)]), *notes]
        self._line("; ".join(parts), self._stream, colours)
        if self._verbose:
            doubts = quality_line(result)
            self._line(f"  {where}", self._stream)
            if doubts:
                self._line(f"  {doubts}", self._stream)
        if self._hidden and not self._hidden_told:
            self._hidden_told = True
            lines = f"{self._hidden} line{'s' * (self._hidden > 1)}"
            self._line(f"  {lines} of its framework's log: {_LOG}", self._stream)

    def pair_finished(self, number: int, most: int, method: str, text: str) -> None:
        """Print how the pairs of a method stand."""
        self._standings[method] = f"[{number}/{most}] {text}"
        if not self._quiet:
            self._line(f"[{number}/{most}] {text}; {method}", self._stream)

    def profile_started(self, method: str, kind: str) -> None:
        """Show which profile trial begins."""
        if not self._quiet:
            self._line(f"profile {kind} of {method} ...", self._stream)

    def profile_finished(self, result: TrialResult) -> None:
        """Print the profiles: their files, and what took most of the time."""
        if not self._quiet:
            for text in profile_lines(result):
                self._line(text, self._stream)

    def results(
        self,
        results: Sequence[TrialResult],
        methods: Sequence[MethodEstimate] = (),
        precision: float | None = None,
    ) -> None:
        """Print the results of a run: a table, then what the trials say together.

        `precision` is the one that was asked for.
        """
        if not results or self._quiet:
            return
        self.table(run_table(results, methods, self._metrics))
        hint = None if self._metrics else more_metrics(results)
        advised = advice(methods, results, precision)
        for section in (
            [*filter(None, [hint]), *statistics_lines(methods)],
            [*common_causes(results), *filter(None, [advised])],
            folder_lines(results, every=self._verbose),
        ):
            self.lines(["", *section] if section else [])

    def lines(
        self,
        texts: Sequence[str],
        colours: Mapping[str, str] | None = None,
        *,
        laid_out: bool = False,
    ) -> None:
        """Print lines of perfrun's own, the words of `colours` in their colour.

        Lines that are `laid_out` already are not wrapped.
        """
        for text in texts:
            self._line(text, self._stream, colours, wraps=not laid_out)

    def table(self, table: Table) -> None:
        """Print a table: drawn on a terminal, as aligned text elsewhere."""
        if not self._live:
            with self._lock:
                self._write(plain_text(table), self._stream)
            return
        from perfrun.reports.layout import drawn

        # rich ends the process when the reader is gone. So it draws into memory, and we write.
        with contextlib.suppress(OSError, ValueError, SystemExit):
            with self.console().capture() as captured:
                for part in drawn(table, self.console().width):
                    self.console().print(part)
            with self._lock:
                self._write(captured.get(), self._stream)

    def console(self) -> Console:
        """Return rich's console; rich is imported at the first call."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=as_is(self._stream), highlight=False, soft_wrap=False)
        return self._console

    def _left(self, spent_s: float) -> str | None:
        """Return the time that is left, for a log; on a terminal the line that moves has it."""
        left_s, _ = self._outlook
        if left_s is None or self.is_live or left_s - spent_s < _SHORTEST_LEFT_S:
            return None
        return f"{time_left(left_s - spent_s)} left"

    def _progress(self, begin: str, name: str) -> str:
        """Return the line that shows the trial: which, its phase, its time, what is left."""
        spent = time.monotonic() - self._begun
        if self._read_phase and self._phase != _LAST_PHASE:
            self._phase = self._read_phase() or self._phase
        left_s, half_width = self._outlook
        facts = [f"{self._phase} {spent:.0f} s".lstrip()]
        if left_s is not None:
            facts.append(f"{time_left(left_s - spent)} left")
        if half_width is not None:
            facts.append(f"\u00b1{percent(half_width)}")
        from perfrun.reports.layout import cut_at_start, fold

        width = self.console().width - len("^C") - 1  # a terminal shows the keys pressed after it
        begin, end = f"{begin.rstrip()} ", f"  {', '.join(facts)}"
        room = width - len(begin) - len(end)
        shown = cut_at_start(line(name), room) if room > _SHORTEST_NAME else ""
        return fold(f"{begin}{shown}{end}", width)[0]

    def _end_line(self) -> None:
        with self._lock:
            live, self._line_shown = self._line_shown, None
            if live:
                live.end()

    def _write_live(self, text: str) -> bool:
        """Write the line that moves; False while a line that the benchmark began has no end."""
        streams = (self._stream, self._error_stream)
        if not all(self._texts[id(each)].is_closed for each in streams if each.isatty()):
            return False
        _write(self._stream, text)
        return True

    def _pass_on(self, text: str, stream: TextIO) -> None:
        if not self._passes_on:
            return
        with self._lock:
            if self._line_shown:
                self._line_shown.clear()
            _write(stream, self._texts[id(stream)].shown(text))
            if self._line_shown:
                self._line_shown.draw()

    def _line(
        self,
        text: str,
        stream: TextIO,
        colours: Mapping[str, str] | None = None,
        *,
        wraps: bool = True,
    ) -> None:
        shown = line(text)
        if wraps and self._live:
            shown = "\n".join(fitting(shown, stream))
        if self._coloured and stream is self._stream:
            for words, colour in (colours or {}).items():
                shown = shown.replace(words, f"\x1b[{_SHADES[colour]}m{words}\x1b[0m", 1)
        with self._lock:
            if self._line_shown:
                self._line_shown.clear()
            self._write(shown + "\n", stream)
            if self._line_shown:
                self._line_shown.draw()

    def _write(self, text: str, stream: TextIO) -> None:
        """Write text of perfrun's own, on a line of its own and in the usual colours."""
        for each in (self._stream, self._error_stream):
            if each is stream or (each.isatty() and stream.isatty()):
                text = self._texts[id(each)].closing() + text
        _write(stream, text)


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    # When the reader is gone (`| head`, a closed terminal), the output ends, not the run.
    with contextlib.suppress(OSError, ValueError):
        as_is(stream).write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()

"""The terminal: shows progress while a run goes on, and tables at its end.

rich draws on a terminal. Elsewhere (a pipe, a log) lines are plain and never wrapped, and rich is
not imported: its import would be a third of the cost of a run beyond its benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO

from perfrun.reports.run_table import (
    profile_lines,
    quality_line,
    run_table,
    shown_path,
    statistics_lines,
)
from perfrun.reports.table import Table, TableCell, as_cell, plain_text
from perfrun.shown import LiveText, as_is, line
from perfrun.summary.document import TrialResult
from perfrun.summary.estimates import MethodEstimate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as DrawnTable
    from rich.text import Text

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


class Terminal:
    """Shows a run on a stream: with a spinner on a terminal, as plain lines elsewhere."""

    def __init__(self, stream: TextIO, error_stream: TextIO, *, quiet: bool) -> None:
        self._stream, self._error_stream, self._quiet = stream, error_stream, quiet
        can_draw = (stream.encoding or "").lower() in ("utf-8", "utf8")  # the spinner is Braille
        self._live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb" and can_draw
        self._status: Any = None
        self._console: Console | None = None
        self._lock = threading.Lock()
        # What a benchmark prints; both streams may be the same terminal.
        self._texts = {
            id(each): LiveText(on_terminal=each.isatty()) for each in (stream, error_stream)
        }
        self._begun = time.monotonic()
        self._hidden = 0  # lines of the trial that runs
        self._hidden_told = False  # the user knows where the hidden lines are

    def prepare(self) -> None:
        """Import rich before a benchmark runs, if it will draw."""
        if self._live:
            from rich import box, console, progress, table, text  # noqa: F401

    def note(self, text: str) -> None:
        """Print one line of information to standard error."""
        self._line(f"perfrun: {text}", self._error_stream)

    def trial_started(self, number: int, total: int | None, method: str, trial_id: int) -> None:
        """Show which trial begins."""
        self._begun, self._hidden = time.monotonic(), 0
        of = f"/{total}" if total else ""  # unknown where a precision decides
        text = f"[{number}{of}] {method}, trial {trial_id}"
        if not self._live:
            self._line(f"{text} ...", self._stream)
            return
        from rich.markup import escape
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with self._drawing():
            self._status = Progress(*columns, console=self.console(), transient=True)
            self._status.add_task(escape(line(text)), total=None)
            self._status.start()

    def stdout(self, text: str) -> None:
        """Show text that the benchmark prints."""
        self._pass_on(text, self._stream)

    def stderr(self, text: str) -> None:
        """Show text that the benchmark prints to standard error, without its framework's log."""
        shown = re.sub(_FRAMEWORK_LOG, "", text)
        self._hidden += text.count("\n") - shown.count("\n")
        if shown:
            self._pass_on(shown, self._error_stream)

    def trial_finished(self, result: TrialResult) -> None:
        """Print how the trial ended and where its summary is."""
        if self._status:
            with self._drawing():
                self._status.stop()
            self._status = None
        reason = result.document["perfrun"]["outcome"]["reason"]
        text = f"{result.status.value}{f' ({reason})' if reason else ''}"
        where = shown_path(result.summary)
        spent = time.monotonic() - self._begun
        how = f"{text}, {spent:.1f} s, {where}"
        self._line(f"{result.name}, trial {result.trial_id}: {how}", self._stream)
        for note in result.document["perfrun"]["notes"]:
            self._line(f"  note: {note}", self._stream)
        doubts = quality_line(result)
        if doubts:
            self._line(f"  {doubts}", self._stream)
        if self._hidden and not self._hidden_told and not self._quiet:
            self._hidden_told = True
            lines = f"{self._hidden} line{'s' * (self._hidden > 1)}"
            self._line(f"  {lines} of its framework's log: {_LOG}", self._stream)

    def profile_started(self, method: str, kind: str) -> None:
        """Show which profile trial begins."""
        self._line(f"profile {kind} of {method} ...", self._stream)

    def profile_finished(self, result: TrialResult) -> None:
        """Print the profiles: their files, and what took most of the time."""
        for text in profile_lines(result):
            self._line(text, self._stream)

    def results(self, results: Sequence[TrialResult]) -> None:
        """Print the table of the run."""
        if results:
            self.table(run_table(results))

    def table(self, table: Table) -> None:
        """Print a table: drawn on a terminal, as aligned text elsewhere."""
        if not self._live:
            with self._lock:
                self._write(plain_text(table), self._stream)
            return
        # rich ends the process when the reader is gone. So it draws into memory, and we write.
        with contextlib.suppress(OSError, ValueError, SystemExit):
            with self.console().capture() as captured:
                for part in drawn(table, self.console().width):
                    self.console().print(part)
            with self._lock:
                self._write(captured.get(), self._stream)

    def methods(self, methods: Sequence[MethodEstimate]) -> None:
        """Print the statistics over the trials of each method."""
        for text in statistics_lines(methods):
            self._line(text, self._stream)

    @contextlib.contextmanager
    def _drawing(self) -> Iterator[None]:
        """Let rich draw; after the terminal is gone, nothing more is drawn, and the run goes on."""
        try:
            yield
        except (OSError, ValueError, SystemExit):  # rich makes a closed pipe a SystemExit
            self._live, self._status = False, None

    def console(self) -> Console:
        """Return rich's console; rich is imported at the first call."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=as_is(self._stream), highlight=False, soft_wrap=False)
        return self._console

    def _pass_on(self, text: str, stream: TextIO) -> None:
        if self._quiet:
            return
        with self._lock:
            text = self._texts[id(stream)].shown(text)
            if self._status:
                self.console().out(text, end="", highlight=False)
            else:
                _write(stream, text)

    def _line(self, text: str, stream: TextIO) -> None:
        with self._lock:
            self._write(line(text) + "\n", stream)

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


def drawn(table: Table, width: int) -> list[DrawnTable | str]:
    """Return the table for rich to draw; in parts if the terminal is too narrow for all of it."""
    if table.narrow and sum(table.widths()) + 3 * len(table.columns) > width:
        first, *others = (_drawn(table.part(headings)) for headings in table.narrow)
        return [first, *(each for other in others for each in ("", other))]
    return [_drawn(table)]


def _drawn(table: Table) -> DrawnTable:
    from rich import box
    from rich.table import Table as DrawnTable
    from rich.text import Text

    made = DrawnTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column, heading in zip(table.columns, table.headings, strict=True):
        made.add_column(
            Text(heading),
            justify="right" if column.right else "left",
            no_wrap=column.whole,
            overflow="fold",
            min_width=column.least,
            ratio=column.share,
        )
    for row in table.rows:
        made.add_row(*(_drawn_cell(as_cell(cell)) for cell in row))
    return made


def _drawn_cell(cell: TableCell) -> Text:
    from rich.text import Text

    lines = zip_longest(cell.lines, cell.styles, fillvalue="")
    return Text("\n").join(Text(line, style=style) for line, style in lines)

"""What a framework's C++ code logs for information, kept apart from what a benchmark prints.

TensorFlow says at every start which instructions and libraries it uses. In the trial's `stderr.log`
all of it is kept; between perfrun's own lines it hides what matters. Warnings and errors are
always shown, as is whatever Python code logs.
"""

from __future__ import annotations

import re

# `I0000 00:00:1795286017.858660   18365 port.cc:153] ...` (absl) and
# `2026-11-21 20:32:01.123456: I tensorflow/core/util/port.cc:153] ...` (TensorFlow's own).
_SOURCE = r"\S+\.(?:cc|cpp|cu|h)(?:\.cc)?:\d+\] .*"
_INFORMATION = re.compile(
    rf"I\d{{4}} [\d:.]+ +\d+ {_SOURCE}|\d{{4}}-\d\d-\d\d [\d:.]+: I {_SOURCE}"
)
_BEFORE = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
_SECOND_LINE = "To enable the following instructions: "  # of a message about the processor
# The beginning of a line that may become one of them.
_BEGUN = re.compile(r"I(?:\d{1,4}(?: .*)?)?|2\d{0,3}|\d{4}-[\d\-]*(?: [\d:.]*(?:: ?(?:I.*)?)?)?")


class FrameworkLog:
    """Takes the text of one trial's standard error as it comes; gives back what is to be shown."""

    def __init__(self) -> None:
        self.hidden = 0  # lines
        self._held = ""  # a line that has begun as one to be hidden
        self._within = False  # the beginning of the line has been shown
        self._last_hidden = False

    def shown(self, text: str) -> str:
        """What of it to show; the rest may follow with the next text."""
        lines = (self._held + text).splitlines(keepends=True)
        self._held = ""
        if lines and not lines[-1].endswith(("\n", "\r")) and self._may_become(lines[-1], lines):
            self._held = lines.pop()
        return "".join(line for line in lines if not self._hides(line))

    def rest(self) -> str:
        """What was held back of a last line without an end."""
        held, self._held = self._held, ""
        return "" if self._hides(held) else held

    def _may_become(self, begun: str, lines: list[str]) -> bool:
        if self._within and len(lines) == 1:
            return False
        whole = (_BEFORE, _SECOND_LINE)
        return bool(_BEGUN.fullmatch(begun)) or any(
            text.startswith(begun) or begun.startswith(text) for text in whole
        )

    def _hides(self, line: str) -> bool:
        text = line.rstrip("\r\n")
        is_second = self._last_hidden and text.startswith(_SECOND_LINE)
        hides = not self._within and (
            is_second or text == _BEFORE or _INFORMATION.fullmatch(text) is not None
        )
        self._within = bool(line) and not line.endswith(("\n", "\r"))
        self._last_hidden = hides
        self.hidden += hides
        return hides

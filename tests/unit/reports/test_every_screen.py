"""What commands print on terminals of four widths: each has every character of every value."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perfrun.changes.detect import detect_command
from perfrun.changes.history import history_command
from perfrun.compare.command import compare_command
from perfrun.store.command import index_command
from tests.summaries import summary, write
from tests.unit.reports.test_layout import WIDTHS, packed

LONG = f"pkg.cases.Cases.{'方法' * 12}{'x' * 90}"
METRIC = f"{'images_' * 9}per_second"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen(io.TextIOWrapper):
    """A stream that says that it is a terminal, and keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return ANSI.sub("", buffer.getvalue().decode())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Six nights of a method with a long name, of which the last three are slower."""
    for night in range(6):
        slow = 1.5 if night > 2 else 1.0
        document = summary(
            name=f"2026-11-1{night}-10-00-00-000000",
            timestamp=1794045600.0 + night * 86400,
            label="new" if night > 2 else "old",
            method=LONG,
            wall_time=slow * (1 + night / 100),
            metrics={METRIC: 1000 / slow},
        )
        write(tmp_path / "w" / "output", document)
    return tmp_path / "w"


def printed(
    command: Callable[[Sequence[str]], int], words: Sequence[str], patch: pytest.MonkeyPatch
) -> str:
    screen = Screen()
    patch.setattr(sys, "stdout", screen)
    # Six nights are too few for detect to judge a series.
    assert command(words) in ((2,) if command is detect_command else (0, 1))
    return screen.text


def test_compare_history_detect_and_index_lose_no_character(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    place = f"--workspace={workspace}"
    lines = {
        command: printed(command, [*words, place], monkeypatch)
        for command, words in (
            (index_command, []),
            (history_command, [LONG]),
            (detect_command, []),
        )
    }
    assert "6" in lines[index_command]
    history = packed(lines[history_command])
    for value in (
        LONG,
        "wall_time",
        "new",
        "old",
        *(f"2026-11-1{n}-10-00-00-000000" for n in range(6)),
    ):
        assert value in history
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        words = ["label:old", "label:new", place, "--metrics=.*"]
        text = printed(compare_command, words, monkeypatch)
        shown = packed(text)
        for value in (LONG, METRIC, "wall_time", "3/3", "1.01s", "1.56s", "slower"):
            assert value in shown, (width, value)
        # A word that is longer than the terminal, as a path may be, is the terminal's to wrap.
        wider = [line for line in text.splitlines() if len(line) > width]
        assert not [line for line in wider if len(line.split()) > 1]

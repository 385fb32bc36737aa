"""What commands print on terminals of four widths: each has every character of every value."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from perfrun.changes.detect import detect_command
from perfrun.changes.history import history_command
from perfrun.compare.baseline_command import baseline_command
from perfrun.compare.command import compare_command
from perfrun.doctor.command import doctor_command, examine
from perfrun.nightly.prune import prune_command
from perfrun.options.command_line import parse
from perfrun.run.listing import list_command
from perfrun.show.command import show_command
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


def is_cut_well(text: str, width: int) -> bool:
    """True when no line is wider than the terminal but one that has no blank to be cut at."""
    wide = [line for line in text.splitlines() if cell_len(line) > width]
    return not [line for line in wide if len(line.split()) > 1]


def test_show_baselines_and_prune_lose_no_character(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    place = f"--workspace={workspace}"
    name = f"v{'1' * 40}"
    base = printed(baseline_command, ["set", name, "label:old", place], monkeypatch)
    assert packed(f"baseline {name}: 3 trials of 1 method") in packed(base)
    found = sorted(str(one) for one in (workspace / "output").iterdir())
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        text = printed(baseline_command, ["list", place], monkeypatch)
        assert is_cut_well(text, width)
        assert all(one in packed(text) for one in (name, "label:old", "2026-11-07"))
        text = printed(prune_command, ["--older_than=1h", "--dry_run", place], monkeypatch)
        assert is_cut_well(text, width)
        kept = [one for one in found if one not in text.splitlines()]  # paths are whole
        assert f"{len(kept)}kept" in packed(text)
        assert packed("of baselines") in packed(text)
        text = printed(index_command, [place], monkeypatch)
        assert is_cut_well(text, width)
        assert packed("6 trials of 1 method") in packed(text)
        text = printed(show_command, ["last", place], monkeypatch)
        body, _, command = text.partition("\nagain ")
        path = next(line for line in body.splitlines() if line.startswith("summary"))
        assert is_cut_well(body.replace(path, ""), width)
        assert path.endswith("/perfzero_summary.json")
        shown = packed(body)
        for value in (LONG, "1.575s", f"{'images ' * 9}".rstrip() + "/s", "label new", "AMD EPYC"):
            assert packed(value) in shown, (width, value)
        assert f"--benchmark_methods={LONG}" in command.replace("\n", "").replace("'", "")


def test_list_and_doctor_lose_no_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    name, told = "million_numbers_of_another_kind", "Sort numbers of all kinds, one by one, slowly."
    code = f"from perfrun import Benchmark\n\nclass Sorting(Benchmark):\n    def {name}(self):\n"
    (tmp_path / "cases.py").write_text(f"{code}        '{told}'\n")
    checks = examine(parse([f"--workspace={tmp_path}"], command="doctor"))
    monkeypatch.setattr("perfrun.doctor.command.examine", lambda plan: checks)  # it takes seconds
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        if width < 200:  # each list is a process
            text = printed(list_command, [str(tmp_path / "cases.py")], monkeypatch)
            assert is_cut_well(text, width)
            assert f"cases.Sorting.{name}" in text.split()
            assert packed(told) in packed(text)
        text = printed(doctor_command, [f"--workspace={tmp_path}"], monkeypatch)
        table, _, _ = text.partition("\nTo mend")  # commands stay whole
        assert is_cut_well(table, width)
        columns = column_texts(table, ("wanted", "state", "what there is", "why it matters"))
        for check in checks:
            for value in (check.wanted, check.value, check.why):
                assert any(packed(value) in one for one in columns), (width, value)


def column_texts(text: str, headings: Sequence[str]) -> list[str]:
    """Return what each column says; all of it where the columns do not stand side by side."""
    first = text.splitlines()[0]
    if not all(one in first for one in headings):
        return [packed(text)]
    places = [first.index(one) for one in headings]
    ends = [*places[1:], None]
    return [
        packed("".join(line[begin:end] for line in text.splitlines()))
        for begin, end in zip(places, ends, strict=True)
    ]


def test_what_is_piped_is_one_record_a_line(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert index_command([f"--workspace={workspace}"]) == 0
    assert baseline_command(["set", "a", f"--workspace={workspace}", "label:old"]) == 0
    out = capsys.readouterr().out.splitlines()
    begins = [line.split()[0] for line in out]
    assert begins == ["found", str(workspace / "perfrun.db:"), "baseline", "compare"]

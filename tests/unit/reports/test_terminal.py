"""The terminal: plain lines, a spinner, the table of a run, and any encoding."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import re
import tty
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from perfrun.reports import terminal as module
from perfrun.reports.layout import drawn
from perfrun.reports.quality_words import WORDS, common_causes, grades, quality_word
from perfrun.reports.run_table import (
    folder_lines,
    metric_lines,
    peak_memory,
    run_table,
    wall_times,
)
from perfrun.reports.table import as_cell
from perfrun.reports.terminal import Terminal
from perfrun.summary.document import Status, TrialResult, to_json

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def result(
    name: str = "m.Class.method",
    trial_id: int = 1,
    status: Status = Status.PASSED,
    wall_time: Any = 1.5,
    metrics: tuple[dict[str, Any], ...] = (),
    max_rss: int | None = None,
    reason: str | None = None,
    notes: tuple[str, ...] = (),
    quality: dict[str, Any] | None = None,
) -> TrialResult:
    return TrialResult(
        name=name,
        trial_id=trial_id,
        status=status,
        summary=f"/w/output/id-{trial_id}/perfzero_summary.json",
        document={
            "benchmark_result": {"wall_time": wall_time, "metrics": list(metrics)},
            "process_info": {} if max_rss is None else {"max_rss": max_rss},
            "perfrun": {
                "outcome": {"status": status.value, "reason": reason},
                "notes": list(notes),
                "quality": quality,
            },
        },
    )


def plain(
    *, quiet: bool = False, verbose: bool = False
) -> tuple[Terminal, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Terminal(out, err, quiet=quiet, verbose=verbose), out, err


def test_what_the_framework_tells_at_its_start_is_said_once_to_be_in_the_log() -> None:
    terminal, out, err = plain()
    for number in (1, 2):
        terminal.trial_started(number, 2, "m.Class.method", number)
        terminal.stderr("I0000 00:00:1795286017.858660   18365 port.cc:153] on\nE: of mine")
        terminal.trial_finished(result(trial_id=number))
    assert err.getvalue() == "E: of mine" * 2
    said = [line for line in out.getvalue().splitlines() if "stderr.log" in line]
    assert said == ["  1 line of its framework's log: in stderr.log beside the summary, as always"]


# As TensorFlow 2.21 and 2.15 print them at their start.
ABSL = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
ONEDNN = "I0000 00:00:1795286017.858660   18365 port.cc:153] oneDNN custom operations are on. You\n"
CPU = "I0000 00:00:1795286018.075712   18365 cpu_feature_guard.cc:227] This TensorFlow binary is\n"
REBUILD = "To enable the following instructions: AVX2 FMA, in other operations, rebuild\n"
OLDER = "2026-11-21 20:32:01.123456: I tensorflow/core/util/port.cc:113] oneDNN custom operations\n"
XLA = "I0000 00:00:1795286017.858660   18365 device_compiler.h:188] Compiled cluster using XLA!\n"
CUDA = "I0000 00:00:1795286017.858660   18365 kernels.cu.cc:12] A kernel was loaded\n"
HIDDEN = ABSL + ONEDNN + CPU + REBUILD + OLDER + XLA + CUDA
SHOWN = (
    "W0000 00:00:1795286017.858660   18365 gpu_device.cc:2344] Cannot dlopen some GPU libraries\n",
    "E0000 00:00:1795286017.858660   18365 cuda_dnn.cc:8310] Unable to register cuDNN factory\n",
    "2026-11-21 20:32:01.123456: W tensorflow/core/x.cc:1] Allocation exceeds 10%\n",
    "2026-11-21 20:32:01.123456: E tensorflow/core/x.cc:1] failed call to cuInit\n",
    "I1121 20:32:01.123456 140234 resnet.py:99] the benchmark's own line\n",
    "2026-11-21 20:32:01 INFO the benchmark's own line\n",
    "In the beginning\n",
    "Traceback (most recent call last):\n",
    REBUILD,  # not after a line that is hidden
    "\r 42%|####",
    "I give up",
    "2026",
)


def of_stderr(*texts: str) -> tuple[str, int]:
    """Return the shown text of a trial's standard error, and the note on hidden lines."""
    terminal, out, err = plain()
    terminal.trial_started(1, 1, "m.Class.method", 1)
    for text in texts:
        terminal.stderr(text)
    terminal.trial_finished(result())
    found = re.search(r"(\d+) lines? of its framework's log", out.getvalue())
    return err.getvalue(), int(found[1]) if found else 0


def test_what_a_framework_logs_for_information_is_hidden_and_counted() -> None:
    assert of_stderr(HIDDEN) == ("", 7)


@pytest.mark.parametrize("line", SHOWN)
def test_warnings_errors_and_the_benchmarks_own_lines_are_shown(line: str) -> None:
    assert of_stderr(line) == (line, 0)
    assert of_stderr(f"one\n{line}") == (f"one\n{line}", 0)
    assert of_stderr(f"{ONEDNN}error\n{line}", f"{OLDER}") == (f"error\n{line}", 2)


@given(st.lists(st.integers(0, len(HIDDEN) + 400), max_size=12))
def test_in_whatever_pieces_the_text_comes_no_line_of_the_benchmark_is_lost(
    cuts: list[int],
) -> None:
    text = "".join(a + b for a, b in zip(SHOWN, (ABSL, ONEDNN, CPU, OLDER) * 3, strict=False))
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    shown, _ = of_stderr(*(text[begin:end] for begin, end in pairwise(places)))
    rest = iter(shown.splitlines())
    assert all(line in rest for line in of_stderr(text)[0].splitlines())


# --- figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.5], "1.5 s"),
        ([2], "2 s"),
        ([0.0], "0 s"),
        ([1.0, 3.0, 2.0], "2 s (1..3)"),
        ([1.0, 2.0], "1.5 s (1..2)"),
        ([2.0, 2.0], "2 s"),
        ([0.123456], "123.5 ms"),
        ([1234567.0], "1,234,567 s"),
        ([-1], "-"),
        ([-1, 2.0], "2 s"),
        ([math.nan], "not finite"),
        (["NaN"], "not finite"),
        (["Infinity", 2.0], "2 s"),
        ([], "-"),
    ],
)
def test_wall_times_are_the_median_and_the_range(values: list[Any], shown: str) -> None:
    assert wall_times([result(wall_time=value) for value in values]) == shown


METRICS: list[tuple[dict[str, Any], str]] = [
    ({"name": "acc", "value": 0.9}, "acc 0.9"),
    ({"name": "acc", "value": 0.9, "min_value": 0.5}, "acc 0.9"),
    ({"name": "acc", "min_value": 0.0, "value": 0.0}, "acc 0"),
    ({"name": "acc", "min_value": 0.5, "value": 0.25}, "acc 0.25, below its bound 0.5"),
    ({"name": "acc", "value": 1e20, "max_value": 2000}, "acc 1e+20, above its bound 2,000"),
    (
        {"name": "acc", "value": math.nan, "min_value": 1, "max_value": 2},
        "acc not finite, outside its bound 1",
    ),
    ({"name": "acc", "value": 1, "max_value": math.inf}, "acc 1"),
    ({"name": "start_s", "value": 1.469e-05, "min_value": 0, "max_value": 0.02}, "start 14.69 us"),
    (
        {"name": "first_call_s", "value": 0.5469, "max_value": 0.02},
        "first call 546.9 ms, above its bound 20 ms",
    ),
    ({"name": "latency", "value": 15.6}, "latency 15.6"),  # of what, nobody said
    ({"name": "images_per_s", "value": 0.5}, "0.5 images/s"),
    ({"name": "achieved_flops_per_second", "value": 3.59e10}, "achieved 35.9 GFLOP/s"),
    ({"name": "achieved_bytes_per_second", "value": 2.0**21}, "achieved 2 MiB/s"),
    ({"name": "images_per_second_per_device", "value": 3}, "images_per_second_per_device 3"),
    ({"name": "held_bytes", "value": 2.0**20}, "held 1 MiB"),
    ({"name": "batch_size", "value": 8}, "batch_size 8"),
]


@pytest.mark.parametrize(("metric", "line"), METRICS)
def test_a_metric_is_one_line_as_people_write_it_with_a_bound_only_if_it_was_missed(
    metric: dict[str, Any], line: str
) -> None:
    trial = result(metrics=(metric,))
    assert metric_lines([trial]) == [line]
    # A resumed run reads its earlier trials back from disk, where NaN and infinity are texts.
    read = json.loads(to_json(trial.document))
    assert metric_lines([TrialResult(**{**vars(trial), "document": read})]) == [line]


def test_metrics_of_several_trials_are_put_together_by_name() -> None:
    trials = [
        result(metrics=({"name": "a", "value": 1.0}, {"name": "b", "value": 5.0})),
        result(metrics=({"name": "a", "value": 3.0},)),
        result(status=Status.FAILED),
    ]
    assert metric_lines(trials) == ["a 2 (1..3)", "b 5"]


def test_peak_memory_is_the_largest_and_unknown_is_a_dash() -> None:
    mib = 2**20
    trials = [result(max_rss=1500 * mib), result(max_rss=200 * mib), result()]
    assert peak_memory(trials) == ["1,500 MiB"]
    assert peak_memory([result()]) == ["-"]


def test_a_process_tree_that_took_more_than_its_worker_is_shown() -> None:
    trial = result(max_rss=100 * 2**20)
    trial.document["process_info"]["max_tree_pss"] = 101 * 2**20
    assert peak_memory([trial]) == ["100 MiB"]
    trial.document["process_info"]["max_tree_pss"] = 400 * 2**20
    assert peak_memory([trial]) == ["100 MiB", "tree 400 MiB"]


def test_the_wall_time_is_that_of_the_trials_that_the_statistics_use() -> None:
    quiet, loud = {"disturbed": False}, {"disturbed": True}
    trials = [result(wall_time=v, quality=q) for v, q in ((1, quiet), (3, quiet), (9, loud))]
    assert wall_times(trials) == "2 s (1..3)"


def test_each_folder_is_whole_on_a_line_and_of_many_those_that_did_not_pass() -> None:
    trials = [result(trial_id=number) for number in range(1, 14)]
    trials[4] = result(trial_id=5, status=Status.FAILED)
    first, *folders = folder_lines(trials[:3])
    assert first == "m.Class.method:"
    assert [Path(folder).name for folder in folders] == ["id-1", "id-2", "id-3"]
    counted, name, failed = folder_lines(trials)
    assert counted.startswith("13 folders with a summary each are in ")
    assert (name, Path(failed).name) == ("m.Class.method:", "id-5")
    assert len(folder_lines(trials, every=True)) == 14


# --- plain lines -------------------------------------------------------------------------------


def test_a_run_that_is_no_terminal_is_told_in_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([10.0, 20.0, 22.54])  # of the run, the trial's start and its end
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(times_s)))
    terminal, out, err = plain()
    terminal.note("cloning")
    terminal.outlook(left_s=14.0, half_width=None)
    terminal.trial_started(1, 2, "m.Class.method", 1)
    terminal.stdout("printed\n")
    terminal.stderr("warned\n")
    terminal.trial_finished(
        result(status=Status.FAILED, reason="ValueError: [red]no[/red]", notes=("left 1 process",))
    )
    printed, told = out.getvalue().splitlines()
    assert printed == "printed"
    assert told.startswith(
        "[1/2] m.Class.method, trial 1: failed (ValueError: [red]no[/red]), 2.5 s, "
    )
    assert told.endswith("perfzero_summary.json; 11 s left; note: left 1 process")
    assert err.getvalue() == "perfrun: cloning\nwarned\n"
    assert "\x1b" not in out.getvalue()


def test_a_quiet_run_tells_of_errors_alone() -> None:
    terminal, out, err = plain(quiet=True)
    terminal.note("cloning")
    terminal.trial_started(1, 2, "m.C.m", 1)
    terminal.stdout("printed")
    terminal.stderr("warned")
    terminal.trial_finished(result(quality=of_quality("E", ("disturbed", "busy"))))
    terminal.results([result()])
    assert (out.getvalue(), err.getvalue()) == ("", "")
    terminal.trial_finished(result(status=Status.FAILED, reason="no"))
    terminal.problem("the disk is full")
    failed, problem = err.getvalue().splitlines()
    assert failed.startswith("perfrun: m.Class.method, trial 1: failed (no); ")
    assert failed.endswith("perfzero_summary.json")
    assert problem == "perfrun: the disk is full"
    assert out.getvalue() == ""


def test_the_table_has_a_row_for_each_method() -> None:
    terminal, out, _ = plain()
    terminal.results(
        [
            result("m.Class.fast", 1, metrics=({"name": "acc", "value": 0.5, "min_value": 0.9},)),
            result("m.Class.fast", 2, Status.OUT_OF_BOUNDS, wall_time=2.5),
            result("m.Class[bold].slow", 1, Status.TIMED_OUT, wall_time=-1, max_rss=2**30),
        ]
    )
    text = out.getvalue()
    assert "\x1b" not in text
    header, rule, *rows = text.partition("\n\n")[0].splitlines()
    assert re.split(" {2,}", header.strip()) == [
        "method",
        "trials",
        "outcome",
        "grade",
        "wall time (lowest..highest)",
        "metrics (lowest..highest)",
        "peak memory",
    ]
    assert set(rule) == {"-"}
    assert rows[0].split()[:4] == ["m.Class.fast", "2", "1", "passed"]
    assert "2 s (1.5..2.5)" in rows[0]
    assert "acc 0.5, below its bound 0.9 in 1 of 2 trials" in rows[0]
    assert "1 out_of_bounds" in rows[1]
    last = next(row for row in rows if "slow" in row)
    assert "m.Class[bold].slow" in last
    assert "timed_out" in last
    assert "1,024 MiB" in last


def of_quality(grade: str, *findings: tuple[str, str]) -> dict[str, Any]:
    return {
        "grade": grade,
        "disturbed": any(severity == "disturbed" for severity, _ in findings),
        "findings": [
            {"code": "_".join(text.split(": ")[-1].split()[:2]), "severity": severity, "text": text}
            for severity, text in findings
        ],
    }


@pytest.mark.parametrize(
    ("letters", "shown"), [(["B"], "B"), (["C", "A", "B"], "A..C"), ([None, "D"], "D"), ([], "-")]
)
def test_the_grades_are_shown_from_the_best_to_the_worst(
    letters: list[str | None], shown: str
) -> None:
    assert grades([result(quality=of_quality(x) if x else None) for x in letters]) == shown


def test_doubts_about_a_trial_are_one_line_and_information_is_none() -> None:
    terminal, out, _ = plain(verbose=True)
    found = (("warning", "it is so"), ("info", "by the way"), ("disturbed", "and so"))
    terminal.trial_finished(result(quality=of_quality("E", *found)))
    _, where, doubts = out.getvalue().splitlines()
    assert where.strip().endswith("perfzero_summary.json")
    assert doubts == "  quality E, disturbed: it is so; and so"
    terminal.trial_finished(result(quality=of_quality("A", ("info", "by the way"))))
    assert len(out.getvalue().splitlines()) == 5


def judged(*findings: tuple[str, str, str], **values: Any) -> TrialResult:
    """A trial with findings: code, severity and text."""
    quality = {
        "grade": "F",
        "disturbed": True,
        "findings": [dict(zip(("code", "severity", "text"), one, strict=True)) for one in findings],
    }
    return result(quality=quality, **values)


LOADED = ("machine_loaded", "disturbed", "others used 1.5 of 2 CPUs")
PRESSED = ("cpu_pressure", "warning", "some task waited")


def test_a_trial_has_a_grade_with_its_worst_cause_and_one_that_never_ran_has_none() -> None:
    assert quality_word(judged(PRESSED, LOADED)) == "F: busy machine"
    assert quality_word(judged(PRESSED)) == "F: waiting for CPUs"
    assert quality_word(judged(("cannot_tell", "info", "x"))) is None
    assert quality_word(judged(LOADED, status=Status.FAILED)) is None
    assert grades([judged(LOADED, status=Status.FAILED)]) == "-"
    terminal, out, _ = plain()
    terminal.trial_finished(judged(PRESSED, LOADED))
    [line] = out.getvalue().splitlines()
    assert line.endswith(" s; F: busy machine")


def test_a_common_cause_is_said_once_with_its_remedy() -> None:
    alone, both = judged(PRESSED), judged(PRESSED, LOADED)
    both.document["perfrun"]["quality"]["findings"][1]["mend"] = "end other work"
    assert common_causes([alone, both, both]) == [
        "busy machine in 2 of 3 trials: others used 1.5 of 2 CPUs (end other work)"
    ]
    assert common_causes([alone, alone, result()]) == [
        "waiting for CPUs in 2 of 3 trials: some task waited"
    ]
    assert common_causes([both, result(), result()]) == []
    assert common_causes([both]) == []  # its line has said it


def test_every_finding_that_lowers_a_grade_has_words() -> None:
    """The codes in the code itself: a new one without words would be shown as it is."""
    folder = Path(module.__file__).parent.parent / "summary"
    source = "".join(path.read_text() for path in folder.glob("*.py"))
    codes = set(re.findall(r'(?:code=|beyond\(\s*)"(\w+)"', source))
    codes |= {"cpu_pressure", "memory_pressure", "io_pressure"}  # from a table
    harmless = {"cannot_tell", "few_samples", "frequency_moved", "swap_used"}
    assert codes - harmless == set(WORDS)


def test_what_is_found_of_each_series_is_said_once() -> None:
    terminal, out, _ = plain(verbose=True)
    found = [("warning", f"part_{n}: not steady (drift)") for n in range(7)]
    terminal.trial_finished(result(quality=of_quality("F", *found, ("warning", "and so on"))))
    [line] = out.getvalue().splitlines()[2:]
    assert line == "  quality F: part_0: not steady (drift) (and 6 more like it); and so on"


def test_a_plain_table_is_never_wrapped() -> None:
    terminal, out, _ = plain()
    name = "package.module.Class." + "m" * 300
    terminal.results([result(name, metrics=({"name": "x" * 100, "value": 1},))])
    row = out.getvalue().splitlines()[2]
    assert row.startswith(name)
    assert "x" * 100 in row


def test_without_results_there_is_no_table() -> None:
    terminal, out, _ = plain()
    terminal.results([])
    assert out.getvalue() == ""
    [table] = drawn(run_table([]), width=80)
    assert isinstance(table, Table)
    assert table.row_count == 0


# --- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
def test_a_stream_of_any_encoding_shows_any_text(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    terminal = Terminal(stream, stream, quiet=False)
    name = "m.Größe.方法"
    terminal.trial_started(1, 1, name, 1)
    terminal.stdout("€ \U0001f600 \udcff\n")
    terminal.trial_finished(result(name, reason="ä"))
    terminal.results([result(name, metrics=({"name": "précision", "value": 1},))])
    stream.flush()
    text = raw.getvalue().decode(encoding)
    escaped = name.encode(encoding, "backslashreplace").decode(encoding)
    assert text.count(escaped) >= 2
    assert "passed" in text.partition("---\n")[2].splitlines()[0]
    assert "\\udcff" in text


def test_a_reader_that_has_gone_away_stops_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = open(writing, "w", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115
    terminal = Terminal(stream, stream, quiet=False)
    terminal.note("x")
    terminal.trial_started(1, 1, "m.C.m", 1)
    terminal.stdout("x" * 100_000)
    terminal.trial_finished(result())
    terminal.results([result()])
    with pytest.raises(BrokenPipeError):
        stream.close()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A real terminal: the stream to write to, and a function that returns what it shows."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    master, slave = pty.openpty()
    tty.setraw(slave)
    stream = open(slave, "w", encoding="utf-8")  # noqa: PTH123, SIM115

    def shown() -> str:
        """All that was written. The kernel passes it on in its own time: so up to a mark."""
        mark = "\0end"
        stream.write(mark)
        stream.flush()
        text = b""
        while not text.endswith(mark.encode()):
            text += os.read(master, 65536)
        return text.decode().removesuffix(mark)

    yield stream, shown
    stream.close()
    os.close(master)


def test_on_a_terminal_a_line_moves_and_goes(screen: tuple[Any, Any]) -> None:
    stream, shown = screen
    terminal = Terminal(stream, io.StringIO(), quiet=False)
    phases = iter(["import", "method"])
    terminal.outlook(left_s=14.2, half_width=0.08, phase=lambda: next(phases))
    terminal.trial_started(1, 3, "m.Class[bold].method", 1)
    terminal.stdout("printed [red]line[/red]\n")
    terminal.trial_finished(result("m.Class[bold].method"))
    text = shown()
    assert "\x1b[" in text
    first, second, third = text.split("\r\x1b[K")  # taken away for what is printed, and for good
    begin = "\r[1/3] m.Class[bold].method, trial 1  "
    assert first == f"{begin}import 0 s, 14 s left, \u00b18 %\x1b[K"
    # Once the method runs, nothing is read any more: `phases` has ended.
    assert second == f"printed [red]line[/red]\n{begin}method 0 s, 14 s left, \u00b18 %\x1b[K"
    assert ANSI.sub("", third).startswith("[1/3] m.Class[bold].method, trial 1: passed, ")


def test_the_line_that_moves_stays_away_while_a_benchmark_writes_its_own(
    screen: tuple[Any, Any],
) -> None:
    stream, shown = screen
    terminal = Terminal(stream, stream, quiet=False)
    terminal.trial_started(1, 3, "m.C.m", 1)
    terminal.stdout(" 10%|###")
    terminal.stdout("#######")
    terminal.stderr("\n")
    terminal.trial_finished(result("m.C.m"))
    _, middle, *_ = shown().split("\r\x1b[K")
    assert middle.startswith(" 10%|##########\n")


def test_no_colour_is_asked_for_by_its_variable(
    screen: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, shown = screen
    for value, colours in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        terminal = Terminal(stream, io.StringIO(), quiet=False)
        terminal.trial_finished(result(status=Status.CRASHED, reason="SIGSEGV"))
        terminal.results([result(status=Status.CRASHED)])
        assert ("\x1b[31mcrashed" in shown()) is colours


def test_a_long_line_is_cut_at_blanks_and_a_path_is_not(screen: tuple[Any, Any]) -> None:
    stream, shown = screen
    path = "/w/" + "x" * 300
    Terminal(stream, io.StringIO(), quiet=False).lines([f"{'word ' * 30}{path}", f"  {path}"])
    lines = shown().splitlines()
    assert f"  {path}" in lines
    assert all(len(line) <= 80 for line in lines if path not in line)
    assert "".join(lines).replace(" ", "") == "word" * 30 + path * 2


def test_on_a_terminal_the_table_is_coloured(screen: tuple[Any, Any]) -> None:
    stream, shown = screen
    Terminal(stream, io.StringIO(), quiet=False).results([result(status=Status.CRASHED)])
    text = shown()
    assert "\x1b[31mcrashed" in text


@pytest.mark.parametrize("why", ["dumb terminal", "not utf-8"])
def test_a_terminal_that_cannot_draw_gets_plain_lines(
    screen: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    stream, shown = screen
    if why == "dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
    else:
        stream.reconfigure(encoding="latin-1")
    terminal = Terminal(stream, io.StringIO(), quiet=False)
    terminal.trial_started(1, 3, "m.Class.method", 1)
    terminal.stdout("printed\n")
    terminal.trial_finished(result())
    text = shown()
    assert "\x1b" not in text
    printed, told = text.splitlines()
    assert printed == "printed"
    assert told.startswith("[1/3] m.Class.method, trial 1: passed, ")


def test_of_a_series_the_table_shows_what_people_compare() -> None:
    trial = result(
        metrics=(
            {"name": "latency_median_s", "value": 0.5},
            {"name": "latency_p90_s", "value": 0.6},
            {"name": "latency_max_s", "value": 0.7, "max_value": 1.0},
            {"name": "examples_per_second", "value": 2.0},
            {"name": "examples_per_second_per_device", "value": 2.0},
            {"name": "mine", "value": 3.0},
        )
    )
    metrics = trial.document["benchmark_result"]["metrics"]
    stated = {metric["name"]: {"value": metric["value"]} for metric in metrics[:5]}
    own = {"series": [{"report": "Cases.ok", "metrics": stated}], "reports": [{"name": "Cases.ok"}]}
    document = {**trial.document, "perfrun": {**trial.document["perfrun"], **own}}
    lines = metric_lines([replace(trial, document=document)])
    assert lines[:4] == ["2 examples/s", "latency p90 600 ms", "mine 3", "latency median 500 ms"]
    assert len(lines) == len(metrics)
    named = re.compile("latency.*_s|mine")
    assert metric_lines([replace(trial, document=document)], named) == [
        "latency median 500 ms",
        "latency p90 600 ms",
        "latency max 700 ms",
        "mine 3",
    ]
    first = run_table([replace(trial, document=document)]).rows[0][5]
    assert as_cell(first).lines == tuple(lines[:3])

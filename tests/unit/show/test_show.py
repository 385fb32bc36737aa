"""One screen about a trial, whatever its summary holds."""

from __future__ import annotations

import io
import json
import random
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.show.command import show_command
from perfrun.show.histogram import histogram, histogram_lines
from perfrun.shown import width
from tests.summaries import summary, write

SECRET = "hunter2hunter2"


def measured(times: list[float], **facts: Any) -> dict[str, Any]:
    """A trial with a series of these times, as `Benchmark.measure` records one."""
    median = sorted(times)[len(times) // 2]
    document = summary(wall_time=median, **facts)
    document["perfrun"]["series"] = [
        {
            "name": "spin",
            "block_size": 1,
            "iterations": len(times),
            "steps": len(times),
            "times_s": times,
            "times_every": 1,
            "timed_s": sum(times),
            "first_call_s": 0.5469,
            "warmup": {"steps": 5, "time_s": 0.2},
            "steadiness": {"kind": "flat", "steady_from": 0},
            "statistics": {"median_s": median, "median_low_s": 0.0289, "median_high_s": 0.0383},
        }
    ]
    document["perfrun"]["phases"] = {
        "import": {"wall_s": 6.4},
        "construct": {"wall_s": 0.1},
        "method": {"wall_s": 3.0},
    }
    return document


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["show", *words]) == 0
    return capsys.readouterr().out.splitlines()


def widest(lines: list[str]) -> int:
    """The longest line but what is never cut: the path of the summary, words of the command."""
    ours = "summary", "    --", "    '--"
    return max(width(line) for line in lines if not line.startswith(ours))


def test_a_screen_has_figures_steps_memory_phases_grade_versions_and_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(1)
    times = [draw.uniform(0.03, 0.04) for _ in range(60)]
    document = measured(times, commits={"models": "ab" * 20}, label="mine")
    document["ml_framework_info"] = {"name": "torch", "version": "2.13.0"}
    document["system_info"]["accelerator_driver_version"] = "550.54"
    document["perfrun"]["container"] = {"image": "torch:latest", "image_id": "sha256:" + "c" * 64}
    document["perfrun"]["quality"] = {
        "grade": "C",
        "disturbed": False,
        "findings": [
            {"code": "governor", "severity": "warning", "text": "the governor is powersave"},
            {"code": "few_samples", "severity": "info", "text": "too few samples"},
        ],
    }
    write(tmp_path / "output", document)
    text = "\n".join(lines := shown(capsys, "last", f"--workspace={tmp_path}"))
    median = sorted(times)[30]
    assert f"{1000 * median:.4g} ms (28.9..38.3)" in text
    assert "label mine" in text
    assert "peak 50 MiB" in text
    assert "import 6.4 s, setup 100 ms, method 3 s" in text
    assert "first call 547 ms, warm-up 200 ms (5 steps), timed" in text
    assert "grade      C: fair" in text
    assert "- the governor is powersave" in text
    assert "too few samples" not in text
    assert "torch 2.13.0, Python 3.11.2, driver 550.54, perfrun 0.1.0" in text
    assert "models abababababab" in text
    assert "container  torch:latest (cccccccccccc)" in text
    bars = [line for line in lines if "\u2588" in line]
    assert sum(int(line.rsplit(maxsplit=1)[-1]) for line in bars) == 60
    assert widest(lines) <= 80
    assert len(lines) <= 40


def test_a_terminal_without_blocks_gets_ascii(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "output", measured([0.01 * n for n in range(1, 30)]))
    monkeypatch.setattr("perfrun.show.command.can_show_blocks", lambda stream: False)
    lines = shown(capsys, f"--workspace={tmp_path}")
    assert any("####" in line for line in lines)
    assert all(line.isascii() for line in lines)


def test_characters_of_two_columns_are_wrapped_by_the_columns_that_they_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\u6a21\u578b\u306e\u901f\u3055"
    document = measured([0.01] * 9, label=name * 12)
    document["benchmark_result"]["name"] = f"pkg.mod.Class.{name * 8}"
    document["benchmark_result"]["metrics"] = [
        {"name": f"{name}{number}", "value": 1.5} for number in (1, 22)
    ]
    write(tmp_path / "output", document)
    lines = shown(capsys, "last", f"--workspace={tmp_path}")
    assert widest(lines) <= 80, lines
    assert "".join("".join(lines).split()).count(name) >= 8 + 12 + 2
    values = [one for one in lines if one.endswith("1.5")]
    assert len({width(one) for one in values}) == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_histogram_counts_every_time_once_and_keeps_its_width(seed: int) -> None:
    draw = random.Random(seed)
    times = [draw.lognormvariate(-5, draw.choice((0.0, 1e-9, 0.1, 3.0))) for _ in range(seed * 7)]
    times += [draw.uniform(1, 100)] * (seed % 3)
    bins = histogram(times)
    assert sum(one.count for one in bins) == (len(times) if bins else 0)
    assert len(bins) <= 8
    for blocks in (True, False):
        lines = histogram_lines(bins, 60, blocks=blocks)
        assert {len(line) for line in lines} <= {60}


def test_a_few_long_steps_do_not_hide_the_others() -> None:
    bins = histogram([1.0 + n / 1000 for n in range(100)] + [50.0])
    assert (bins[-1].is_open, bins[-1].count) == (True, 1)
    assert max(one.count for one in bins) < 50


def hostile() -> dict[str, Any]:
    """What a stranger may write: sequences, secrets, endless lists, values of a wrong type."""
    evil = f"\x1b]0;title\x07\x1b[2J\nperfrun: all passed {'x' * 5000} token={SECRET}"
    document = measured([1.0, 2.0, 3.0, 4.0, 5.0, 1e300], name="2026", label=evil)
    own = document["perfrun"]
    document["benchmark_result"]["name"] = f"pkg.{evil}"
    document["benchmark_result"]["metrics"] = [
        {"name": f"m{n}{evil}", "value": 10.0**n} for n in range(100)
    ]
    own["series"] += [{"name": evil, "statistics": 3, "times_s": [None]}, {"name": {}}] * 50
    own["quality"]["findings"] = [
        {"code": str(n), "severity": "warning", "text": evil} for n in range(150)
    ]
    own["quality"]["grade"] = evil
    own["git"] = [{"directory": evil, "git_hash": evil, "branch": evil, "dirty": True}] * 50
    own["environment"]["python"] = {"version": evil, "implementation": evil, "executable": evil}
    own["container"] = {"image": evil, "image_id": [evil]}
    own["phases"] = {"import": 3, "construct": {"wall_s": "x"}, "method": {"wall_s": -1}}
    own["memory"] = {"import_rss": [], "tree_pss": {"bytes": evil}, "device": [{"index": evil}] * 9}
    own["env"] = {"A": f"$(touch owned); {evil}"}
    document["benchmark_info"]["flags"] = {"python_path": "$(touch owned)", "memory": {"a": evil}}
    document["ml_framework_info"] = {"name": evil, "version": {"a": 1}}
    return document


def test_a_hostile_summary_is_a_screen_of_plain_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "output", hostile())
    lines = shown(capsys, f"--workspace={tmp_path}")
    body = lines[: next(n for n, line in enumerate(lines) if line.startswith("again"))]
    assert all(line.isprintable() for line in lines)
    assert SECRET not in "\n".join(lines)
    assert len(body) <= 40
    assert widest(body) <= 80
    assert not any(line.startswith("perfrun:") for line in lines)
    assert main(["show", f"--workspace={tmp_path}", "--format=json"]) == 0
    out = capsys.readouterr().out
    assert SECRET not in out
    again = json.loads(out)["shown"]["again"]
    assert again["is_own"] is False
    assert shlex.split(again["command"]) == again["words"]  # nothing in it is the shell's
    assert "--python_path=$(touch owned)" in again["words"]


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"imported": {"format": "asv"}}, "it was imported from asv"),
        (None, "the summary is not perfrun's"),
    ],
)
def test_what_perfrun_cannot_run_again_says_why(
    own: dict[str, Any] | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = summary()
    if own is None:
        del document["perfrun"]
    else:
        document["perfrun"].update(own)
    write(tmp_path / "output", document)
    text = " ".join(" ".join(shown(capsys, f"--workspace={tmp_path}")).split())
    assert f"again not by perfrun: {why}" in text


def test_of_several_trials_a_list_tells_how_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"--workspace={tmp_path}"
    for number in range(3):
        document = summary(name=f"t{number}", timestamp=1.7e9 + number, run_id="r1", label="x")
        write(tmp_path / "output", document)
    write(tmp_path / "output" / "b", summary(name="t2", timestamp=1.7e9 - 1, run_id="r0"))
    lines = shown(capsys, place, "x")
    assert lines[0] == "3 trials, the newest first"
    assert [line.split()[0] for line in lines if line.startswith("  t")] == [
        "trial", "t2", "t1", "t0",
    ]  # fmt: skip
    assert lines[-1] == f"show one of them: perfrun show {place} t2"
    assert shown(capsys, place, "t1")[1].startswith("trial 1, 2023-11-1")
    assert "the last of 3 trials" in shown(capsys, place)[-1]
    twice = shown(capsys, str(tmp_path / "output" / "b"), place)  # a folder with one result
    assert twice[0] == "pkg.cases.Cases.spin"
    assert main(["show", place, "nothing"]) == 2
    assert main(["show", f"--workspace={tmp_path / 'none'}"]) == 2
    assert "no last run" in capsys.readouterr().err


def test_a_failed_trial_says_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = summary(status="failed")
    document["perfrun"]["outcome"] |= {
        "reason": "ValueError: no",
        "exception": {"traceback": "Traceback:\n  File x, line 3\nValueError: no\n"},
    }
    finding = {"code": "load", "severity": "disturbed", "text": "the load was 7.5"}
    document["perfrun"]["quality"] = {"grade": "F", "disturbed": True, "findings": [finding]}
    write(tmp_path / "output", document)
    text = "\n".join(shown(capsys, f"--workspace={tmp_path}"))
    assert "outcome    failed: ValueError: no\n           Traceback:\n           File x" in text
    assert "\nbeside it  - the load was 7.5" in text
    assert "\ngrade" not in text  # there is no figure that it would judge


def test_figures_are_written_as_in_every_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = {"numbers_per_second": 2580000.0, "first_call_s": 0.0727, "latency_p90_s": 0.0518}
    write(tmp_path / "output", summary(wall_time=0.0387, metrics={**metrics, "accuracy": 0.71}))
    lines = shown(capsys, f"--workspace={tmp_path}")
    figures = [line.removeprefix("figures").strip() for line in lines[2:7]]
    assert figures[0].split() == ["wall_time", "38.7", "ms"]
    wanted = {"2,580,000 numbers/s", "first call 72.7 ms", "latency p90 51.8 ms", "accuracy 0.71"}
    assert {" ".join(line.split()) for line in figures[1:]} == wanted
    assert all("\x1b" not in line for line in lines)


def test_outcome_and_grade_have_a_colour_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "output", summary(status="failed", timestamp=1.7e9))
    for no_colour, wanted in (("", True), ("1", False)):
        screen = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdout", screen)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", no_colour)
        assert show_command([f"--workspace={tmp_path}"]) == 0
        written = screen.buffer.getvalue().decode()  # type: ignore[attr-defined]
        assert ("\x1b[31moutcome    failed\x1b[0m" in written) is wanted


def test_what_only_an_index_has_is_shown_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = measured([0.03, 0.0359, 0.04], metrics={"a_loss": 1.0, "accuracy": 0.9})
    write(tmp_path / "ws" / "output", document)
    store = f"--store={tmp_path / 'team.db'}"
    assert main(["index", f"--workspace={tmp_path / 'ws'}", store]) == 0
    shutil.rmtree(tmp_path / "ws")
    capsys.readouterr()
    lines = shown(capsys, store, "id:2026-11-21-10-00-00-000000")
    assert lines[2].split() == ["figures", "wall_time", "35.9", "ms"]
    text = " ".join(" ".join(lines).split())
    assert "again not by perfrun: its summary is not here" in text

"""A GPU day here, where there is no GPU: its limits, its reports, and its rehearsal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from wheels import make_wheel

from gpu_day import __main__ as command
from gpu_day import day
from gpu_day.asking import Asking, TimeOverError, Unanswered, ask_framework
from gpu_day.carry import CarryError, carry, unpack
from gpu_day.checks import CHECKS, Check
from gpu_day.day import NoDeviceError, Settings, held
from gpu_day.judging import PASSED, Verdict
from perfrun.probes.nvidia import nvidia_devices

ROOT = Path(__file__).resolve().parents[3]
ANSWERS = ROOT / "tests" / "data" / "gpu_day" / "answers.json"
needs_no_gpu = pytest.mark.skipif(bool(nvidia_devices()[0]), reason="here is a GPU")


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "gpu_day.json").read_text(encoding="utf-8"))
    return found


@needs_no_gpu
def test_without_a_gpu_each_check_says_so_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "--silent", "gpu", f"GPU_PYTHON='{sys.executable}'",
         f"GPU_ARGS=--output='{tmp_path / 'a report'}'"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    for check, line in zip(CHECKS, lines, strict=False):
        assert line.startswith(f"{check.name}: absent: no NVIDIA driver here")
    assert "nothing could be checked here (exit status 4)" in lines[len(CHECKS)]
    assert done.returncode == 2  # make's own, and it names ours
    assert "Error 4" in done.stderr
    found = report(tmp_path / "a report")
    assert found["counts"] == {"passed": 0, "failed": 0, "absent": len(CHECKS), "ran": 0}


def test_recorded_answers_are_judged_and_every_line_says_that_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([f"--replay={ANSWERS}", f"--output={tmp_path}"]) == 0
    found = report(tmp_path)
    assert found["counts"]["passed"] == len(CHECKS)
    assert {one["origin"].split(":")[0] for one in found["checks"]} == {"recorded"}
    text = (tmp_path / "gpu_day.md").read_text(encoding="utf-8")
    assert text == capsys.readouterr().out
    assert "Answers: recorded: written by hand" in text
    # A report is a recording: the next judgement is the same.
    again = tmp_path / "again"
    command.main([f"--replay={tmp_path / 'gpu_day.json'}", f"--output={again}"])
    assert [one["measured"] for one in report(again)["checks"]] == [
        one["measured"] for one in found["checks"]
    ]


@pytest.mark.parametrize("text", ["", "[]", '{"checks": 1}', "[" * 100_000])
def test_what_is_no_report_is_refused_in_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    words = [f"--replay={tmp_path / 'other.json'}", f"--output={tmp_path}"]
    assert command.main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_check_and_option_is_explained() -> None:
    text = (ROOT / "docs" / "contributing" / "gpu.md").read_text(encoding="utf-8")
    for one in CHECKS:
        assert f"| `{one.name}` |" in text, one.name
    for action in command._parser()._actions:
        assert action.option_strings[-1] == "--help" or f"`{action.option_strings[-1]}" in text


def check(name: str, ask: Any, limit_s: float = 30.0, **facts: Any) -> Check:
    return Check(
        name=name,
        expectation="it holds",
        ask=ask,
        judge=lambda answer: Verdict(verdict=PASSED, measured=str(answer["said"])),
        limit_s=limit_s,
        **{"needs": "driver", **facts},
    )


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that answers; what follows runs for real."""
    monkeypatch.setattr(day, "ask_driver", dict)


SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.mark.usefixtures("driver")
@pytest.mark.slow  # it waits for limits of seconds
def test_a_check_that_breaks_or_hangs_stops_no_other(tmp_path: Path) -> None:
    def breaks(asking: Asking) -> dict[str, Any]:
        raise ZeroDivisionError("by nothing")

    def hangs(asking: Asking) -> dict[str, Any]:
        return {"said": asking.command(SLEEPER)}

    def dies(asking: Asking) -> dict[str, Any]:
        code = "import sys; sys.exit('first\\nlast words')"
        return {"said": asking.command([sys.executable, "-c", code])}

    def answers(asking: Asking) -> dict[str, Any]:
        return {"said": asking.command([sys.executable, "-c", "print('here')"]).strip()}

    checks = [
        check("breaks", breaks),
        check("hangs", hangs, limit_s=5.0),
        check("dies", dies),
        check("no program", lambda asking: {"said": asking.command(["/no/such/program"])}),
        check("answers", answers),
    ]
    results = held(checks, Settings(folder=tmp_path, seconds=300.0), lambda _: None)
    said = [(one.verdict.verdict, one.verdict.reason or one.verdict.measured) for one in results]
    assert said[0] == ("failed", "ZeroDivisionError: by nothing")
    assert said[1][1].startswith("no answer within ")
    assert said[2] == ("failed", "exit status 1: last words")
    assert said[3] == ("failed", "/no/such/program cannot be started: No such file or directory")
    assert said[4] == ("passed", "here")


@pytest.mark.usefixtures("driver")
@pytest.mark.slow  # it waits for limits of seconds
def test_the_whole_day_ends_in_its_time(tmp_path: Path) -> None:
    checks = [
        check("long", lambda asking: {"said": asking.command(SLEEPER)}),
        check("next", lambda asking: {"said": "never asked"}),
    ]
    begun_s = time.monotonic()
    results = held(checks, Settings(folder=tmp_path, seconds=6.0), lambda _: None)
    assert [one.verdict.verdict for one in results] == ["failed", "absent"]
    assert results[1].verdict.reason == "no time left of the 0.1 minutes"
    assert time.monotonic() - begun_s < 300  # and not the 600 of the sleeper


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        ("torch", "no interpreter here has torch: looked in /no/python"),
        ("engine", None),
    ],
)
def test_what_a_check_lacks_is_said(tmp_path: Path, needs: str, reason: str | None) -> None:
    settings = Settings(folder=tmp_path, seconds=300.0, pythons=("/no/python",))
    (one,) = held([check("one", lambda _: {"said": ""}, needs=needs)], settings, lambda _: None)
    assert one.verdict.verdict == "absent"
    assert one.verdict.reason is not None
    assert reason in (None, one.verdict.reason)


@needs_no_gpu
def test_without_a_device_nothing_is_started(tmp_path: Path) -> None:
    with pytest.raises(NoDeviceError, match="no NVIDIA driver here"):
        held(CHECKS, Settings(folder=tmp_path, seconds=300.0), lambda _: None)


def test_a_framework_that_is_not_there_has_no_facts() -> None:
    assert ask_framework(sys.executable, "torch", 60.0, os.environ) is None
    assert ask_framework("/no/python", "torch", 60.0, os.environ) is None


def test_a_question_after_its_time_is_not_asked(tmp_path: Path) -> None:
    asking = Asking(pythons={}, facts={}, folder=tmp_path, device="cpu", image=None, ends_s=0.0)
    with pytest.raises(TimeOverError):
        asking.command(SLEEPER)
    assert issubclass(TimeOverError, Unanswered)


@pytest.mark.slow
def test_wheels_are_carried_and_only_those_that_are_missing_are_installed(tmp_path: Path) -> None:
    shelf, place = tmp_path / "shelf", tmp_path / "carried here"
    made = make_wheel(shelf, "perfrun-carried-example", "1.0")
    make_wheel(place, "numpy", "0.0.1")  # this interpreter has one
    said = carry(str(place), [str(made), "--no-index"], "3.12", 64.0)
    assert said.startswith("2 wheels for Python 3.12, 0.0 MiB")
    unpacked = unpack(place, tmp_path)
    assert unpacked is not None
    assert [path.name for path in unpacked.iterdir()] == ["perfrun_carried_example-1.0.dist-info"]
    with pytest.raises(CarryError, match="more than 0; carry less"):
        carry(str(place), [str(made), "--no-index"], "3.12", 0.0)
    with pytest.raises(CarryError, match="pip download: ERROR"):
        carry(str(place), ["perfrun-no-such-thing", "--no-index"], "3.12", 64.0)
    assert unpack(shelf / "none", tmp_path) is None

"""`perfrun plot`: what is drawn of which results, what is refused, and where pictures go."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import schemas

from perfrun.changes.history import history_command
from perfrun.errors import UsageError
from perfrun.plots.command import plot_command
from perfrun.plots.selected import read_again
from perfrun.plots.trials import memory
from perfrun.reports.sparkline import shortened
from perfrun.summary.record import read_record
from tests.summaries import summary, write
from tests.unit.plots.pictures import texts
from tests.unit.versus.test_answer import saved

METHOD = "pkg.cases.Cases.spin"


def nights(count: int = 40) -> list[dict[str, Any]]:
    """One run of three trials a night: a step of 10 %, a new driver, a new framework."""
    found = []
    for night in range(count):
        for trial in range(3):
            level = 0.0120 * (1.1 if night >= 25 else 1.0)
            document = summary(
                wall_time=level * (1 + 0.004 * ((night * 7 + trial * 3) % 5 - 2)),
                metrics={"images_per_second": 1 / level},
                timestamp=1.79e9 + 86400 * night + 60 * trial,
                name=f"n{night}-{trial}",
                run_id=f"r{night}",
                disturbed=night == 30,
                label="last one" if night == count - 1 else None,
                system={"accelerator_driver_version": "535.1" if night < 15 else "550.2"},
            )
            version = "2.8.0" if night < 8 else "2.9.1"
            document["ml_framework_info"] = {"name": "torch", "version": version}
            found.append(document)
    return found


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights")
    write(folder / "output", *nights())
    return folder


def plot(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert plot_command([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_a_history_shows_what_changed_in_the_workspace_and_when(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("history", f"--workspace={workspace}")
    shown = plot(capsys, *words, METHOD)
    for text in ("driver 535.1 \u2192 550.2", "torch 2.8.0 \u2192 2.9.1", "+10 % worse"):
        assert text in shown
    assert "1 disturbed observation, not counted" in shown
    # The same history by a label of a trial, and by the folder itself, which stays as it is.
    assert plot(capsys, *words, "label:last one") == shown
    there = sorted(workspace.iterdir())
    assert plot(capsys, "history", workspace) == shown
    assert sorted(workspace.iterdir()) == there
    path = tmp_path / "h.svg"
    assert plot(capsys, *words, METHOD, "-o", path, "--metric=images_per_second") == ""
    assert {"images/s", "-9.1 % worse", METHOD} <= set(texts(path.read_bytes()))


def test_a_history_as_text_begins_with_its_observations_as_blocks(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert history_command([METHOD, f"--workspace={workspace}"]) == 0
    first, second = (
        line for line in capsys.readouterr().out.splitlines() if "observations" in line
    )
    assert re.fullmatch(r"[\u2583-\u2586]{15} 11\.9\d..12\.\d+ ms, 15 observations", first)
    # Those of before and after the step; the disturbed one does not count.
    blocks = re.fullmatch(r"(\u2581|\u2582){10}[\u2586-\u2588]{14} .* 24 observations", second)
    assert blocks, second
    assert shortened([1, 2, 3, 4, 9, 9], 3) == [1.5, 3.5, 9]
    monkeypatch.setattr("perfrun.changes.history.can_show_blocks", lambda stream: False)
    history_command([METHOD, f"--workspace={workspace}"])
    assert "observations" not in capsys.readouterr().out


def test_a_metric_of_any_size_is_drawn_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [1e308, -1e308, 1e-320, 3.0, 4.0]
    documents = [
        summary(
            metrics={"score": value}, timestamp=1.79e9 + 86400 * at, name=f"n{at}", run_id=f"{at}"
        )
        for at, value in enumerate(values)
    ]
    write(tmp_path / "output", *documents)
    shown = plot(capsys, "history", f"--workspace={tmp_path}", METHOD, "--metric=score")
    assert shown.count("\u25cf") == 2


def test_what_there_is_not_is_one_line(workspace: Path, tmp_path: Path) -> None:
    at = f"--workspace={workspace}"
    for words, told in (
        (["pie"], "is none of history"),
        (["history", at, METHOD, "--metric=nonsense"], "its results have no nonsense; they have"),
        (["history", at, "no.such.method"], "is neither a folder nor a run"),
        (["pairs", at], "holds no answer of `perfrun ab`"),
        (["versus", at], "holds no answer of `perfrun versus`"),
        (["distribution", at, "run:r3"], "this trial has no samples"),
        (["memory", at, "run:r3"], "process_info.log of this trial is gone"),
        (["memory", at, "--zero"], "--zero has no effect on memory"),
        (["history", at, METHOD, "-o", str(tmp_path / "a.pdf")], "must end in .svg or .png"),
        (["history", at, METHOD, "--width=20"], "must be a whole number from 400"),
    ):
        with pytest.raises(UsageError) as raised:
            plot_command(words)
        assert told in str(raised.value)
        assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("library", "flags"), [("matplotlib", ["-o", "a.svg"]), ("plotext", [])])
def test_a_library_that_is_missing_is_named_with_its_command(
    workspace: Path, library: str, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=rf"-m pip install .*{library}"):
        plot_command(["history", f"--workspace={workspace}", METHOD, *flags])


def test_several_trials_are_drawn_over_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = []
    for number in range(10):
        name = f"2026-11-22-10-00-0{number}-000000"
        documents.append(timed(summary(name=name, timestamp=1795341600.5 + number, run_id="r")))
    documents.append(summary(name="2026-11-22-10-01-00-000000", timestamp=1.8e9, run_id="r"))
    write(tmp_path / "output", *documents)
    at = f"--workspace={tmp_path}"
    shown = plot(capsys, "distribution", at)
    assert "step; 8 trials; " in shown
    assert "  h 2026-11-22-10-00-09-000000: median 10.3 ms, longest 10.6 ms, 26 steady" in shown
    for word in (METHOD, "*.spin", tmp_path):
        assert plot(capsys, "distribution", at, word) == shown
    plot_command(["distribution", at, "-o", str(tmp_path / "d.svg")])
    told = capsys.readouterr().err
    assert f"{METHOD}: 8 of 11 trials are drawn, the newest" in told
    found = texts((tmp_path / "d.svg").read_bytes())
    assert sum("26 steady" in text for text in found) == 8
    document = json.loads(plot(capsys, "distribution", at, "--format=json"))
    assert [one["trial"][17:19] for one in document["pictures"]] == [f"0{n}" for n in range(2, 10)]
    # One of them alone is drawn in the order of its steps.
    one = plot(capsys, "distribution", at, "id:2026-11-22-10-00-09-000000")
    assert "first call 250 ms; warm-up 2 iterations" in one


def one_trial(folder: Path, log: bytes, **series: Any) -> Path:
    """A trial with a series, whose method began 0.5 s after its folder was made."""
    document = timed(summary(name="2026-11-22-10-00-00-000000", timestamp=1795341600.5), **series)
    write(folder / "output", document)
    trial = next((folder / "output").iterdir())
    (trial / "process_info.log").write_bytes(log)
    (trial / "perfrun").mkdir()
    return trial


def timed(document: dict[str, Any], **series: Any) -> dict[str, Any]:
    """The summary of a trial with a series."""
    document["perfrun"] |= {
        "series": [
            {
                "name": "step",
                "first_call_s": 0.25,
                "warmup": {"times_s": [0.02, 0.011], "every": 1},
                "times_s": [0.0100 + 0.0001 * (at % 7) for at in range(30)],
                "times_every": 1,
                "steadiness": {"kind": "warmup", "steady_from": 4},
                "statistics": {"median_s": 0.0103},
                **series,
            }
        ],
        "phases": {
            "import": {"wall_s": 0.3},
            "construct": {"wall_s": 0.1},
            "method": {"wall_s": 2.0},
        },
        "usage": {"elapsed_s": 2.6},
    }
    return document


def line(time: object, **more: object) -> bytes:
    sample = {"time": time, "rss": 2**28, "cpu_percent": 90.0, "processes": 2, "tree_pss": 2**29}
    return json.dumps({**sample, **more}).encode() + b"\n"


def test_a_trial_is_drawn_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "180")
    bad = [b"{", b"[]", line("x"), line(float("nan")), line(True), line(0.1), b"[" * 100_000]
    log = b"\n".join([line(0.5), line(1.5, rss=2**29), *bad, line(2.5)])
    trial = one_trial(tmp_path, log)
    header = "time,device,used_bytes,utilization_percent,power_w\n"
    rows = "1,nvidia0,1048576,50,\n2,nvidia0,2097152,nan,120.5\nx,nvidia0,1,1,1\n3,$(id),1,1,1\n"
    (trial / "perfrun" / "devices.csv").write_text(header + rows)
    at = f"--workspace={tmp_path}"
    found = memory(read_record(trial / "perfzero_summary.json"))
    assert [phase.name for phase in found.phases] == ["start", "import", "setup", "method"]
    assert [round(phase.begin, 3) for phase in found.phases] == [0.0, 0.1, 0.4, 0.5]
    assert found.phases[-1].end == pytest.approx(2.5)
    curves = {panel.name: [one.values for one in panel.curves] for panel in found.panels}
    assert curves == {
        "memory": [(2**28, 2**29, 2**28), (2**29, 2**29, 2**29), (1048576, 2097152)],
        "CPU": [(90.0, 90.0, 90.0)],
        "device": [(50.0,)],
        "power": [(120.5,)],
    }
    shown = plot(capsys, "memory", at, "last")
    assert "with all descendants (PSS), peak 512 MiB" in shown
    assert "nvidia0, in use, peak 2 MiB" in shown
    told = plot(capsys, "distribution", at, "last", "--series=step")
    assert "first call 250 ms; warm-up 2 iterations; steady from iteration 4" in told
    assert "26 steady samples" in told
    with pytest.raises(UsageError, match="--series=other: this trial has step"):
        plot_command(["distribution", at, "--series=other"])


def test_the_summaries_of_more_methods_than_are_drawn_are_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = [f"pkg.cases.Cases.m{at:02}" for at in range(20)]
    several = [summary(method=method, name=method[-3:]) for method in methods]
    write(tmp_path / "output", *(timed(one) for one in several))
    read = []
    monkeypatch.setattr(
        "perfrun.plots.selected.read_again", lambda one: read.append(one) or read_again(one)
    )
    at = (f"--workspace={tmp_path}", "pkg.*", "--format=json")
    assert plot_command(["distribution", *at]) == 0
    told = capsys.readouterr()
    assert [one["method"] for one in json.loads(told.out)["pictures"]] == methods[:8]
    assert "20 methods are there; the first 8 with data are drawn: select fewer" in told.err
    assert len(read) == 8


def test_a_log_that_is_a_link_or_a_series_of_nonsense_is_not_read(tmp_path: Path) -> None:
    trial = one_trial(tmp_path, line(0.5), times_s=[1.0, "x"])
    record = read_record(trial / "perfzero_summary.json")
    (tmp_path / "secret").write_bytes(line(0.5))
    (trial / "process_info.log").unlink()
    (trial / "process_info.log").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="cannot be read"):
        memory(record)
    with pytest.raises(UsageError, match="no samples"):
        plot_command(["distribution", f"--workspace={tmp_path}"])


def answer(folder: Path) -> Path:
    """An answer of `perfrun ab` with eight pairs, whose summaries are there but for the last."""
    trials = []
    for pair in range(1, 9):
        paths = {}
        for arm, time in (("a", 1.0), ("b", 1.05 + 0.001 * pair)):
            name = f"{arm}{pair}"
            document = summary(wall_time=time, name=name, run_id=f"run-{arm}", label="try")
            write(folder / "ab" / arm / "output" / name, document)
            paths[arm] = str(next((folder / "ab" / arm / "output" / name).iterdir()))
            paths[arm] += "/perfzero_summary.json"
        values = [1.0, 1.05 + 0.001 * pair]
        trials.append({"method": METHOD, "pair": pair, "first": "ab"[pair % 2], **paths})
        trials[-1]["values"] = values
    Path(paths["b"]).unlink()
    judged = {"method": METHOD, "metric": "wall_time", "ratio": 1.0545, "low": 1.05, "high": 1.06}
    document = {
        "comparisons": [{**judged, "verdict": "slower"}],
        "run_ids": {"a": "run-a", "b": "run-b"},
        "trials": trials,
    }
    path = folder / "ab" / "run-a.json"
    path.write_text(json.dumps(document))
    return path


def test_pairs_are_those_of_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = answer(tmp_path)
    (tmp_path / "ab" / "zzz.json").write_text("[")
    (tmp_path / "ab" / "zzy.json").write_text('{"trials": 1}')
    at = f"--workspace={tmp_path}"
    shown = plot(capsys, "pairs", at)
    assert "B/A 1.054 (95 % interval 1.050..1.060), slower" in shown
    assert shown.count("\u25cf") - 1 == shown.count("\u25a0") - 1 == 4
    for word in ("run-b", "run:run-a", path, tmp_path):
        assert plot(capsys, "pairs", word, at) == shown
    schemas.check("plot", json.loads(plot(capsys, "pairs", at, "--format=json")))
    with pytest.raises(UsageError, match="names none of the answers"):
        plot_command(["pairs", "nothing", at])
    with pytest.raises(UsageError, match="metrics in it: wall_time"):
        plot_command(["pairs", at, "--metric=nothing"])
    path.write_text(json.dumps({"comparisons": "x", "trials": [{"method": METHOD, "pair": "1"}]}))
    with pytest.raises(UsageError, match="no pair of it has a ratio"):
        plot_command(["pairs", at])


def test_the_values_of_a_picture_are_printed_as_json(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("history", METHOD, f"--workspace={workspace}", "--format=json")
    document = json.loads(plot(capsys, *words))
    schemas.check("plot", document)
    (picture,) = document["pictures"]
    assert (document["kind"], picture["unit"], len(picture["observations"])) == ("history", "s", 40)
    assert picture["observations"][30]["counts"] is False
    (shift,) = picture["shifts"]
    assert (shift["first"], shift["direction"]) == (25, "worse")
    with pytest.raises(UsageError, match="one of them at a time"):
        plot_command([*words, "--terminal"])


def test_bars_are_those_of_a_saved_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path, "small", 1.0)
    shown = plot(capsys, "versus", f"--workspace={folder}")
    assert "perfrun versus: net" in shown
    assert "latency, lower is better; small" in shown
    assert plot(capsys, "versus", folder / "versus" / "x.json") == shown
    schemas.check("plot", json.loads(plot(capsys, "versus", folder, "--format=json")))
    with pytest.raises(UsageError, match="it has no nothing; figures in it: latency_s"):
        plot_command(["versus", str(folder), "--metric=nothing"])

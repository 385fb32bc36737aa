"""What a trial must not count itself, a process of its own counts afterwards, once, and checked."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from worlds import World, finish, strict, wait_until

CLASS = """
import json
LOG, GONE_ON = {log!r}, {gone_on!r}

def note(*said):
    with open(LOG, "a") as file:
        file.write(json.dumps(said) + "\\n")

def counted(arguments, wanted, work, rate):
    held = bytearray(300 << 20)  # must be in nobody's trial
    held[::4096] = b"x" * len(held[::4096])
    note("counted", arguments["mode"], wanted, work, rate, os.getpid(), os.getppid())
    getattr(Ways, arguments["mode"], lambda: None)()
    found = {{
        "work": {{"flops_per_example": 8e9, "counted_by": "hand"}},
        "peak": {{"flops_per_second": 4e10, "measured_by": "hand", "by_kind": "all 40"}},
    }}
    return {{name: arguments.get(name, found[name]) for name in wanted}}

class Ways:
    def raises():
        raise RuntimeError("no such\\noperator")

    def dies():
        os._exit(3)

    def waits():
        if not os.path.exists(GONE_ON):
            note("waits")
            time.sleep(600)

class Asks(Benchmark):
    def _ask(self, mode, rate=2.5, place=1, **said):
        note("method", mode, os.getpid())
        arguments = {{"mode": mode, **said}}
        self.count_afterwards("pkg.cases.counted", arguments, place={{"device": place}}, rate=rate)
        self.report_benchmark(wall_time=1.0, metrics=[{{"name": "own", "value": 7}}])

    def good(self):
        self._ask("good")

    def faster(self):
        self._ask("good", rate=10.0)

    def elsewhere(self):
        self._ask("good", place=2)

    def raises(self):
        self._ask("raises", place=3)

    def dies(self):
        self._ask("dies", place=4)

    def infinite(self):
        self._ask("infinite", place=5, work={{"flops_per_example": float("inf")}})

    def text(self):
        self._ask("text", place=6, peak="forty")

    def no_number(self):
        self._ask("no_number", place=7, work={{"why_unknown": "no operator is known"}})

    def waits(self):
        self._ask("waits")

    def forges(self):
        folder = os.environ["PERFRUN_SERIES_DIR"]
        os.symlink("/dev/zero", folder + "/companion_1.json")
        os.mkfifo(folder + "/companion_2.json")
        for number, text in enumerate(("[[", "[1]", '{{"report": 1}}', "[" * 9999), 3):
            with open(folder + "/companion_%d.json" % number, "w") as file:
                file.write(text)
        self._ask("good", rate=-1)
        self._ask("good")
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CLASS.format(log=str(tmp_path / "log"), gone_on=str(tmp_path / "gone_on")))
    return made


def named(*methods: str) -> str:
    return ",".join(f"pkg.cases.Asks.{name}" for name in methods)


def noted(world: World, kind: str) -> list[list[Any]]:
    path = world.folder / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [rest for first, *rest in map(json.loads, lines) if first == kind]


def metrics(summary: dict[str, Any]) -> dict[str, float]:
    found = summary["benchmark_result"]["metrics"]
    assert found == [
        {key: metric[key] for key in ("name", "value")}
        for metric in summary["perfrun"]["reports"][0]["metrics"]
    ]
    return {metric["name"]: metric["value"] for metric in found}


def extras(summary: dict[str, Any]) -> dict[str, str]:
    return {extra["name"]: extra["value"] for extra in summary["benchmark_result"]["extras"]}


def quiet(world: World, *, disturbed: bool = False) -> None:
    """Let what is kept be measured on a machine without other load."""
    for path in world.workspace.glob("companion/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "disturbed": disturbed}))


def test_figures_are_counted_once_outside_the_trial_and_again_when_the_code_changes(
    world: World,
) -> None:
    every = named("good", "elsewhere", "faster")
    done = world.run("--benchmark_num_trials=2", "--format=json", methods=every)
    assert done.statuses == ["passed"] * 6, done.stderr
    first = {summary["benchmark_result"]["name"]: summary for summary in done.summaries()}
    good = first[named("good")]
    assert metrics(good) == {
        "own": 7,
        "flops_per_example": 8e9,
        "macs_per_example": 4e9,
        "achieved_flops_per_second": 2e10,
        "peak_flops_per_second": 4e10,
        "model_flops_utilisation": 0.5,
    }
    assert extras(good) == {
        "flops_counted_by": "hand",
        "peak_measured_by": "hand",
        "peak_by_kind": "all 40",
    }
    assert metrics(first[named("faster")])["model_flops_utilisation"] == 2.0
    assert "disturbed" in extras(first[named("faster")])["mfu_suspicious"]
    for summary in first.values():  # a Python takes 15 MB, what is counted with 300
        assert summary["perfrun"]["memory"]["process_rss"]["bytes"] < 100 << 20
        assert summary["perfrun"]["memory"]["tree_pss"]["bytes"] < 100 << 20
        assert summary["perfrun"]["notes"] == []
    # Both of the first; then the peak of another device, and that of one which a model exceeds.
    asked = noted(world, "counted")
    wanted = sorted(tuple(one[1]) for one in asked)
    assert wanted in ([("peak",), ("peak",), ("work", "peak")], [("peak",), ("work", "peak")])
    assert all(one[2] == {"flops_per_example": 8e9} for one in asked if one[1] == ["peak"])
    assert not {one[4] for one in asked} & {one[1] for one in noted(world, "method")}

    # A later run takes what is kept; a peak that was measured beside other load may rise.
    before = len(asked)
    assert world.run("--format=json", methods=every).statuses == ["passed"] * 3
    assert all(one[1] == ["peak"] for one in noted(world, "counted")[before:])
    quiet(world)
    before = len(noted(world, "counted"))
    assert world.run("--format=json", methods=every).statuses == ["passed"] * 3
    assert len(noted(world, "counted")) == before
    quiet(world, disturbed=True)
    assert world.run("--format=json", methods=named("good", "good")).statuses == ["passed"] * 2
    assert [one[1] for one in noted(world, "counted")[before:]] == [["peak"]], "once in a run"
    for _ in range(3):
        quiet(world, disturbed=True)
        assert world.run("--format=json", methods=named("good")).statuses == ["passed"]
    searches = [one[1] for one in noted(world, "counted")[before:]]
    assert searches in ([["peak"]] * 1, [["peak"]] * 2), "in three runs, the first ones included"
    source = world.folder / "code" / "pkg" / "cases.py"
    source.write_text(source.read_text().replace("8e9", "6e9"))
    done = world.run("--format=json", methods=named("good"))
    assert metrics(done.summaries()[0])["flops_per_example"] == 6e9
    for kept in world.workspace.glob("companion/*.json"):
        kept.write_text("[" * 99_999)
    done = world.run("--format=json", methods=named("good"))
    assert metrics(done.summaries()[0])["flops_per_example"] == 6e9


def test_a_companion_that_fails_costs_its_figures_and_nothing_else(world: World) -> None:
    said = {
        "raises": "the companion process failed: RuntimeError: no such operator",
        "dies": "the companion process failed: exit status 3",
        "infinite": "flops_per_example is not a finite number above 0",
        "text": "its answer is wrong: not a mapping of flops_per_second and measured_by",
        "no_number": "no operator is known",
    }
    words = ("--benchmark_num_trials=2", "--format=json")
    done = world.run(*words, methods=named(*said))
    assert done.statuses == ["passed"] * 10, done.stderr
    for summary in done.summaries():
        name = summary["benchmark_result"]["name"].rpartition(".")[2]
        assert said[name] in extras(summary)["mfu_absent"]
        assert "\n" not in extras(summary)["mfu_absent"]
        assert "flops_per_example" not in metrics(summary)
        assert ("peak_flops_per_second" in metrics(summary)) == (name == "no_number")
    modes = [one[0] for one in noted(world, "counted")]
    assert sorted(modes) == sorted(said), "what failed is not tried again in the same run"
    assert "Traceback" not in done.stderr


def test_forged_requests_are_notes_and_the_honest_one_is_answered(world: World) -> None:
    done = world.run("--format=json", methods=named("forges"))
    assert done.statuses == ["passed"], done.stderr
    (summary,) = done.summaries()
    notes = summary["perfrun"]["notes"]
    assert len(notes) == 7
    for number, note in enumerate(notes, 1):
        assert note.startswith(f"companion_{number}.json is no request to the companion: ")
        assert "\n" not in note
    assert metrics(summary)["flops_per_example"] == 8e9


def test_a_profile_trial_asks_no_companion(world: World) -> None:
    done = world.run("--profile=cprofile", "--format=json", methods=named("good"))
    assert done.statuses == ["passed"], done.stderr
    assert len(noted(world, "method")) == 2
    assert len(noted(world, "counted")) == 1
    (linked,) = done.summaries()
    assert metrics(linked)["flops_per_example"] == 8e9
    (profile,) = world.workspace.glob("output/*/profiles/*/profile_summary.json")
    assert "flops_per_example" not in metrics(strict(profile.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_count_keeps_the_trial(world: World, number: signal.Signals) -> None:
    process = world.start(methods=named("waits", "good"))
    wait_until(lambda: noted(world, "waits") or process.poll() is not None)
    process.send_signal(number)
    assert finish(process).code == 130
    (path,) = world.summary_files()
    summary = strict(path.read_text())
    assert summary["perfrun"]["outcome"]["status"] == "passed"
    assert f"stopped by {number.name}" in extras(summary)["mfu_absent"]
    assert world.left_running() == []


def test_a_harness_killed_during_the_count_loses_nothing(world: World) -> None:
    process = world.start("--resume", methods=named("waits", "good"))
    wait_until(lambda: noted(world, "waits") or process.poll() is not None)
    process.kill()
    finish(process)
    assert world.left_running() == []
    (world.folder / "gone_on").touch()
    done = world.run("--resume", "--format=json", methods=named("waits", "good"))
    assert done.statuses == ["passed", "passed"], done.stderr
    assert [one[0] for one in noted(world, "method")] == ["waits", "good"], "nothing runs twice"
    for summary in done.summaries():
        assert metrics(summary)["flops_per_example"] == 8e9

"""Whole nights: a git repository of benchmarks, a suite, and what two nights leave behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.gitrepos import git, make_repository
from tests.worlds import Finished, World, finish, strict, wait_until

CASES = """
import os, time
from perfrun import Benchmark

class Cases(Benchmark):
    def _note(self, name):
        with open({starts!r}, "a") as file:
            file.write(name + "\\n")
        with open({starts!r}) as file:
            begun = file.read().split().count(name)
        is_held = [name, str(begun)] == os.environ.get("HOLD", "").split()
        while is_held and not os.path.exists({go!r}):
            time.sleep(0.01)
        self.report_benchmark(wall_time={wall_time})

    def one(self):
        self._note("one")

    def two(self):
        self._note("two")
"""


class Place:
    """A world with a repository of benchmarks and a suite."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.suite = folder / "suite.toml"
        self.repository = folder / "bench"
        self.starts, self.go = folder / "starts", folder / "go"
        self.hashes = make_repository(self.repository, [{"cases.py": self.source(1.0)}])

    def source(self, wall_time: float) -> str:
        """Of the benchmarks. With HOLD="two 3" the third trial of `two` waits for the file `go`."""
        return CASES.format(starts=str(self.starts), go=str(self.go), wall_time=wall_time)

    def change(self, wall_time: float) -> str:
        """Commit a version of the benchmarks that says another time."""
        (self.repository / "cases.py").write_text(self.source(wall_time))
        git(self.repository, "commit", "-q", "-a", "-m", "changed")
        return git(self.repository, "rev-parse", "HEAD")

    def write(self, top: str = "", one: str = "", two: str = "") -> None:
        self.suite.write_text(
            f'name = "models"\npython_path = ["bench"]\ntrials = 2\n{top}\n'
            f'[[repos]]\nurl = "{self.repository.as_uri()}"\nbranch = "main"\n'
            f'[[methods]]\nname = "cases.Cases.one"\n{one}\n'
            f'[[methods]]\nname = "cases.Cases.two"\ntrials = 3\n{two}\n'
        )

    def words(self, *words: str) -> list[str]:
        return [self.world.python, self.world.entry, "nightly", str(self.suite), *words]

    def run(self, *words: str, **env: str) -> Finished:
        return self.world.run_words(self.words("--format=json", *words), **env)

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        return self.world.start_words(self.words("--format=json"), **env)

    def begun(self) -> Counter[str]:
        return Counter(self.starts.read_text().split() if self.starts.exists() else [])

    def trials(self, label: str) -> int:
        """How many summaries carry the label of a night."""
        documents = [json.loads(p.read_text()) for p in self.world.summary_files()]
        return sum(d["benchmark_info"]["execution_label"] == label for d in documents)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "a b")


def states(report: dict[str, Any]) -> dict[str, str]:
    return {m["method"].rpartition(".")[2]: m["state"] for m in report["methods"]}


def test_two_nights_leave_all_their_reports(place: Place) -> None:
    place.write(
        '[output]\njunit = "out/junit.xml"\nmarkdown = "out/night.md"\nopenmetrics = "out/n.prom"\n'
    )
    first = place.run()
    assert first.code == 0, first.stderr
    commit = place.change(5.0)
    place.write("owner = 'me'\n", "bounds.wall_time.max = 2.0\n")
    second = place.run()
    assert second.code == 1, second.stderr
    nights = [strict(done.stdout) for done in (first, second)]
    assert [states(night) for night in nights] == [
        {"one": "ok", "two": "ok"},
        {"one": "out_of_bounds", "two": "ok"},
    ]
    assert [night["commits"] for night in nights] == [
        {"bench": place.hashes[0]},
        {"bench": commit},
    ]
    names = [night["night"] for night in nights]
    assert names[1] == names[0] + "-2" or names[0][-10:] < names[1][-10:]
    assert [place.trials(name) for name in names] == [5, 5]
    for name in names:
        folder = place.world.workspace / "nights" / name
        found = {path.name for path in folder.iterdir()}
        assert found == {"night.json", "report.md", "report.json", "junit.xml", "metrics.prom"}
        assert ElementTree.parse(folder / "junit.xml").getroot().get("tests") == "2"
    out = place.suite.parent / "out"
    assert (out / "night.md").read_text().startswith("# models: all well")
    assert (place.world.workspace / "perfrun.db").exists()
    compared = place.world.run_words(
        [
            place.world.python,
            place.world.entry,
            "compare",
            f"--workspace={place.world.workspace}",
            *names,
            "--format=json",
            "--metrics=wall_time",
        ]
    )
    assert [row["ratio"] for row in strict(compared.stdout)["comparisons"]] == [5.0, 5.0]


def test_a_branch_that_moves_in_the_night_is_asked_once(place: Place) -> None:
    place.write()
    process = place.start(HOLD="one 1")
    wait_until(place.begun)  # of the first run: the second has other rules, and its own checkout
    place.change(7.0)
    place.go.touch()
    done = finish(process)
    assert done.code == 0, done.stderr
    report = strict(done.stdout)
    assert report["commits"] == {"bench": place.hashes[0]}
    assert [method["figures"][0]["median"] for method in report["methods"]] == [1.0, 1.0]


def test_a_night_that_was_killed_goes_on_where_it_was(place: Place) -> None:
    place.write()
    process = place.start(HOLD="two 2")
    wait_until(lambda: place.begun()["two"] >= 2)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    assert place.world.left_running() == []
    assert place.begun()["one"] == 2
    done = place.run()
    assert done.code == 0, done.stderr
    report = strict(done.stdout)
    assert place.begun()["one"] == 2  # that run was done
    assert place.begun()["two"] == 4  # only what the kill cut short ran twice
    assert [method["trials"] for method in report["methods"]] == [2, 3]
    assert "went on after 1 of 2 runs" in report["notes"][0]
    assert len(list((place.world.workspace / "nights").glob("*/night.json"))) == 1
    assert strict(place.run().stdout)["night"] != report["night"]  # that one is over


def test_ctrl_c_ends_the_night_and_the_same_command_goes_on(place: Place) -> None:
    place.write()
    process = place.start(HOLD="one 1")
    wait_until(place.begun)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    assert "the same command goes on with it" in done.stderr
    again = place.run()
    assert again.code == 0, again.stderr
    assert "interrupted" in strict(again.stdout)["notes"][0]


def test_a_suite_that_changed_does_not_go_on(place: Place) -> None:
    place.write()
    process = place.start(HOLD="one 1")
    wait_until(place.begun)
    process.kill()
    finish(process)
    place.write("owner = 'me'")
    report = strict(place.run().stdout)
    assert "could not go on: the suite file has changed since" in report["notes"][0]
    assert [method["trials"] for method in report["methods"]] == [2, 3]


def test_two_nights_never_overlap(place: Place) -> None:
    place.write()
    process = place.start(HOLD="one 1")
    wait_until(place.begun)
    other = place.run()
    place.go.touch()
    assert other.code == 2
    assert "another night goes on" in other.stderr
    assert finish(process).code == 0


def test_what_the_deadline_leaves_undone_is_reported(place: Place) -> None:
    place.write()
    begin = time.monotonic()
    assert place.run().code == 0
    whole_s = time.monotonic() - begin  # of five trials: the first begins long before
    # A trial of the first run has no end: it is ended, and the second run has no turn.
    for times in (2, 6, 18):  # where the machine stands still, no trial is begun by the deadline
        place.write(f"deadline = '{times * whole_s:.1f}s'")
        done = place.run(HOLD="one 3")
        if place.begun()["one"] == 3:
            break
    assert done.code == 1, done.stderr
    report = strict(done.stdout)
    assert states(report) == {"one": "not_run", "two": "not_run"}
    assert [method["why"] for method in report["methods"]] == [
        "the night's deadline came first",
        "its turn did not come before the night's deadline",
    ]
    outcomes = [
        json.loads(p.read_text())["perfrun"]["outcome"] for p in place.world.summary_files()
    ]
    statuses = [one["status"] for one in outcomes]
    assert statuses[:5] == ["passed"] * 5
    assert set(statuses[5:]) == {"interrupted"}
    assert place.world.left_running() == []


def test_a_method_that_has_gone_is_said(place: Place) -> None:
    place.write()
    text = place.suite.read_text().replace("Cases.one", "Cases.filter:.*e")
    place.suite.write_text(text.replace("Cases.two", "Cases.filter:t.*"))
    assert place.run().code == 0
    source = (place.repository / "cases.py").read_text()
    (place.repository / "cases.py").write_text(source.replace("def one", "def extra_one"))
    git(place.repository, "commit", "-q", "-a", "-m", "renamed")
    done = place.run()
    report = strict(done.stdout)
    assert done.code == 1
    assert [m["state"] for m in report["methods"]] == ["ok", "ok"]
    (error,) = report["errors"]
    assert error.startswith("cases.Cases.one in default ran in models-")
    assert error.endswith("and is not there tonight")
    assert any("too few nights to show a change" in note for note in report["notes"])
    assert place.run().code == 0  # it was said once


def test_an_environment_that_fails_costs_only_itself(place: Place) -> None:
    broken = place.suite.parent / "python"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    broken.chmod(0o755)
    place.write(
        '[[environments]]\nname = "bad"\npython = "./python"\n[[environments]]\nname = "good"\n',
        'environments = ["bad", "good"]',
        'environments = ["good"]',
    )
    done = place.run()
    assert done.code == 1
    report = strict(done.stdout)
    found = [(m["environment"], m["state"]) for m in report["methods"]]
    assert found == [("bad", "not_run"), ("good", "ok"), ("good", "ok")]
    assert report["errors"][0].startswith("bad: ")
    assert "broken" in report["errors"][0]


def test_a_night_ends_with_what_retention_says(place: Place) -> None:
    place.write("[retention]\nkeep_per_series = 1\n")
    for _ in range(2):
        done = place.run()
        assert done.code == 0, done.stderr
    assert "retention: 5 trials removed" in done.stderr  # the first night has removed three
    assert len(place.world.summary_files()) == 2  # one of each method


def test_a_night_tells_by_its_exit_status_and_on_stdout_only_its_report(place: Place) -> None:
    place.write("webhook = 'http://127.0.0.1:9/hook'")
    done = place.world.run_words(place.words("--quiet"))
    assert done.code == 0, done.stderr
    assert done.stdout.startswith("# models: all well")
    assert r"the webhook http\://127.0.0.1:9/hook did not take the report" in done.stdout
    wrong = place.suite.with_name("wrong.toml")
    wrong.write_text("trails = 3\n")
    refused = place.world.run_words([place.world.python, place.world.entry, "nightly", str(wrong)])
    assert (refused.code, refused.stdout) == (2, "")
    assert f"{wrong}:1: unknown key 'trails'" in refused.stderr

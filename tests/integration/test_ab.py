"""`perfrun ab` with real processes on this machine, however busy it is."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import schemas

from tests.gitrepos import make_repository
from tests.worlds import HOLD, World, finish, strict, wait_held

SOURCE = """
class Cases(Benchmark):
    def spin(self):
        times = []
        for _ in range(9):
            begin = time.process_time()  # of this process alone: the machine may be busy
            for _ in range(int(float(os.environ.get("LOOPS", "1")) * 200_000)):
                pass
            times.append(time.process_time() - begin)
        self.report_benchmark(wall_time=sorted(times)[2])

    def dies(self):
        if os.environ.get("LOOPS"):
            os.kill(os.getpid(), signal.SIGSEGV)
        self.report_benchmark(wall_time=1.0)

    def reports_nothing(self):
        pass
"""
SPIN = "pkg.cases.Cases.spin"
HELD = f"""{HOLD}
import random

class Held(Benchmark):
    def fifth(self):
        hold_at(5, os.path.dirname(__file__))
        self.report_benchmark(wall_time=1 + random.random() / 100)
"""
FIFTH = "pkg.held.Held.fifth"
SUMMARIES = "ab/*/output/*/perfzero_summary.json"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(SOURCE)
    return made


def test_a_side_that_does_more_is_slower_and_never_faster(world: World) -> None:
    flags = ("--b=--env=LOOPS=1.3", "--max_pairs=60", "--seed=1", "--format=json")
    done = world.run("ab", *flags, methods=SPIN)
    found = strict(done.stdout)
    row = found["comparisons"][0]
    assert (row["method"], row["metric"]) == (SPIN, "wall_time")
    assert row["verdict"] in ("slower", "undecided"), row
    if row["verdict"] == "undecided":
        assert found["stopped_by"] == "max_pairs"
        return
    assert done.code == 1
    assert row["low"] > 1.0
    assert found["pairs"] >= 8
    assert [d["text"] for d in found["environment_differences"]] == ["LOOPS (none) -> 1.3"]
    record = json.loads(Path(found["record"]).read_text(encoding="utf-8"))
    schemas.check("ab", found)
    schemas.check("ab", record)
    assert {trial["first"] for trial in record["trials"]} == {"a", "b"}  # by that seed
    for trial in record["trials"]:
        for side in "ab":
            document = json.loads(Path(trial[side]).read_text(encoding="utf-8"))
            assert document["benchmark_info"]["execution_label"] == side
            assert document["benchmark_result"]["trial_id"] == trial["pair"]
            assert document["perfrun"]["order"]["seed"] == found["seed"]


def test_the_same_code_is_not_called_different(world: World) -> None:
    # With a margin of half, not even the one false alarm in twenty that the rule may have.
    done = world.run("ab", "--min_effect=50%", "--max_pairs=20", "--format=json", methods=SPIN)
    found = strict(done.stdout)
    assert found["comparisons"][0]["verdict"] in ("equivalent", "undecided")
    assert done.code == 0
    assert found["environment_differences"] == []


def test_two_commits_of_a_repository_are_run_side_by_side(tmp_path: Path) -> None:
    source = "import time\nfrom perfrun import Benchmark\n" + SOURCE.replace("os.environ", "{}")
    versions = [{"pkg/__init__.py": "", "pkg/cases.py": source}]
    versions.append({"pkg/cases.py": source.replace("200_000", "800_000")})
    old, new = make_repository(tmp_path / "repo", versions)
    world = World(tmp_path)
    url = (tmp_path / "repo").as_uri()
    words = [
        *(world.python, world.entry, "ab", f"--workspace={world.workspace}", "--python_path=repo"),
        f"--benchmark_methods={SPIN}",
        f"--a=--git_repos='{url};main;{old}'",
        f"--b=--git_repos='{url};main;{new}'",
        *("--max_pairs=12", "--format=json"),
    ]
    done = world.run_words(words)
    found = strict(done.stdout)
    assert found["comparisons"][0]["verdict"] == "slower", done.stderr
    commits = [d for d in found["environment_differences"] if d["kind"] == "git"]
    assert [(d["name"], d["base"], d["new"]) for d in commits] == [("repo", old, new)]
    assert (world.workspace / "ab" / "a" / "site-packages" / "repo").is_dir()


def test_a_side_that_dies_is_named_and_ends_its_method_alone(world: World) -> None:
    done = world.run(
        "ab",
        "--b=--env=LOOPS=1",
        "--max_pairs=8",
        "--min_effect=90%",
        "--format=json",
        methods=f"pkg.cases.Cases.dies,{SPIN}",
    )
    found = strict(done.stdout)
    rows = {row["method"]: row for row in found["comparisons"] if row["metric"] == "wall_time"}
    assert rows["pkg.cases.Cases.dies"]["reason"] == "b crashed in 3 of 3 trials"
    assert rows["pkg.cases.Cases.dies"]["stopped_by"] == "failed"
    assert rows[SPIN]["n_base"] == 8
    assert (found["failed"], done.code) == ({"a": 0, "b": 3}, 1)


def test_too_few_pairs_for_so_many_methods_are_refused_before_any_is_run(world: World) -> None:
    done = world.run("ab", "--max_pairs=6", methods=f"{SPIN},pkg.cases.Cases.dies")
    assert done.code == 2
    assert "cannot decide 2 methods" in done.stderr
    assert not list(world.workspace.glob("ab/*/output/*/*"))


def test_a_method_without_a_figure_is_given_up(world: World) -> None:
    done = world.run("ab", "--format=json", methods="pkg.cases.Cases.reports_nothing")
    found = strict(done.stdout)
    assert found["stopped_by"] == "no_figure"
    assert found["pairs"] == 3


def test_the_time_budget_ends_the_pairs_after_the_first(world: World) -> None:
    done = world.run("ab", "--time_budget=0.001", "--format=json", methods=SPIN)
    found = strict(done.stdout)
    assert (found["stopped_by"], found["pairs"], done.code) == ("time_budget", 1, 0)
    assert found["comparisons"][0]["reason"] == "the time is spent"
    assert found["comparisons"][0]["low"] is None


def interrupted(world: World, *flags: str) -> Any:
    """Run pairs of `Held.fifth` and press Ctrl-C in the third; return what is printed then."""
    world.write(HELD, "held")
    process = world.start(*flags, methods=FIFTH)
    wait_held(process, world.folder / "code" / "pkg" / "held")
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert stopped.code == 130
    return strict(stopped.stdout)


def test_ctrl_c_says_what_there_is_and_resume_goes_on(world: World) -> None:
    flags = ("ab", "--max_pairs=8", "--min_effect=90%", "--format=json")
    before = interrupted(world, *flags)
    assert (before["stopped_by"], before["pairs"]) == ("interrupted", 2)
    done = world.run(*flags, "--resume", methods=FIFTH)
    after = strict(done.stdout)
    assert (after["seed"], after["run_ids"]) == (before["seed"], before["run_ids"])
    assert after["comparisons"][0]["n_base"] == 8
    # Nothing was run twice but the trial that was cut short.
    assert len(list(world.workspace.glob(SUMMARIES))) <= 17
    assert not world.left_running()


def test_what_was_spent_before_an_interruption_counts(world: World) -> None:
    flags = ("ab", "--max_pairs=8", "--min_effect=90%", "--format=json")
    before = interrupted(world, *flags)
    assert before["pairs"] == 2
    # Less than the whole pairs took: when they are taken over, nothing is left for a third one.
    elapsed_s = []
    for path in world.workspace.glob(SUMMARIES):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["perfrun"]["outcome"]["status"] == "passed":
            elapsed_s.append(document["perfrun"]["usage"]["elapsed_s"])
    assert len(elapsed_s) == 4
    budget = f"--time_budget={sum(elapsed_s) / 2:f}"
    after = strict(world.run(*flags, "--resume", budget, methods=FIFTH).stdout)
    assert after["stopped_by"] == "time_budget"
    assert 1 <= after["pairs"] <= 2


def test_sides_with_different_methods_are_refused(world: World) -> None:
    done = world.run("ab", "--b=--benchmark_methods=pkg.cases.Cases.dies", methods=SPIN)
    assert done.code == 2
    assert "different methods" in done.stderr
    assert not world.summary_files()


def test_a_variable_reaches_the_trial_and_is_recorded(world: World) -> None:
    world.write(
        """
        class Cases(Benchmark):
            def shows(self):
                self.report_benchmark(wall_time=float(os.environ["SECONDS_OF"]))
        """,
        "shown",
    )
    done = world.run(
        "--env=SECONDS_OF=2.5", "--env=OTHER=x y", "--format=json", methods="pkg.shown.Cases.shows"
    )
    (document,) = done.summaries()
    assert document["benchmark_result"]["wall_time"] == 2.5
    assert document["perfrun"]["env"] == {"SECONDS_OF": "2.5", "OTHER": "x y"}

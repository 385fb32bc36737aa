"""`perfrun bisect` with real processes and real commits, on this machine, however busy it is.

What a trial reports is no measurement, for that reason; test_loop.py searches by one.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import schemas

from tests.gitrepos import git, make_repository
from tests.worlds import HOLD, Finished, World, finish, strict, wait_held

SOURCE = f"""{HOLD}
import random
from perfrun import Benchmark
from bench.settings import LOOPS


class Cases(Benchmark):
    def spin(self):
        if "HOLD_AT" in os.environ:
            hold_at(int(os.environ["HOLD_AT"]), os.environ["HOLD_IN"])
        cpu_s = LOOPS * 25e-9 * (1 + random.random() * 0.012)
        self.report_benchmark(wall_time=cpu_s, metrics=[{{"name": "cpu_s", "value": cpu_s}}])
"""
SPIN = "bench.cases.Cases.spin"
COMMITS, CULPRIT, BROKEN = 30, 19, 15  # BROKEN is the first that is tried
LOOPS = 60_000


def settings(number: int) -> str:
    if number == BROKEN:
        return "LOOPS = = 1\n"
    return f"LOOPS = {LOOPS if number < CULPRIT else LOOPS * 11 // 10}\n"


def make_history(folder: Path) -> list[str]:
    """Thirty commits after the first, of which one slows the method and one does not run."""
    versions = [
        {
            "bench/__init__.py": "",
            "bench/cases.py": SOURCE,
            "bench/settings.py": settings(number),
            "notes.txt": f"note {number}\n",
        }
        for number in range(COMMITS + 1)
    ]
    return make_repository(folder, versions)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("history") / "repo"
    return folder, make_history(folder)


def words(world: World, repo: Path, good: str, bad: str, *more: str) -> list[str]:
    return [
        *(world.python, world.entry, "bisect", f"--workspace={world.workspace}"),
        *(f"--git_repos={repo.as_uri()};main", "--python_path=repo", f"--method={SPIN}"),
        *("--metric=cpu_s", f"--good={good}", f"--bad={bad}", "--format=json", *more),
    ]


def bisect(world: World, repo: Path, good: str, bad: str, *more: str) -> tuple[Finished, Any]:
    done = world.run_words(words(world, repo, good, bad, *more), patience_s=900.0)
    assert done.stdout, done.stderr
    answer = strict(done.stdout)
    schemas.check("bisect", answer)
    schemas.check_lines("search-log", Path(answer["folder"]) / "search.jsonl")
    return done, answer


@pytest.mark.slow
def test_the_commit_that_slows_a_method_by_a_tenth_is_named(
    tmp_path: Path, history: tuple[Path, list[str]]
) -> None:
    repo, hashes = history
    world = World(tmp_path)
    done, answer = bisect(world, repo, hashes[0], hashes[-1], "--max_pairs=150")
    assert answer["status"] == "found", done.stderr
    assert done.code == 0
    assert answer["culprit"]["name"] == hashes[CULPRIT]
    assert answer["culprit"]["subject"] == f"version {CULPRIT + 1}"
    assert answer["culprit"]["author"] == "A <a@example.com>"
    assert answer["previous"]["name"] == hashes[CULPRIT - 1]
    assert answer["direction"] == "worse"
    assert 1.0 < answer["low"] < answer["ratio"] < answer["high"]
    assert [one["name"] for one in answer["skipped"]] == [hashes[BROKEN]]
    commits = [d for d in answer["environment_differences"] if d["kind"] == "git"]
    assert [(d["base"], d["new"]) for d in commits] == [(hashes[CULPRIT - 1], hashes[CULPRIT])]
    folder = Path(answer["folder"])
    assert json.loads((folder / "answer.json").read_text(encoding="utf-8")) == answer
    labels = set()
    for path in folder.glob("?/output/*/perfzero_summary.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        labels.add(document["benchmark_info"]["execution_label"])
    assert f"bisect/{hashes[CULPRIT][:12]}" in labels


def test_two_commits_that_do_not_differ_are_not_reproduced(
    tmp_path: Path, history: tuple[Path, list[str]]
) -> None:
    repo, hashes = history
    # So wide a margin that noise does not leave it open.
    done, answer = bisect(World(tmp_path), repo, hashes[0], hashes[4], "--min_effect=50%")
    assert answer["status"] == "not_reproduced"
    assert (done.code, answer["culprit"], answer["direction"]) == (1, None, None)
    assert answer["good_against_bad"]["pairs"] >= 8
    assert answer["pairs_run"] == answer["good_against_bad"]["pairs"]


def test_interrupted_it_goes_on_where_it_was(
    tmp_path: Path, history: tuple[Path, list[str]]
) -> None:
    repo, hashes = history
    world = World(tmp_path)
    ends = (hashes[0], hashes[4], "--min_effect=50%")
    # In the first trial of the second pair, which is run again, and in that of the fourth.
    for number, blow, code in ((3, signal.SIGINT, 130), (8, signal.SIGKILL, -9)):
        again = ("--resume",) if number == 8 else ()
        held = {"HOLD_AT": str(number), "HOLD_IN": str(tmp_path)}
        running = world.start_words(words(world, repo, *ends, *again), **held)
        wait_held(running, tmp_path / "held")
        running.send_signal(blow)
        assert finish(running).code == code
        assert world.left_running() == []
        (tmp_path / "held").unlink()
    before = pairs_on_disk(world)
    assert len(before) == 3
    _, answer = bisect(world, repo, *ends, "--resume")
    assert pairs_on_disk(world)[: len(before)] == before
    assert answer["status"] == "not_reproduced"
    assert len(list((world.workspace / "bisect").iterdir())) == 1


def pairs_on_disk(world: World) -> list[str]:
    found = [path.read_text() for path in world.workspace.glob("bisect/*/search.jsonl")]
    return [line for text in found for line in text.split("\n") if '"pair"' in line]


def test_interpreters_are_searched_in_the_order_given(tmp_path: Path) -> None:
    world = World(tmp_path)
    # What the interpreters differ in is a variable of the scripts that start them.
    world.write(SOURCE.replace("from bench.settings import LOOPS", "LOOPS = int(os.environ['N'])"))
    pythons = []
    for number, loops in enumerate([20_000, 20_000, 0, 60_000]):
        python = tmp_path / f"python {number}"
        start = f"exec '{sys.executable}' \"$@\"" if loops else "exit 9"
        python.write_text(f"#!/bin/sh\nexport N={loops}\n{start}\n", encoding="utf-8")
        python.chmod(0o755)
        pythons.append(str(python))
    done = world.run(
        "bisect",
        f"--pythons={','.join(pythons)}",
        *("--metric=cpu_s", "--format=json"),
        methods="pkg.cases.Cases.spin",
    )
    answer = strict(done.stdout)
    assert answer["status"] == "range", done.stderr  # the one between does not start
    assert done.code == 1
    assert [one["name"] for one in answer["candidates"]] == pythons[2:]
    assert [one["name"] for one in answer["skipped"]] == [pythons[2]]
    assert answer["previous"]["name"] == pythons[1]
    assert answer["low"] > 1.5


@pytest.mark.parametrize(
    ("flags", "telling"),
    [
        ((), "say what is searched"),
        (("--good=abcd",), "--good and --bad are both needed"),
        (("--good=abcd", "--bad=abce"), "which repository"),
        (("--pythons=python3",), "name two or more"),
        (("--pythons=python3,python3",), "named twice"),
        (("--good=abcd", "--bad=abce", "--images=a,b"), "say what is searched"),
        (("--pythons=a,b", "--max_pairs=0"), "--max_pairs=0"),
        (("--pythons=a,b", "--benchmark_num_trials=3"), "is not there"),
    ],
)
def test_what_cannot_be_right_is_said_in_a_line(
    tmp_path: Path, flags: tuple[str, ...], telling: str
) -> None:
    done = World(tmp_path).run("bisect", *flags, methods=SPIN)
    assert done.code == 2
    assert telling in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ends_that_are_swapped_or_do_not_run_are_named(
    tmp_path: Path, history: tuple[Path, list[str]]
) -> None:
    repo, hashes = history
    world = World(tmp_path)
    swapped = world.run_words(words(world, repo, hashes[3], hashes[1]))
    assert (swapped.code, "are swapped" in swapped.stderr) == (2, True)
    broken = world.run_words(words(world, repo, hashes[0], hashes[BROKEN]))
    assert (broken.code, "--bad" in broken.stderr) == (2, True), broken.stderr
    assert "does not run" in broken.stderr
    assert git(repo, "status", "--porcelain") == ""

"""`perfrun explain` with real processes: a slowed function is named, and nothing between equals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import schemas

from tests.gitrepos import make_repository
from tests.worlds import World, strict

NAMES = [f"work_{number}" for number in range(7)]
SOURCE = "import time\nfrom perfrun import Benchmark\n" + "".join(
    f"""
def {name}():
    total = 0
    for k in range(1500):
        total += k
    return total
"""
    for name in NAMES
)
SOURCE += f"""
class Cases(Benchmark):
    def measures(self):
        def step():
            for work in ({", ".join(NAMES)}):
                work()
        self.measure(step, iterations=40, warmup=1)
"""
SLOWED = SOURCE.replace(
    "def work_3():\n    total = 0\n    for k in range(1500)",
    "def work_3():\n    total = sum(range(200_000))\n    for k in range(1500)",
)
MEASURES = "pkg.cases.Cases.measures"
TURNS = 8


def words(world: World, *more: str) -> list[str]:
    flags = (f"--workspace={world.workspace}", "--seed=1", "--format=json")
    method = f"--benchmark_methods={MEASURES}"
    turns = f"--turns={TURNS}"
    return [
        *(world.python, world.entry, "explain", turns, *more, *flags, method),
        "--profile=cprofile",
    ]


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("explained")
    versions = [
        {"pkg/__init__.py": "", "pkg/cases.py": SOURCE},
        {"pkg/cases.py": SLOWED},
    ]
    commits = make_repository(folder / "repo", versions)
    world = World(folder)
    url = (folder / "repo").as_uri()
    flags = (f"--git_repos={url};main", "--python_path=repo")
    done = world.run_words(words(world, *commits, *flags))
    assert done.code == 0, done.stderr
    return commits, strict(done.stdout)


def test_the_slowed_function_of_a_commit_is_named_first(
    explained: tuple[list[str], dict[str, Any]],
) -> None:
    commits, found = explained
    schemas.check("explain", found)
    assert (found["base"], found["new"]) == tuple(commits)
    [profile] = found["profiles"]
    rows = {row["name"]: row for row in profile["rows"]}
    assert profile["rows"][0]["name"] == "work_3", rows
    slow = rows["work_3"]
    assert slow["named"]
    assert slow["change"] == "slower"
    assert (slow["calls_base"], slow["calls_new"]) == (1.0, 1.0), "of one step"
    assert slow["low"] > 0
    assert slow["where"].startswith("repo/pkg/cases.py:"), "alike in both checkouts"
    assert slow["native"] == ["<built-in method builtins.sum>, 0 -> 1 calls"]
    assert found["first"]["name"] == "work_3"
    assert not [row for name, row in rows.items() if name.startswith("work") and row["base"] <= 0]
    assert profile["per_step"]
    assert profile["tested"] >= len(NAMES)


def test_what_else_differs_and_all_trials_are_in_the_document(
    explained: tuple[list[str], dict[str, Any]],
) -> None:
    commits, found = explained
    [code] = found["code"]
    assert code == {
        "file": "repo/pkg/cases.py", "added": 1, "removed": 1, "functions": ["work_3"],
    }  # fmt: skip
    [git] = [one for one in found["environment_differences"] if one["kind"] == "git"]
    assert (git["base"], git["new"]) == tuple(commits)
    saved = json.loads(Path(found.pop("record")).read_text(encoding="utf-8"))
    assert saved == found
    assert len(found["trials"]) == found["turns"] == TURNS
    for trial in found["trials"]:
        for side in "ab":
            summary = json.loads(Path(trial[side]).read_text(encoding="utf-8"))
            assert summary["perfrun"]["order"]["profile"] is None, "the difference has no profiler"


def test_nothing_is_named_between_equal_sides(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(SOURCE)
    more = (f"--python_path={tmp_path / 'code'}", "--b=--env=UNUSED=1", "--turns=4")
    done = world.run_words(words(world, *more))
    found = strict(done.stdout)
    assert done.code == 0, done.stderr
    assert found["first"] is None
    [profile] = found["profiles"]
    assert [row["name"] for row in profile["rows"] if row["named"]] == []
    assert not profile["common_is_named"]
    assert found["code"] == []


def test_turns_before_a_side_fails_are_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(
        "class Cases(Benchmark):\n"
        "    def measures(self):\n"
        "        runs = os.environ.get('RUNS')\n"
        "        if runs:\n"
        "            open(runs, 'a').write('x')\n"
        "            if os.path.getsize(runs) > 2:\n"
        "                raise ValueError('the disk is full')\n"
        "        self.report_benchmark(wall_time=1.0)\n"
    )
    more = (f"--python_path={tmp_path / 'code'}", f"--b=--env=RUNS={tmp_path / 'runs'}")
    done = world.run_words(words(world, *more))
    assert done.code == 1, done.stderr
    found = strict(done.stdout)
    schemas.check("explain", found)
    assert (found["turns"], found["stopped_by"]) == (1, "failed")
    assert found["failure"].startswith("the trials of new fail: ")
    assert "stopped after 1 turns: the trials of new fail: " in done.stderr
    assert json.loads(Path(found.pop("record")).read_text(encoding="utf-8")) == found


def test_a_side_whose_trials_fail_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(
        "class Cases(Benchmark):\n"
        "    def measures(self):\n"
        "        if os.environ.get('FAILS'):\n"
        "            raise ValueError('no\\x1b[2J such thing')\n"
        "        self.report_benchmark(wall_time=1.0)\n"
    )
    more = (f"--python_path={tmp_path / 'code'}", "--b=--env=FAILS=1")
    done = world.run_words(words(world, *more))
    assert done.code == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "the trials of new fail: " in last
    assert "\\x1b[2J such thing" in last

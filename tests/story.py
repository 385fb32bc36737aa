"""The night of the documentation's first screen: a regression found, confirmed and bisected.

    python -m tests.story FOLDER [PAGE]

runs it in FOLDER, which is made anew, and copies the report to PAGE. `make site` does so, and
tests/integration/test_report_story.py holds the report against what is known of the repository.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gitrepos import git, make_repository
from tests.no_home import of_a_test
from tests.worlds import World, written_here

# The time is no measurement: what is tested is what is made of it.
SOURCE = """
import time
from perfrun import Benchmark
from bench.settings import SECONDS

class Lookup(Benchmark):
    def words(self):
        self.report_benchmark(wall_time=SECONDS * (1 + time.time_ns() % 1000 / 1e6))
"""
METHOD = "bench.cases.Lookup.words"
SUITE = """
name = "{name}"
python_path = ["repo"]
[confirm]
max_pairs = 12
[[repos]]
url = "{url}"
branch = "main"
[[methods]]
name = "{method}"
"""
CHANGES = (  # the subject of each commit, and the seconds of a step at it
    ("Keep a table of words", 1.0),
    ("Explain the table", 1.0),
    ("Sort the table before each lookup", 1.1),
    ("Rename a variable", 1.1),
    ("Fix a typing error", 1.1),
)
CULPRIT = 2
BEFORE, DAY_S = 40, 86400.0
NOISE = 0.002
_ANSWERS = "answers.json"


@dataclass(frozen=True, kw_only=True)
class Story:
    """Where the report of the night is, and what it is about."""

    page: Path
    hashes: list[str]  # of CHANGES


def noise(night: int) -> float:
    return 1 + NOISE * (night * 7 % 5 - 2)


def alarm_night() -> int:
    """The night in which the history's alarm is raised; the change begins in night `BEFORE`."""
    from perfrun.analysis.changepoint import ALARM, SeriesWatch

    values = [noise(night) * (1.1 if night >= BEFORE else 1.0) for night in range(BEFORE + 10)]
    # Every night but those two ran the commit of the night before.
    repeats = [night not in (0, BEFORE) for night in range(BEFORE + 10)]
    p_values = SeriesWatch(values, repeats).p_values
    return next(night for night in range(BEFORE, BEFORE + 10) if p_values[night] <= ALARM)


def make_history(folder: Path) -> list[str]:
    first = {"bench/__init__.py": "", "bench/cases.py": SOURCE, "bench/settings.py": "SECONDS=1.0"}
    (start,) = make_repository(folder, [first])
    hashes = []
    for number, (subject, seconds) in enumerate(CHANGES):
        text = f"SECONDS = {seconds}  # {number}\n"
        (folder / "bench" / "settings.py").write_text(text, encoding="utf-8")
        git(folder, "commit", "-q", "-a", "-m", subject)
        hashes.append(git(folder, "rev-parse", "HEAD"))
    assert start not in hashes
    return hashes


def replay(world: World, trials: list[dict[str, Any]], nights: int) -> None:
    """Copies of two real trials, one before and one after the change, a day apart."""
    for night in range(nights):
        document = json.loads(json.dumps(trials[night >= BEFORE]))
        document["execution_id"] = f"night-{night:02}"
        document["execution_timestamp"] = time.time() - (nights - night) * DAY_S
        document["benchmark_info"]["execution_label"] = f"past-{night}"
        document["perfrun"]["run_id"] = f"run-{night:02}"
        # So tonight counts whether others keep this machine busy or not.
        document["perfrun"]["quality"]["disturbed"] = True
        value = (1.1 if night >= BEFORE else 1.0) * noise(night)
        document["benchmark_result"]["wall_time"] = value
        document["perfrun"]["reports"][0]["wall_time"] = value
        # Nothing else has changed: two processes are never of one size.
        document["process_info"]["max_rss"] = int(
            trials[0]["process_info"]["max_rss"] * noise(night)
        )
        path = world.workspace / "output" / f"night-{night:02}" / "perfzero_summary.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(document), encoding="utf-8")
    written_here(world.workspace)


def tell(folder: Path) -> Story:
    """Run it all in a new folder: the past nights, tonight, the search and the report."""
    world = World(folder / "nights of lookup")
    hashes = make_history(world.folder / "repo")
    url = (world.folder / "repo").as_uri()
    suite = SUITE.format(name="lookup", url=url, method=METHOD)
    (world.folder / "suite.toml").write_text(suite, encoding="utf-8")
    perfrun = [world.python, world.entry]
    trials = [
        world.run_words(
            [
                *(*perfrun, "--format=json", "--python_path=repo", "--workspace=real"),
                *(f"--git_repos={url};main;{commit}", f"--benchmark_methods={METHOD}"),
            ]
        ).summaries()[0]
        for commit in (hashes[0], hashes[3])
    ]
    replay(world, trials, alarm_night())  # tonight's is the next

    night = world.run_words([*perfrun, "nightly", "suite.toml", "--format=json"])
    assert night.code == 1, night.stderr  # it has found the change
    found = world.run_words(
        [
            *(*perfrun, "bisect", f"--git_repos={url};main", "--python_path=repo"),
            *(f"--method={METHOD}", f"--good={hashes[0]}", f"--bad={hashes[3]}", "--format=json"),
        ]
    )
    assert found.code == 0, found.stderr
    assert json.loads(found.stdout)["status"] == "found", found.stdout
    made = world.run_words([*perfrun, "report", "--title=Lookup, every night"])
    assert made.code == 0, made.stderr
    answers = {"hashes": hashes}
    (folder / _ANSWERS).write_text(json.dumps(answers), encoding="utf-8")
    return told(folder)


def told(folder: Path) -> Story:
    """Return the story that was told in a folder."""
    answers = json.loads((folder / _ANSWERS).read_text(encoding="utf-8"))
    return Story(page=folder / "nights of lookup" / "report.html", **answers)


if __name__ == "__main__":
    alone = of_a_test(os.environ)  # as pytest would, with tests/conftest.py
    os.environ.clear()
    os.environ.update(alone)
    place = Path(sys.argv[1]).absolute()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    page = tell(place).page
    for copy in sys.argv[2:]:
        shutil.copyfile(page, copy)

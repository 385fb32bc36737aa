"""A regression of a tenth: found by a night, confirmed, bisected, and told by the report."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gitrepos import git, make_repository
from tests.pages import read_page, unpack
from tests.worlds import World, strict, written_here

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
name = "lookup"
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


def noise(night: int) -> float:
    return 1 + NOISE * (night * 7 % 5 - 2)


def alarm_night() -> int:
    """The night in which the history's alarm is raised; the change begins in night `BEFORE`."""
    from perfrun.analysis.changepoint import ALARM, SeriesWatch

    values = [noise(night) * (1.1 if night >= BEFORE else 1.0) for night in range(BEFORE + 10)]
    p_values = SeriesWatch(values).p_values
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


@pytest.mark.slow
def test_the_page_tells_what_changed_that_it_is_true_and_who_did_it(tmp_path: Path) -> None:
    world = World(tmp_path / "a b")
    hashes = make_history(world.folder / "repo")
    url = (world.folder / "repo").as_uri()
    suite = SUITE.format(url=url, method=METHOD)
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
    assert night.code == 1, night.stderr
    found = world.run_words(
        [
            *(*perfrun, "bisect", f"--git_repos={url};main", "--python_path=repo"),
            *(f"--method={METHOD}", f"--good={hashes[0]}", f"--bad={hashes[3]}", "--format=json"),
        ]
    )
    assert strict(found.stdout)["status"] == "found", found.stderr
    made = world.run_words([*perfrun, "report"])
    assert made.code == 0, made.stderr
    html = (world.folder / "report.html").read_text(encoding="utf-8")
    data = read_page(html).data

    change = data["changes"][0]
    assert (change["direction"], change["status"], change["pairs"]) == ("worse", "confirmed", 8)
    assert change["is_recent"]
    assert change["ratio"] == pytest.approx(1.1, rel=0.01)
    assert change["text"].startswith("confirmed by 8 pairs: 1.1")
    assert change["commits"] == [f"repo {hashes[0][:10]}..{hashes[3][:10]}"]
    culprit = change["culprit"]
    assert (culprit["commit"], culprit["subject"]) == (hashes[CULPRIT], CHANGES[CULPRIT][0])
    assert culprit["author"] == "A <a@example.com>"
    assert culprit["low"] < 1.1 < culprit["high"] or culprit["ratio"] == pytest.approx(
        1.1, rel=0.01
    )
    series = data["series"][change["series"]]
    assert series["metric"] == "wall_time"
    values = unpack(data, series["value"])
    assert min(map(float, values[BEFORE:])) > max(map(float, values[:BEFORE]))
    assert change["at"] == BEFORE
    assert change["environment"] == []  # the commit has its own place
    assert 0 < data["methods"][0]["noise"] < 0.01  # though all nights before were disturbed
    subjects = {one["id"]: one["subject"] for one in data["commits"]}
    assert subjects[hashes[0][:12]] == CHANGES[0][0]
    (pairs,) = (one for one in data["pairs"] if one["series"] == change["series"])
    base, new = unpack(data, pairs["base"]), unpack(data, pairs["new"])
    assert (len(base), len(new)) == (8, 8)
    assert all(1.09 < b / a < 1.11 for a, b in zip(base, new, strict=True) if a and b)
    # Without JavaScript, too.
    assert "confirmed by 8 pairs" in html.partition("<noscript>")[2].partition("</noscript>")[0]

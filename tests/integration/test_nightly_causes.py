"""A confirmed incident is bisected over two nights and explained, all by the nights themselves."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import schemas

from tests.gitrepos import git
from tests.integration.test_nightly_confirm import BEFORE, METHOD, SUITE, Place
from tests.worlds import strict

CAUSES = 'confirm_budget = "20m"\nbisect_budget = "{bisect}"\nexplain_budget = "{explain}"\n'
# What is reported is no measurement; what the profiles see is one.
SOURCE = """
import time
from perfrun import Benchmark
from bench.settings import SECONDS

def look_up():
    total = 0
    for word in range(1000 if SECONDS == 1 else 10000):
        total += word
    return total

class Cases(Benchmark):
    def one(self):
        for _ in range(5):
            look_up()
        self.report_benchmark(wall_time=SECONDS * (1 + time.time_ns() % 1000 / 1e6))
"""


def suite(bisect: str, explain: str) -> str:
    causes = CAUSES.format(bisect=bisect, explain=explain)
    return SUITE.replace("[confirm]\nmax_pairs = 12\n", causes)


def commit(repo: Path, subject: str, **files: str) -> str:
    for name, text in files.items():
        (repo / "bench" / f"{name}.py").write_text(text, encoding="utf-8")
    git(repo, "commit", "-qam", subject, "--allow-empty", "--author=C <c@example.com>")
    return git(repo, "rev-parse", "HEAD")


@pytest.mark.slow
def test_a_confirmed_incident_is_bisected_over_two_nights_and_explained(tmp_path: Path) -> None:
    place = Place(tmp_path / "a b", suite("1s", "1s"))
    place.world.settings["TZ"] = f"UTC+{datetime.now(timezone.utc).hour}"
    repo = tmp_path / "a b" / "repo"
    git(repo, "reset", "-q", "--hard", place.hashes[0])
    good = commit(repo, "Explain a function", cases=SOURCE)
    between = commit(repo, "Rename a variable")
    culprit = commit(repo, "Another way to look up", settings="SECONDS = 1.5\n")
    bad = commit(repo, "Fix a typing error")
    place.hashes[:] = [good, bad]
    place.past(BEFORE, sizes=8.0)

    def night(*budgets: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
        text = suite(*budgets).format(name="models", url=place.url, method=METHOD)
        (tmp_path / "a b" / "suite.toml").write_text(text, encoding="utf-8")
        done = place.world.run_words(place.words)
        report = strict(done.stdout)
        schemas.check("nightly", report)
        (incident,) = report["incidents"]
        return done.code, report, incident

    code, report, incident = night("1s", "1s")  # which is over before a pair of it is
    assert (code, incident["news"], incident["status"]) == (1, "new", "bisecting"), report["notes"]
    assert incident["cause"]["commits"] == {"repo": [good, bad]}
    going_on = {"state": "going_on", "why": None, "trials": 0, "spent_s": 0.0}
    assert incident["bisection"] == going_on
    assert incident["explanation"] is None  # its commit comes first
    assert any("the bisection goes on in the next night" in note for note in report["notes"])

    code, report, incident = night("20m", "20m")
    assert (code, incident["news"], incident["status"]) == (0, "found", "culprit_found"), incident
    assert incident["culprit"]["name"] == culprit
    assert incident["culprit"]["subject"] == "Another way to look up"
    assert incident["culprit"]["repository"] == "repo"
    assert incident["bisection"]["trials"] > 0
    assert incident["owner"] == "C <c@example.com>"
    (first, *_) = incident["explanation"]["rows"]
    assert first.startswith("look_up (repo/bench/cases.py:6) slower, ")
    explained = json.loads(Path(incident["explanation"]["record"]).read_text(encoding="utf-8"))
    assert (explained["base"], explained["new"]) == (between, culprit)
    written = (place.world.workspace / "nights" / report["night"] / "report.md").read_text("utf-8")
    assert "Found: incident 1" in written
    assert f"; found by {incident['bisection']['trials']} trials in " in written
    assert "look\\_up (repo/bench/cases.py:6) slower, " in written

    code, report, incident = night("20m", "20m")
    assert (code, incident["news"], incident["status"]) == (0, "known", "culprit_found")
    listed = place.world.run_words([place.world.python, place.world.entry, "incidents"])
    assert listed.code == 1
    assert f"cause: {culprit[:12]} of C <c@example.com>: Another way to look up" in listed.stdout
    assert "profiles: look_up (repo/bench/cases.py:6) slower, " in listed.stdout
    schemas.check(
        "incidents-file", strict((place.world.workspace / "incidents.json").read_text("utf-8"))
    )

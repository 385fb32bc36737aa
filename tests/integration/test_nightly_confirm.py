"""A night that confirms what it finds, is interrupted meanwhile, and goes on."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import schemas

from tests.gitrepos import git, make_repository
from tests.story import SUITE
from tests.worlds import HOLD, World, finish, strict, wait_held, written_here

# The time is no measurement: what is tested is what a night makes of it.
SOURCE = f"""{HOLD}
from perfrun import Benchmark
from bench.settings import SECONDS

class Cases(Benchmark):
    def one(self):
        if "HOLD_AT" in os.environ:
            hold_at(int(os.environ["HOLD_AT"]), os.environ["HOLD_IN"])
        self.report_benchmark(wall_time=SECONDS * (1 + time.time_ns() % 1000 / 1e6))
"""
METHOD = "bench.cases.Cases.one"
BEFORE, AFTER = 40, 10  # nights, the last of them real
DAY_S = 86400.0


class Place:
    """A suite with a history: copies of two real trials, one of each commit, a day apart."""

    def __init__(self, folder: Path, suite: str = SUITE) -> None:
        self.world = World(folder)
        versions = [{"bench/__init__.py": "", "bench/cases.py": SOURCE}, {}]
        versions[0]["bench/settings.py"] = "SECONDS = 1.0\n"
        versions[1]["bench/settings.py"] = "SECONDS = 1.5\n"
        self.url = (folder / "repo").as_uri()
        self.hashes = make_repository(folder / "repo", versions)
        text = suite.format(name="models", url=self.url, method=METHOD)
        (folder / "suite.toml").write_text(text, encoding="utf-8")
        self.words = [self.world.python, self.world.entry, "nightly", "suite.toml"]
        self.words += ["--format=json"]

    def past(self, nights: int, *, sizes: float = 1.0) -> None:
        """Write the nights; the noise of their memory is `sizes` times that of their time."""
        trials = [self.trial(commit) for commit in self.hashes]
        for night in range(nights):
            document = json.loads(json.dumps(trials[night >= BEFORE]))
            document["execution_id"] = f"night-{night:02}"
            document["execution_timestamp"] = time.time() - (nights - night) * DAY_S
            document["benchmark_info"]["execution_label"] = f"past-{night}"
            document["perfrun"]["run_id"] = f"run-{night:02}"
            # So tonight counts whether others keep this machine busy or not.
            document["perfrun"]["quality"]["disturbed"] = True
            noise = 1 + 0.004 * (night * 7 % 5 - 2)
            value = (1.5 if night >= BEFORE else 1.0) * noise
            document["benchmark_result"]["wall_time"] = value
            document["perfrun"]["reports"][0]["wall_time"] = value
            # Nothing else has changed: two processes are never of one size.
            max_rss = int(trials[0]["process_info"]["max_rss"] * (1 + sizes * (noise - 1)))
            document["process_info"]["max_rss"] = max_rss
            path = self.world.workspace / "output" / f"night-{night:02}" / "perfzero_summary.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(document), encoding="utf-8")
        written_here(self.world.workspace)

    def trial(self, commit: str) -> Any:
        done = self.world.run_words(
            [
                *(self.world.python, self.world.entry, "--format=json", "--python_path=repo"),
                f"--workspace={self.world.folder / 'real'}",
                *(f"--git_repos={self.url};main;{commit}", f"--benchmark_methods={METHOD}"),
            ]
        )
        return done.summaries()[0]

    def pairs(self) -> int:
        return len(list(self.world.workspace.glob("ab/*/output/*/perfzero_summary.json")))


def alarm_night() -> int:
    """After how many nights at the new level the history's alarm is raised."""
    from perfrun.analysis.changepoint import ALARM, SeriesWatch

    noise = [1 + 0.004 * (night * 7 % 5 - 2) for night in range(BEFORE + AFTER)]
    values = [x * (1.5 if night >= BEFORE else 1.0) for night, x in enumerate(noise)]
    # Every night but those two ran the commit of the night before.
    repeats = [night not in (0, BEFORE) for night in range(BEFORE + AFTER)]
    p_values = SeriesWatch(values, repeats).p_values
    return next(night for night in range(BEFORE, BEFORE + AFTER) if p_values[night] <= ALARM)


@pytest.mark.slow
def test_a_night_that_is_interrupted_while_it_confirms_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path / "a b")
    place.past(alarm_night())  # tonight's is the next
    # Tonight's own trial, two pairs, and one of the third pair, which has no end.
    held = {"HOLD_AT": "6", "HOLD_IN": str(tmp_path)}
    process = place.world.start_words(place.words, **held)
    wait_held(process, tmp_path / "held")
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert stopped.code == 130
    assert "the same command goes on with it" in stopped.stderr

    done = place.world.run_words(place.words)
    report = strict(done.stdout)
    schemas.check("nightly", report)
    (change,) = (c for c in report["changes"] if c["metric"] == "wall_time")
    assert (change["status"], change["is_new"], done.code) == ("confirmed", True, 1), report
    assert change["confirmation"]["pairs"] == 8
    (incident,) = report["incidents"]
    assert (incident["news"], incident["status"]) == ("new", "confirmed")
    assert incident["cause"]["commits"] == {"repo": place.hashes}
    assert place.pairs() == 17  # nothing ran twice but what was cut short
    commits = [change[f"commits_{when}"]["repo"] for when in ("before", "after")]
    assert commits == place.hashes
    assert len(list((place.world.workspace / "nights").glob("*/night.json"))) == 1

    # It has been told. What pairs said of it is not forgotten.
    again = place.world.run_words(place.words)
    (change,) = (c for c in strict(again.stdout)["changes"] if c["metric"] == "wall_time")
    assert (change["status"], change["is_new"], again.code) == ("confirmed", False, 0)
    assert [one["news"] for one in strict(again.stdout)["incidents"]] == ["known"]
    assert change["confirmation"]["pairs"] == 8
    assert git(tmp_path / "a b" / "repo", "status", "--porcelain") == ""

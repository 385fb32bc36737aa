"""The whole loop, nothing simulated: nights at the commits of a repository, one of which slows a
method by a tenth; a night finds it, pairs of trials confirm it, and a search names the commit.

Every trial is a process and every commit a checkout; only the date is shifted, a day a night.
What noise may cost is trials: more nights until there is an alarm, more pairs until a verdict.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.gitrepos import git, make_repository
from tests.worlds import Finished, World, strict

# The benchmark's own module never changes: its hash is part of the series' key. What is measured is
# CPU time against that of a fixed loop in turns with it: clock rate and neighbours do the same to
# both. Copies of the code lie elsewhere in memory, which in one copy can be worth a tenth.
CASES = """
import time, types
from perfrun import Benchmark
from bench.model import step


def fixed():
    total = 0
    for number in range(1000):
        total += number
    return total


def copy(function):
    return types.FunctionType(function.__code__.replace(), function.__globals__)


def median(values):
    return sorted(values)[len(values) // 2]


def relative_time(one, other):
    clock, ratios = time.process_time_ns, []
    for _ in range(40):
        times = [clock()]
        for function in (other, one, other):
            function()
            times.append(clock())
        ratios.append(2 * (times[2] - times[1]) / (times[3] - times[2] + times[1] - times[0]))
    return median(ratios)


class Cases(Benchmark):
    def train(self):
        copies = [(copy(step), copy(fixed)) for _ in range(15)]
        found = median([relative_time(*pair) for pair in copies])
        self.report_benchmark(metrics=[{"name": "relative_time", "value": found}])
"""
MODEL = """
def step():
    total = 0
    for number in range({loops}):
        total += number
    return total  # version {version}
"""
# What every Python of the night imports first: it shifts the date and nothing else.
CLOCK = """
import os, time
_shift_s = 86400 * int(os.environ.get("PERFRUN_TEST_NIGHT", "0"))
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _shift_s
time.time_ns = lambda: _time_ns() + _shift_s * 10**9
"""
SUITE = """
name = "models"
python_path = ["repo"]
owner = "team@example.com"
confirm = true
webhook = "http://127.0.0.1:{port}/hook"

[[repos]]
url = "{url}"
branch = "main"
clone = "repo"

[[methods]]
name = "bench.cases.Cases.train"
"""
METHOD, METRIC = "bench.cases.Cases.train", "relative_time"
COMMITS, CULPRIT = 30, 20  # hashes[CULPRIT] is the first slow one
LOOPS = 1000
# What is known of a history grows with it. The first nights, at sixteen commits, are runs alone;
# then nine commits come at once, then one a night, then none.
PAST = 40
NIGHTS = (*(number * 16 // PAST for number in range(PAST)), 15, *range(24, COMMITS))
MOST_NIGHTS = 70


@dataclass
class Loop:
    """A repository that grows, and a suite that runs it every night."""

    folder: Path
    posted: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "clock").mkdir(parents=True)
        (self.folder / "clock" / "sitecustomize.py").write_text(CLOCK, encoding="utf-8")
        self.world = World(self.folder, settings={"PYTHONPATH": str(self.folder / "clock")})
        self.repository = self.folder / "repo"
        versions = [{"bench/__init__.py": "", "bench/cases.py": CASES}]
        versions += [{} for _ in range(COMMITS - 1)]
        for number, version in enumerate(versions):
            loops = LOOPS if number < CULPRIT else LOOPS * 11 // 10
            version["bench/model.py"] = MODEL.format(loops=loops, version=number)
        self.hashes = make_repository(self.repository, versions)

    def write_suite(self, port: int) -> None:
        text = SUITE.format(url=self.repository.as_uri(), port=port)
        (self.folder / "suite.toml").write_text(text, encoding="utf-8")

    def past_night(self, number: int) -> None:
        """A night of which only its run counts."""
        url, commit = self.repository.as_uri(), self.hashes[NIGHTS[number]]
        done = self.perfrun(
            *(f"--workspace={self.world.workspace}", f"--git_repos={url};main;{commit}"),
            *("--python_path=repo", f"--benchmark_methods={METHOD}"),
            night=number,
        )
        assert done.code == 0, done.stderr

    def night(self, number: int) -> tuple[Finished, Any]:
        """One night, at the commit that the branch has that day."""
        commit = NIGHTS[min(number, len(NIGHTS) - 1)]
        git(self.repository, "update-ref", "refs/heads/main", self.hashes[commit])
        done = self.perfrun("nightly", "suite.toml", night=number)
        assert done.code in (0, 1), done.stderr
        return done, strict(done.stdout)

    def detect(self, *words: str, night: int) -> Any:
        own = (f"--workspace={self.world.workspace}", f"--clone=repo={self.repository}")
        done = self.perfrun("detect", *own, f"--metric={METRIC}", *words, night=night)
        return strict(done.stdout)["changes"]

    def bisect(self, good: str, bad: str, *words: str, night: int) -> Any:
        url = self.repository.as_uri()
        done = self.perfrun(
            *("bisect", f"--workspace={self.world.workspace}", f"--git_repos={url};main"),
            *("--python_path=repo", f"--method={METHOD}", f"--metric={METRIC}"),
            *(f"--good={good}", f"--bad={bad}", *words),
            night=night,
        )
        assert done.stdout, done.stderr
        return strict(done.stdout)

    def perfrun(self, *words: str, night: int) -> Finished:
        line = [self.world.python, self.world.entry, *words, "--format=json"]
        # Six hundred pairs take their time.
        return self.world.run_words(line, patience_s=1200.0, PERFRUN_TEST_NIGHT=str(night))


@contextmanager
def webhook(posted: list[Any]) -> Iterator[int]:
    """Serve on a port of this machine; what is posted goes into the list."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.timeout(1500)  # what noise may cost is time: four minutes at a load of 12 on two cores
def test_a_commit_that_slows_a_method_is_found_confirmed_and_named(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "a b")
    with webhook(loop.posted) as port:
        loop.write_suite(port)
        night, done, report, change = nights_until_confirmed(loop)

    # The night that made it sure.
    assert (done.code, report["ok"]) == (1, False), report
    assert (change["direction"], change["is_new"], change["owner"]) == (
        "worse",
        True,
        "team@example.com",
    )
    assert 1.05 < change["ratio"] < 1.15
    before, after = (loop.hashes.index(change[f"commits_{w}"]["repo"]) for w in ("before", "after"))
    assert before < CULPRIT <= after
    assert loop.posted[-1] == report
    assert len(loop.posted) == night + 1 - PAST
    check_reports(loop.world.workspace / "nights" / report["night"], change)

    # The history by itself, in the order of the commits.
    ours = change["after_execution_id"]
    same = [c for c in loop.detect(night=night) if c["after_execution_id"] == ours]
    assert [c["direction"] for c in same] == ["worse"]

    # Which of the eight commits between the two nights it was.
    ends = (change["commits_before"]["repo"], change["commits_after"]["repo"])
    answer = loop.bisect(*ends, "--max_pairs=150", night=night)
    if answer["status"] == "undecided":
        answer = loop.bisect(*ends, "--max_pairs=600", "--resume", night=night)
    assert answer["status"] == "found", answer
    assert answer["culprit"]["name"] == loop.hashes[CULPRIT]
    assert answer["direction"] == "worse"
    assert not loop.world.left_running()


def nights_until_confirmed(loop: Loop) -> tuple[int, Finished, Any, Any]:
    """Run nights until one finds a change for the worse that pairs of trials confirm."""
    for night in range(PAST):
        loop.past_night(night)
    for night in range(PAST, MOST_NIGHTS):
        done, report = loop.night(night)
        assert not report["errors"], report
        assert [m["state"] for m in report["methods"]] == ["ok"], report
        for change in report["changes"]:
            if (change["metric"], change["direction"], change["is_new"]) != (METRIC, "worse", True):
                continue
            if change["status"] == "candidate":  # noise left it open: more pairs
                wanted = loop.detect("--confirm", "--max_pairs=100", night=night)
                ours = change["after_execution_id"]
                same = [c["status"] for c in wanted if c["after_execution_id"] == ours]
                change["status"] = same[0] if same else "candidate"
            if change["status"] == "confirmed":
                return night, done, report, change
    raise AssertionError(f"{MOST_NIGHTS} nights show no change that is confirmed")


def check_reports(folder: Path, change: Any) -> None:
    """All reports of the night tell of the regression."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# models: ")
    assert "1 regression" in text
    if change["confirmation"]["reason"] is None:
        assert f"confirmed by {change['confirmation']['pairs']} pairs" in text
        assert change["confirmation"]["low"] > 1.0
    commits = "..".join(change[f"commits_{when}"]["repo"][:12] for when in ("before", "after"))
    assert f"repo `{commits}`" in text
    root = ElementTree.parse(folder / "junit.xml").getroot()
    failures = [case for case in root.iter("testcase") if case.find("failure") is not None]
    assert [case.get("name") for case in failures] == [f"{METHOD} {METRIC}"]
    metrics = (folder / "metrics.prom").read_text(encoding="utf-8")
    assert 'perfrun_night_regressions{suite="models"} 1.0' in metrics
    assert 'perfrun_night_ok{suite="models"} 0.0' in metrics

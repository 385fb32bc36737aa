"""`perfrun detect --confirm`: changes in histories of real trials of real commits."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import schemas

from perfrun.incidents import ledger
from tests.gitrepos import make_repository
from tests.worlds import HOLD, World, finish, strict, wait_held, written_here

# The figure is no measurement: the machine may be busy. What is tested is what pairs make of it.
SOURCE = f"""{HOLD}
import random
from perfrun import Benchmark
from bench.settings import LOOPS


class Cases(Benchmark):
    def spin(self):
        if "HOLD_AT" in os.environ:
            hold_at(int(os.environ["HOLD_AT"]), os.environ["HOLD_IN"])
        cpu_s = LOOPS * 25e-8 * (1 + random.random() * 0.006)
        self.report_benchmark(wall_time=1.0, metrics=[{{"name": "cpu_s", "value": cpu_s}}])
"""
SPIN = "bench.cases.Cases.spin"
NIGHTS, CHANGE = 50, 40


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, list[str]]:
    """A trial of each of two commits, of which the second does half as much again."""
    folder = tmp_path_factory.mktemp("history")
    versions = [{"bench/__init__.py": "", "bench/cases.py": SOURCE}, {}, {}]
    for version, loops in zip(versions, (40_000, 60_000, 60_001), strict=True):
        version["bench/settings.py"] = f"LOOPS = {loops}\n"
    hashes = make_repository(folder / "repo", versions)
    return World(folder), hashes


def replay(
    world: World,
    name: str,
    commits: tuple[str, str],
    values: tuple[float, float],
    *,
    imported: bool = False,
) -> Path:
    """Nights from two real summaries: copied, dated, and with a figure of our own."""
    workspace = world.folder / name
    trials = []
    for commit in commits:
        done = world.run_words(
            [
                *(world.python, world.entry, f"--workspace={workspace / 'real'}"),
                f"--git_repos={(world.folder / 'repo').as_uri()};main;{commit}",
                *("--python_path=repo", f"--benchmark_methods={SPIN}", "--format=json"),
            ]
        )
        trials.append(done.summaries()[0])
    for night in range(NIGHTS):
        at = int(night >= CHANGE)
        document = json.loads(json.dumps(trials[at]))
        document["execution_id"] = f"night-{night:02}"
        document["execution_timestamp"] = 1_700_000_000 + night * 86_400.0
        document["perfrun"]["run_id"] = f"run-{night:02}"
        document["perfrun"]["quality"] = None
        value = values[at] * (1 + 0.004 * (night * 7 % 5 - 2))
        document["perfrun"]["reports"][0]["metrics"][0]["value"] = value
        for metric in document["benchmark_result"]["metrics"]:
            metric["value"] = value
        path = workspace / "output" / document["execution_id"] / "perfzero_summary.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(document), encoding="utf-8")
    if imported:  # but runs of this workspace have used the same interpreter and repository
        shutil.copytree(workspace / "real" / "runs", workspace / "runs")
    else:
        written_here(workspace)
    return workspace


def detect(world: World, workspace: Path, *more: str) -> tuple[int, Any]:
    words = [world.python, world.entry, "detect", f"--workspace={workspace}", "--metric=cpu_s"]
    done = world.run_words([*words, "--format=json", *more])
    assert done.stdout, done.stderr
    found = strict(done.stdout)
    schemas.check("detect", found)
    return done.code, found["changes"]


def test_a_change_that_is_there_is_confirmed(history: tuple[World, list[str]]) -> None:
    world, hashes = history
    workspace = replay(world, "true", (hashes[0], hashes[1]), (0.010, 0.015))
    code, changes = detect(world, workspace)
    assert [change["status"] for change in changes] == ["candidate"]
    assert (changes[0]["confirmation"], code) == (None, 1)
    (workspace / "nights").mkdir()  # it keeps incidents
    code, changes = detect(world, workspace, "--confirm", "--max_pairs=60")
    told = changes[0]["confirmation"]
    assert (changes[0]["status"], code) == ("confirmed", 1), told
    assert told["low"] > 1.4
    (incident,) = ledger.read(workspace).incidents
    assert (incident.status, incident.methods) == ("confirmed", [SPIN])
    assert told["not_reconstructed"] == []
    summaries = list((workspace / "ab" / "a" / "output").glob("*/perfzero_summary.json"))
    ran = json.loads(summaries[0].read_text(encoding="utf-8"))
    assert ran["benchmark_info"]["site_package_info"]["repo"]["hash"] == hashes[0]
    assert ran["benchmark_info"]["execution_label"] == "confirm/a"


def test_a_change_that_was_the_machines_is_not_reproduced(
    history: tuple[World, list[str]],
) -> None:
    world, hashes = history
    workspace = replay(world, "false", (hashes[1], hashes[2]), (0.010, 0.015), imported=True)
    code, changes = detect(world, workspace, "--confirm", "--max_pairs=60")
    assert (changes[0]["status"], code) == ("candidate", 1)
    assert "imported, not run in this workspace" in changes[0]["confirmation"]["reason"]
    assert not (workspace / "ab").exists()
    words = ("--confirm", "--max_pairs=60", "--trust=imported")
    code, changes = detect(world, workspace, *words)
    status, told = changes[0]["status"], changes[0]["confirmation"]
    assert (status, code) == ("not_reproduced", 0), told
    assert told["pairs"] >= 8


def test_a_confirmation_that_was_interrupted_goes_on(history: tuple[World, list[str]]) -> None:
    world, hashes = history
    workspace = replay(world, "cut", (hashes[0], hashes[1]), (0.010, 0.015))
    words = [world.python, world.entry, "detect", f"--workspace={workspace}", "--metric=cpu_s"]
    words += ["--confirm", "--format=json"]
    process = world.start_words(words, HOLD_AT="5", HOLD_IN=str(workspace))
    ran = "ab/*/output/*/perfzero_summary.json"
    wait_held(process, workspace / "held")
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert stopped.code == 130
    assert "the same command goes on from here" in stopped.stderr
    (change,) = strict(stopped.stdout)["changes"]
    assert (change["status"], change["confirmation"]["reason"]) == ("candidate", "interrupted")
    before = len(list(workspace.glob(ran)))
    done = world.run_words(words)
    (change,) = strict(done.stdout)["changes"]
    assert change["confirmation"]["pairs"] >= 8
    # Nothing was run twice but the trial that was cut short: it is one run a side.
    assert len(list(workspace.glob(ran))) <= 2 * change["confirmation"]["pairs"] + 1
    assert [len(list(workspace.glob(f"ab/{side}/runs/*.jsonl"))) for side in "ab"] == [1, 1]
    assert before < len(list(workspace.glob(ran)))
    assert not (workspace / "confirming.json").exists()


def test_what_cannot_be_reconstructed_is_said(history: tuple[World, list[str]]) -> None:
    world, hashes = history
    workspace = replay(world, "edited", (hashes[0], hashes[1]), (0.010, 0.015))
    for path in workspace.glob("output/*/perfzero_summary.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        document["perfrun"]["git"][0]["dirty"] = True
        path.write_text(json.dumps(document), encoding="utf-8")
        os.utime(path)
    written_here(workspace)
    code, changes = detect(world, workspace, "--confirm")
    assert (changes[0]["status"], code) == ("candidate", 1)
    assert "repo: its local edits" in changes[0]["confirmation"]["reason"]
    assert not (workspace / "ab").exists()

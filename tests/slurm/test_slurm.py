"""Suites on a real Slurm, with all that happens to jobs there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cluster
import pytest
from cluster import Cluster

from perfrun.fleet.slurm_queue import SlurmError, answer
from tests.worlds import Finished, World, finish, strict

# Every method waits while the file is there, so a test decides when shards end.
CASES = """
    from absl import flags
    flags.DEFINE_integer("batch_size", 1, "images at a time")
    flags.DEFINE_string("dtype", "float32", "type of the numbers")

    class Tiny(Benchmark):
        def _wait(self):
            while os.path.exists({hold!r}):
                time.sleep(0.02)
            self.report_benchmark(wall_time=float(flags.FLAGS.batch_size))

"""
METHODS = 10
POLL = "--poll=0.1s"


class Site:
    """A suite of tiny methods in a folder that all nodes see."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.hold = folder / "hold"
        methods = "".join(
            f"        def m{number}(self):\n            self._wait()\n\n"
            for number in range(METHODS)
        )
        self.world.write(CASES.format(hold=str(self.hold)) + methods)

    def suite(self, methods: int, extra: str = "") -> str:
        """Write a suite of so many methods; return its path."""
        path = self.world.folder / "tiny.toml"
        names = "".join(f'[[methods]]\nname = "pkg.cases.Tiny.m{n}"\n' for n in range(methods))
        path.write_text(f'python_path = ["./code"]\n{extra}{names}')
        return str(path)

    def perfrun(self, *words: str) -> Finished:
        return self.world.run_words(self.words(*words))

    def words(self, *words: str) -> list[str]:
        return [self.world.python, self.world.entry, *words]

    def submit(self, *words: str) -> Finished:
        return self.perfrun("submit", *words, "--engine=slurm", POLL)

    @property
    def submission(self) -> Path:
        (found,) = self.world.workspace.glob("submissions/*/plan.json")
        return found.parent

    def hosts(self) -> list[list[str]]:
        """The nodes of each shard's attempts."""
        return [
            [strict(one.read_text())["host"] for one in sorted(shard.glob("attempt-*/begun.json"))]
            for shard in self.submission.glob("shards/*")
        ]


@pytest.fixture
def site(tmp_path: Path, slurm: Cluster) -> Site:
    return Site(tmp_path)


def wait(condition: Callable[[], Any]) -> None:
    """Look until the condition holds; each look may be a question to the controller."""
    end = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def jobs(slurm: Cluster, state: str = "all") -> dict[str, tuple[str, str]]:
    """State and node of each task."""
    words = ["squeue", "--noheader", "--array", f"--states={state}", "--format=%i %T %N"]
    found = (line.split() for line in slurm.run(*words).splitlines())
    return {job: (state, (*node, "")[0]) for job, state, *node in found}


def drained(slurm: Cluster) -> bool:
    """Return True when no job waits or runs."""
    return not jobs(slurm, "pending,running,completing,configuring,requeued")


def test_forty_shards_come_through_all_that_happens_to_jobs(site: Site, slurm: Cluster) -> None:
    site.hold.touch()
    begun = site.submit(site.suite(METHODS), "--rounds=4")
    assert begun.code == 0, begun.stderr
    running = "running"
    wait(lambda: len(jobs(slurm, running)) == len(cluster.NODES))
    wait(lambda: sum(map(len, site.hosts())) == len(cluster.NODES))
    arrays = Counter(job.partition("_")[0] for job in jobs(slurm))
    assert sorted(arrays.values()) == [7, 11, 11, 11]  # MaxArraySize
    by_node = {node: job for job, (_, node) in jobs(slurm, running).items()}

    # The number of an array is lost, as by a kill just after `sbatch`: its name finds it.
    batch = site.submission / "engine" / "slurm" / "batch-00002.json"
    known = json.loads(batch.read_text())
    batch.write_text(json.dumps({**known, "job": ""}))

    slurm.run("scontrol", "update", "nodename=node1", "state=drain", "reason=test")
    slurm.run("scancel", by_node["node2"])
    slurm.run(
        *("sbatch", "--partition=urgent", "--exclusive", "--nodelist=node3", "--output=/dev/null"),
        f"--wrap=while test -e {site.hold}; do sleep 0.1; done",
    )
    wait(lambda: jobs(slurm)[by_node["node3"]][0] == "PENDING")  # preempted, and requeued

    slurm.stop_controller()
    with pytest.raises(SlurmError, match="`squeue` failed: .*; jobs go on without it"):
        answer("squeue", patient=False)
    asking = site.world.start_words(site.words("fleet"))
    slurm.start_controller()
    seen = finish(asking)
    assert "running" in seen.stdout, seen.stderr
    assert json.loads(batch.read_text())["job"] == known["job"]

    site.hold.unlink()
    wait(lambda: drained(slurm))
    ended = site.perfrun("fleet")
    assert "40 shards, 39 done, 1 cancelled" in ended.stdout, ended.stderr
    again = site.submit("--resume", "--workspace=workspace")
    assert "1 of 40 shards are submitted again" in again.stderr, again.stderr
    wait(lambda: drained(slurm))
    last = site.perfrun("fleet", "--format=json")
    assert last.code == 0
    assert strict(last.stdout)["states"] == {"done": 40}

    hosts = site.hosts()
    assert [len(one) for one in hosts].count(2) == 2, hosts  # of the cancelled and the preempted
    assert sum(one.count("node1") for one in hosts) == 1  # it was drained
    summaries = [strict(path.read_text()) for path in site.world.summary_files()]
    assert Counter(one["benchmark_result"]["name"] for one in summaries) == {
        f"pkg.cases.Tiny.m{number}": 4 for number in range(METHODS)
    }
    assert len({one["perfrun"]["run_id"] for one in summaries}) == 40
    index = site.perfrun("index", "--format=json", "--workspace=workspace")
    assert (strict(index.stdout)["trials"], strict(index.stdout)["bad_files"]) == (40, [])


def test_a_sweep_of_twelve_settings_is_one_table_and_one_report(site: Site, slurm: Cluster) -> None:
    sweep = ["--sweep", "batch_size=1,2,4,8,16,32", "dtype=float32,bfloat16"]
    # Two shards a node, each with a device of its own; and the queue takes seven jobs.
    site.hold.touch()
    devices = ["--exclusive=devices", "--gres=accelerator:1", "--constraint=virtual"]
    first = site.submit(site.suite(1), *sweep, *devices, "--max_jobs=7", "--walltime=5m")
    assert first.code == 2
    assert "7 of 12 shards are submitted: you may have 7 jobs in the queue" in first.stderr
    wait(lambda: len(jobs(slurm, "running")) == 7)
    nodes = Counter(node for _, node in jobs(slurm).values())
    assert max(nodes.values()) == 2
    site.hold.unlink()
    wait(lambda: drained(slurm))
    rest = site.submit("--resume", "--workspace=workspace")
    assert "5 of 12 shards are submitted again" in rest.stderr, rest.stderr
    wait(lambda: drained(slurm))
    table = site.perfrun("fleet", "--table")
    print(table.stdout, table.stderr)
    page = site.perfrun("report", "--workspace=workspace", "--out=page.html")
    print(page)

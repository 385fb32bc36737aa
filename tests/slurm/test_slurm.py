"""Suites on a real Slurm, with all that happens to jobs there."""

from __future__ import annotations

import contextlib
import os
import shutil
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
from tests.pages import read_page
from tests.worlds import Finished, World, finish, strict

# Every method waits while the file is there, so a test decides when shards end.
pytestmark = pytest.mark.slurm
CASES = """
    from absl import flags
    flags.DEFINE_integer("batch_size", 1, "images at a time")
    flags.DEFINE_string("dtype", "float32", "type of the numbers")

    class Tiny(Benchmark):
        def _wait(self):
            while os.path.exists({hold!r}):
                time.sleep(0.02)
            size = flags.FLAGS.batch_size if flags.FLAGS.is_parsed() else 1
            self.report_benchmark(wall_time=float(size))

"""
METHODS = 10
OPEN = "pending,running,completing,configuring,requeued"
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

    def submit(self, *words: str, path: str = "") -> Finished:
        own = {"PATH": f"{path}:{os.environ['PATH']}"} if path else {}
        return self.world.run_words(self.words("submit", *words, "--engine=slurm", POLL), **own)

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
    end = time.monotonic() + 300.0
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def jobs(slurm: Cluster, state: str = "all") -> dict[str, tuple[str, str]]:
    """State and node of each job; of all tests, unless they are asked for by state."""
    words = ["squeue", "--noheader", "--array", f"--states={state}", "--format=%i %T %N"]
    found = (line.split() for line in slurm.run(*words).splitlines())
    return {job: (state, (*node, "")[0]) for job, state, *node in found}


def is_over(slurm: Cluster) -> bool:
    """Return True when no job waits or runs."""
    return not jobs(slurm, OPEN)


def killing_sbatch(site: Site, number: int) -> str:
    """Make an `sbatch` that kills perfrun as soon as so many arrays have been taken."""
    folder = site.world.folder / "bin"
    folder.mkdir()
    program = folder / "sbatch"
    program.write_text(
        f'#!/bin/sh\n{shutil.which("sbatch")} "$@"\necho >> "$0.taken"\n'
        f'[ $(wc -l < "$0.taken") = {number} ] || exit 0\n'
        'read -r _ _ _ perfrun _ < "/proc/$PPID/stat"\nkill -9 "$perfrun"\n'
    )
    program.chmod(0o755)
    return str(folder)


def test_forty_shards_come_through_all_that_happens_to_jobs(site: Site, slurm: Cluster) -> None:
    site.hold.touch()
    # Killed after its second array was taken, before it could write the number down.
    begun = site.submit(site.suite(METHODS), "--rounds=4", path=killing_sbatch(site, 2))
    assert begun.code == -signal.SIGKILL, begun.stderr
    rest = site.submit("--resume", "--workspace=workspace")
    assert "18 of 40 shards are submitted again" in rest.stderr, rest.stderr
    running = "running"
    wait(lambda: len(jobs(slurm, running)) == len(cluster.NODES))
    wait(lambda: sum(map(len, site.hosts())) == len(cluster.NODES))
    arrays = Counter(job.partition("_")[0] for job in jobs(slurm, OPEN))
    assert sorted(arrays.values()) == [7, 11, 11, 11]  # MaxArraySize
    by_node = {node: job for job, (_, node) in jobs(slurm, running).items()}

    slurm.run("scontrol", "update", "nodename=node1", "state=drain", "reason=test")
    slurm.run("scancel", by_node["node2"])
    slurm.run(
        *("sbatch", "--partition=urgent", "--exclusive", "--nodelist=node3", "--output=/dev/null"),
        f"--wrap=while test -e {site.hold}; do sleep 0.1; done",
    )
    wait(lambda: jobs(slurm)[by_node["node3"]][0] == "PENDING")  # preempted, and requeued

    slurm.stop_controller()
    with pytest.raises(SlurmError, match=r"`squeue` failed: .*; jobs go on without it"):
        answer("squeue", patient=False)
    asking = site.world.start_words(site.words("fleet"))
    slurm.start_controller()
    seen = finish(asking)
    assert "running" in seen.stdout, seen.stderr

    site.hold.unlink()
    wait(lambda: is_over(slurm))
    ended = site.perfrun("fleet")
    assert "40 shards, 39 done, 1 cancelled" in ended.stdout, ended.stderr
    again = site.submit("--resume", "--workspace=workspace")
    assert "1 of 40 shards are submitted again" in again.stderr, again.stderr
    wait(lambda: is_over(slurm))
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
    assert slurm.run("squeue", "--noheader", "--format=%l").split() == ["5:00"] * 7
    nodes = Counter(node for _, node in jobs(slurm, "running").values())
    assert max(nodes.values()) == 2
    site.hold.unlink()
    wait(lambda: is_over(slurm))
    rest = site.submit("--resume", "--workspace=workspace")
    assert "5 of 12 shards are submitted again" in rest.stderr, rest.stderr
    wait(lambda: is_over(slurm))
    table = site.perfrun("fleet", "--table", "--metric=wall_time", "--format=json")
    rows = strict(table.stdout)["rows"]
    assert [(row["setting"], row["metrics"][0]["median"]) for row in rows] == [
        ({"batch_size": size, "dtype": dtype}, float(size))
        for size in ("1", "2", "4", "8", "16", "32")
        for dtype in ("float32", "bfloat16")
    ]
    page = site.perfrun("report", "--workspace=workspace", "--output=page.html")
    assert page.code == 0, page.stderr
    found = read_page((site.world.folder / "page.html").read_text(encoding="utf-8")).data
    assert len({method["settings"] for method in found["methods"]}) == 12


def test_every_node_runs_the_suite_in_its_own_order_and_a_drained_one_is_left_out(
    site: Site, slurm: Cluster
) -> None:
    suite = Path(site.suite(2))
    suite.write_text(suite.read_text() + '[[methods]]\nname = "pkg.cases.Tiny.m2"\ncanary = true\n')
    known = sorted(set(slurm.run("sinfo", "--noheader", "--Node", "--format=%N").split()))
    slurm.run("scontrol", "update", f"nodename={known[0]}", "state=drain", "reason=test")
    try:
        done = site.submit(str(suite), "--per_node=all")
        assert done.code == 0, done.stderr
        wait(lambda: is_over(slurm))
    finally:
        slurm.run("scontrol", "update", f"nodename={known[0]}", "state=resume")
    plan = strict((site.submission / "plan.json").read_text())
    ran = {}
    for shard in plan["shards"]:
        folder = site.submission / "shards" / f"{shard['index']:05d}" / "attempt-1"
        begun = strict((folder / "begun.json").read_text())
        assert begun["host"] == shard["node"]
        ran.setdefault(shard["node"], []).append((begun["begun"], shard["method"][-2:]))
    assert sorted(ran) == known[1:]
    for own in ran.values():
        assert [method for _, method in sorted(own)] == [method for _, method in own]
        assert [own[0][1], own[-1][1]] == ["m2", "m2"]  # the canary
    assert site.perfrun("fleet").code == 0


def test_what_slurm_refuses_is_one_line_and_what_is_cancelled_is_no_failure(
    site: Site, slurm: Cluster
) -> None:
    refused = site.submit(site.suite(3), "--constraint=liquid")
    assert refused.code == 2
    assert refused.stderr.splitlines()[-1] == (
        "perfrun: `sbatch` failed: Batch job submission failed: Invalid feature specification; 3 "
        "shards are not submitted, and `perfrun submit --resume` submits them"
    )
    site.hold.touch()
    held = site.submit("--resume", "--workspace=workspace", "--constraint=virtual")
    assert "3 of 3 shards are submitted again" in held.stderr, held.stderr
    wait(lambda: sum(map(len, site.hosts())) == 3)
    cancelled = site.perfrun("fleet", "--cancel")
    assert "what waited or ran is cancelled" in cancelled.stderr, cancelled.stderr
    wait(lambda: is_over(slurm))
    seen = site.perfrun("fleet")
    assert "3 shards, 3 cancelled" in seen.stdout, seen.stderr
    site.hold.unlink()
    assert site.submit("--resume", "--workspace=workspace", "--constraint=virtual").code == 0
    wait(lambda: is_over(slurm))
    assert "3 shards, 3 done" in site.perfrun("fleet").stdout


OF_ITS_OWN = """
import cluster, time
with cluster.running() as one:
    print(one.folder, flush=True)
    time.sleep(600)
"""


def test_the_daemons_end_with_the_tests_that_are_killed(slurm_cluster: Cluster) -> None:
    words = [sys.executable, "-c", OF_ITS_OWN]
    tests = subprocess.Popen(words, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    assert tests.stdout
    folder = tests.stdout.readline().strip()
    assert len(daemons_of(folder)) >= len(["munged", "slurmctld", *cluster.NODES])
    tests.kill()
    tests.communicate()
    wait(lambda: not daemons_of(folder))
    assert daemons_of(str(slurm_cluster.folder))
    shutil.rmtree(folder)


def daemons_of(folder: str) -> list[str]:
    """Return the processes that have a cluster's configuration."""
    wanted = f"SLURM_CONF={folder}/slurm.conf".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found

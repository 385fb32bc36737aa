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
    class Tiny(Benchmark):
        def _wait(self):
            while os.path.exists({hold!r}):
                time.sleep(0.02)
            self.report_benchmark(wall_time=0.5, extras={{"batch": getattr(self, "batch", 0)}})

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
        (found,) = (self.world.workspace / "submissions").iterdir()
        return found

    def hosts(self) -> list[list[str]]:
        """The nodes of each shard's attempts."""
        found = []
        for shard in sorted((self.submission / "shards").iterdir()):
            begun = sorted(shard.glob("attempt-*/begun.json"))
            found.append([json.loads(one.read_text())["host"] for one in begun])
        return found


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

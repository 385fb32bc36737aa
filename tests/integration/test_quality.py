"""Real trials, disturbed for real: what the findings say of it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from worlds import World

from perfrun.probes.machine import _cpu_limit
from perfrun.summary.quality_machine import load_limit

CASES = """
class Cases(Benchmark):
    def beside(self):
        # Until others have worked for so long that it disturbs, a slow start and end included.
        limit, begun = float(os.environ["LIMIT"]), time.monotonic()
        neighbours = os.environ["NEIGHBOURS"].split(",")
        worked = lambda: sum(time.clock_gettime((~int(pid) << 3) | 2) for pid in neighbours)
        before, busy_before = worked(), busy_s()
        while True:
            time.sleep(0.1)
            took, did = time.monotonic() - begun, worked() - before
            if did > 0.5 and busy_s() - busy_before > 1.5 * limit * (took + 4.0):
                break
            if took > 120:
                raise RuntimeError(f"others got {did:.1f} s of CPU time: too little to disturb")
        self.report_benchmark(wall_time=took, metrics=[{"name": "did_s", "value": did}])

    def sleep(self):
        time.sleep(2.0)
        self.report_benchmark(wall_time=2.0)

    def spin(self):
        end = time.process_time() + 1.5
        while time.process_time() < end:
            pass
        self.report_benchmark(wall_time=1.5)

    def held(self):
        file, quota, none = os.environ["QUOTA"].split(";")
        with open(file, "w") as group:
            group.write(quota)
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        with open(file, "w") as group:
            group.write(none)
        self.report_benchmark(wall_time=0.2)

    def two_children_spin(self):
        spin = "import time\\nwhile time.process_time() < 1.0: pass"
        children = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
        for child in children:
            child.wait()
        self.report_benchmark(wall_time=1.0)

    def dies(self):
        os.kill(os.getpid(), signal.SIGKILL)

def busy_s():
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    return sum(ticks[index] for index in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")
"""
SPIN = "while True: pass"
LIMIT = load_limit(os.cpu_count() or 1)  # busy CPUs from which on a trial is disturbed


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CASES)
    return made


def judged(world: World, method: str, **env: str) -> dict[str, Any]:
    """The summary of a trial."""
    done = world.run("--format=json", methods=f"pkg.cases.Cases.{method}", **env)
    (summary,) = done.summaries()
    assert done.results[0]["grade"] == summary["perfrun"]["quality"]["grade"]
    return summary


def quality_of(world: World, method: str) -> dict[str, Any]:
    quality: dict[str, Any] = judged(world, method)["perfrun"]["quality"]
    return quality


def finding(quality: dict[str, Any], code: str) -> dict[str, Any] | None:
    return next((f for f in quality["findings"] if f["code"] == code), None)


@contextlib.contextmanager
def busy_neighbours() -> Iterator[dict[str, str]]:
    """Processes that take all the CPU time that they get; what the method `beside` has to know."""
    quota = _cpu_limit()
    if quota is not None and quota < 2 * LIMIT:
        pytest.skip(f"neighbours under a quota of {quota:g} CPUs cannot disturb this machine")
    spin = [sys.executable, "-c", SPIN]
    with contextlib.ExitStack() as stack:
        pids = []
        for _ in range(math.ceil(2 * LIMIT)):
            process = stack.enter_context(subprocess.Popen(spin))
            stack.callback(process.kill)
            pids.append(str(process.pid))
        yield {"NEIGHBOURS": ",".join(pids), "LIMIT": str(LIMIT)}


def test_a_busy_neighbour_is_seen_with_the_cpu_time_that_it_took(world: World) -> None:
    with busy_neighbours() as known:
        summary = judged(world, "beside", **known)
    quality = summary["perfrun"]["quality"]
    loaded = finding(quality, "machine_loaded")
    assert loaded is not None
    assert quality["disturbed"]
    assert quality["grade"] >= "D"
    # At least what it took, and never more than there is; other tests may run beside us.
    (did,) = (m["value"] for m in summary["benchmark_result"]["metrics"] if m["name"] == "did_s")
    took_s = summary["perfrun"]["cpu"]["machine"]["elapsed_s"]
    assert 0.8 * did - 0.1 <= loaded["value"] * took_s <= (os.cpu_count() or 1) * took_s + 0.1
    assert loaded["unit"] == "CPUs"


@pytest.mark.parametrize("method", ["spin", "two_children_spin"])
def test_the_trials_own_work_is_not_a_neighbours(method: str, world: World) -> None:
    """Beside a sleeping trial there is as much of others' work as beside a busy one.

    Taken in turns, because others may be at work here; the smallest difference counts.
    """
    differences = []
    for _ in range(10):
        values = []
        for name in ("sleep", method):
            loaded = finding(quality_of(world, name), "machine_loaded")
            values.append(loaded["value"] if loaded else 0.0)
        differences.append(values[1] - values[0])
        if differences[-1] < 0.3:
            break
    assert min(differences) < 0.3


def test_a_trial_that_dies_has_a_grade(world: World) -> None:
    assert quality_of(world, "dies")["grade"] in "ABCDEF"


def test_the_table_and_the_line_of_the_trial_show_the_grade(world: World) -> None:
    with busy_neighbours() as known:
        done = world.run("--verbose", methods="pkg.cases.Cases.beside", **known)
    told = next(line for line in done.stdout.splitlines() if line.startswith("[1/1] "))
    assert re.search(r"; [D-F]: ", told)
    line = next(line for line in done.stdout.splitlines() if line.startswith("  quality "))
    assert "disturbed: others used " in line
    header = next(line for line in done.stdout.splitlines() if line.startswith("method "))
    assert "grade" in header.split()


@pytest.fixture
def quota() -> Iterator[tuple[Path, str]]:
    """A control group: its file of processes; how it gets 4 % of a CPU and all of it again."""
    if os.geteuid() != 0:
        pytest.skip("making a control group takes root")
    name = f"perfrun-test-{uuid.uuid4().hex[:8]}"
    old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    is_old = (old / "cpu.cfs_quota_us").exists()
    folder = (old if is_old else new) / name
    limit, few, all_of_it = (
        ("cpu.cfs_quota_us", "4000", "-1") if is_old else ("cpu.max", "4000 100000", "max 100000")
    )
    try:
        folder.mkdir()
        (folder / limit).write_text(few)
        (folder / limit).write_text(all_of_it)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group to be had: {error}")
    yield folder / "cgroup.procs", f"{folder / limit};{few};{all_of_it}"
    for _ in range(100):
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.05)
    folder.rmdir()


@pytest.mark.root
def test_a_quota_that_holds_the_trial_back_is_seen(world: World, quota: tuple[Path, str]) -> None:
    """It gets less than on the busiest machine: that runs out again and again."""
    group, limit = quota
    script = f'echo $$ > "{group}"; exec "$@"'
    inside = replace(world, prefix=("/bin/sh", "-c", script, "sh"), settings={"QUOTA": limit})
    throttled = finding(quality_of(inside, "held"), "throttled")
    assert throttled is not None
    assert throttled["severity"] == "disturbed"
    assert 0.3 < throttled["value"] <= 1.0
    assert "the CPU quota was used up in" in throttled["text"]
    # In the same group, now without a quota: that which the tests run in may have one.
    assert finding(quality_of(inside, "sleep"), "throttled") is None


def test_the_series_of_a_trial_are_part_of_its_grade(world: World) -> None:
    """By a clock of its own: each step takes a millisecond more, whatever else the machine does."""
    world.write(
        """
        from perfrun.worker.measure import loop

        class Slower(Benchmark):
            steps = now_ns = 0

            def measured(self):
                loop._clock = lambda: self.now_ns
                self.measure(self.step, iterations=60, warmup=0, block_size=1)

            def step(self):
                self.steps += 1
                self.now_ns += 1_000_000 * self.steps
        """,
        module="slower",
    )
    done = world.run("--format=json", methods="pkg.slower.Slower.measured")
    assert done.statuses == ["passed"], done.stderr
    (summary,) = done.summaries()
    quality = summary["perfrun"]["quality"]
    found = finding(quality, "not_steady")
    assert found is not None, (quality, summary["perfrun"]["series"][0]["steadiness"])
    assert "measured" in found["text"]


def test_a_disturbed_trial_is_kept_and_run_again(world: World) -> None:
    with busy_neighbours() as known:
        words = ("--format=json", "--max_reruns=1")
        done = world.run(*words, methods="pkg.cases.Cases.beside", **known)
    first, second = (summary["perfrun"] for summary in done.summaries())
    assert first["quality"]["disturbed"]
    assert (first["order"]["rerun_of"], second["order"]["rerun_of"]) == (None, 1)

"""Real trials, disturbed for real: what the findings say of it."""

from __future__ import annotations

import contextlib
import os
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

CASES = """
class Cases(Benchmark):
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
"""
SPIN = "while True: pass"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CASES)
    return made


def qualities(world: World, method: str) -> list[dict[str, Any]]:
    done = world.run("--format=json", methods=f"pkg.cases.Cases.{method}")
    found = [summary["perfrun"]["quality"] for summary in done.summaries()]
    assert [result["grade"] for result in done.results] == [quality["grade"] for quality in found]
    return found


def finding(quality: dict[str, Any], code: str) -> dict[str, Any] | None:
    return next((f for f in quality["findings"] if f["code"] == code), None)


@contextlib.contextmanager
def busy_neighbour() -> Iterator[int]:
    """A process that takes all the CPU time that it gets; its pid."""
    with subprocess.Popen([sys.executable, "-c", SPIN]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)  # its CPU clock


def test_a_busy_neighbour_is_seen_with_the_cpu_time_that_it_took(world: World) -> None:
    with busy_neighbour() as pid:
        begin, before = time.monotonic(), cpu_s(pid)
        (quality,) = qualities(world, "sleep")
        share = (cpu_s(pid) - before) / (time.monotonic() - begin)
    loaded = finding(quality, "machine_loaded")
    assert loaded is not None
    assert quality["disturbed"]
    assert quality["grade"] >= "D"
    # At least what it took, and never more than there is; other tests may run beside us.
    assert 0.7 * share <= loaded["value"] <= (os.cpu_count() or 1) + 0.1
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
            (quality,) = qualities(world, name)
            loaded = finding(quality, "machine_loaded")
            values.append(loaded["value"] if loaded else 0.0)
        differences.append(values[1] - values[0])
        if differences[-1] < 0.3:
            break
    assert min(differences) < 0.3


def test_a_trial_that_dies_has_a_grade(world: World) -> None:
    (quality,) = qualities(world, "dies")
    assert quality["grade"] in "ABCDEF"


def test_the_table_and_the_line_of_the_trial_show_the_grade(world: World) -> None:
    with busy_neighbour():
        done = world.run(methods="pkg.cases.Cases.sleep")
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
    (quality,) = qualities(inside, "held")
    throttled = finding(quality, "throttled")
    assert throttled is not None
    assert throttled["severity"] == "disturbed"
    assert 0.3 < throttled["value"] <= 1.0
    assert "quota ran out in" in throttled["text"]
    (free,) = qualities(world, "sleep")
    assert finding(free, "throttled") is None


def test_the_series_of_a_trial_are_part_of_its_grade(world: World) -> None:
    world.write(
        """
        class Slower(Benchmark):
            steps = 0

            def measured(self):
                self.measure(self.step, iterations=60, warmup=0, block_size=1)

            def step(self):
                self.steps += 1
                time.sleep(0.001 * self.steps)
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
    with busy_neighbour():
        done = world.run("--format=json", "--max_reruns=1", methods="pkg.cases.Cases.sleep")
    first, second = (summary["perfrun"] for summary in done.summaries())
    assert first["quality"]["disturbed"]
    assert (first["order"]["rerun_of"], second["order"]["rerun_of"]) == (None, 1)

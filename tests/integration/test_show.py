"""A real trial shown, run again by the command that is shown, and judged against a baseline."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from perfrun.summary.record import read_record
from tests.worlds import World, strict

SPIN = """
class Cases(Benchmark):
    def spin(self):
        print(os.environ["GREETING"])
        self.measure(lambda: sum(range(1000)), iterations=40, warmup=2)
"""


def test_the_command_that_is_shown_runs_the_trial_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(SPIN)
    words = ["--env=GREETING=it's; $(touch owned)", "--allocator=retain", "--timeout=100"]
    assert world.run(*words, methods="pkg.cases.Cases.spin").code == 0
    show = [world.python, world.entry, "show", f"--workspace={world.workspace}"]
    again = strict(world.run_words([*show, "--format=json"]).stdout)["shown"]["again"]
    assert (again["lacks"], again["is_own"], again["why_not"]) == ([], True, None)
    printed = world.run_words(show).stdout
    command = printed.partition("\nagain ")[2]  # with line ends, as a person copies it
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "perfrun"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(str(world.python))} {shlex.quote(str(world.entry))} "$@"\n'
    )
    program.chmod(0o755)
    path = f"{bin_folder}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command],
        env=world.environment(PATH=path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "it's; $(touch owned)" in done.stdout
    assert not (tmp_path / "owned").exists()
    paths = sorted(world.workspace.glob("output/*/perfzero_summary.json"))
    first, second = map(read_record, paths)
    assert first.subject == second.subject
    assert first.run_id != second.run_id


STEADY = """
import random

class Cases(Benchmark):
    def spin(self):
        noise = 1 + random.random() * 0.006
        self.report_benchmark(wall_time=float(os.environ["SECONDS_OF"]) * noise)

    def other(self):
        self.report_benchmark(wall_time=1.0)

    def fails(self):
        raise ValueError("no")
"""


def test_a_run_is_judged_against_its_baseline(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(STEADY)
    spin, eight = "pkg.cases.Cases.spin", "--benchmark_num_trials=8"
    place = f"--workspace={world.workspace}"
    assert world.run(eight, methods=spin, SECONDS_OF="1").code == 0
    base = [world.python, world.entry, "baseline", place]
    assert world.run_words([*base, "set", "v1.0"]).code == 0

    slower = world.run(eight, "--baseline=v1.0", methods=spin, SECONDS_OF="1.5")
    assert slower.code == 1, slower.stderr
    assert "base is baseline v1.0, new is this run" in slower.stdout
    faster = world.run(eight, "--baseline=v1.0", "--format=json", methods=spin, SECONDS_OF="0.5")
    found = strict(faster.stdout)
    assert (faster.code, found["baseline"]["name"], found["baseline"]["error"]) == (0, "v1.0", None)
    assert found["baseline"]["comparisons"][0]["verdict"] == "faster"
    assert found["baseline"]["environment_differences"] == []
    assert len(found["results"]) == 8

    before = len(list(world.workspace.glob("output/*")))
    for words, why in (
        (("--baseline=v1.1",), "did you mean v1.0?"),
        (("--baseline=../v1.0",), "there is no baseline"),
    ):
        wrong = world.run(*words, methods=spin, SECONDS_OF="1")
        assert (wrong.code, why in wrong.stderr) == (2, True), wrong.stderr
    other = world.run("--baseline=v1.0", methods="pkg.cases.Cases.other")
    assert (other.code, "has no trial of pkg.cases.Cases.other" in other.stderr) == (2, True)
    assert len(list(world.workspace.glob("output/*"))) == before  # found before anything ran

    failed = world.run("--baseline=v1.0", methods=f"{spin},pkg.cases.Cases.fails", SECONDS_OF="0.5")
    assert failed.code == 1
    filtered = "pkg.cases.Cases.filter:other"  # known to have nothing in common only afterwards
    none = world.run("--baseline=v1.0", methods=filtered)
    assert (none.code, "not compared with baseline v1.0" in none.stderr) == (2, True)

"""A real trial shown, run again by the command that is shown, and judged against a baseline."""

from __future__ import annotations

import os
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
    program.write_text(f'#!/bin/sh\nexec {world.python} {world.entry} "$@"\n')
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

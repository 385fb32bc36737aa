"""Real runs compared: the same code, and code that does more."""

from __future__ import annotations

from pathlib import Path

from tests.worlds import World, strict

# The time is no measurement: the machine may be busy. What is tested is what is made of it.
SPIN = """
import random

class Cases(Benchmark):
    def spin(self):
        noise = 1 + random.random() * 0.006
        self.report_benchmark(wall_time=float(os.environ["SECONDS_OF"]) * noise)

    def fails(self):
        raise ValueError("no")
"""


def test_runs_of_a_workspace_are_told_apart_by_their_labels(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(SPIN)
    for label, seconds in (("before", "1"), ("again", "1"), ("after", "1.5")):
        done = world.run(
            f"--execution_label={label}",
            "--benchmark_num_trials=8",
            methods="pkg.cases.Cases.spin",
            SECONDS_OF=seconds,
        )
        assert done.code == 0, done.stderr
    place = f"--workspace={world.workspace}"

    def compare(base: str, new: str) -> tuple[int, str]:
        command = [*world.prefix, world.python, world.entry, "compare", place]
        done = world.run_words([*command, base, new, "--format=json"])
        found = strict(done.stdout)
        assert found["environment_differences"] == []
        return done.code, found["comparisons"][0]["verdict"]

    assert compare("before", "after") == (1, "slower")
    assert compare("after", "before") == (0, "faster")
    assert compare("before", "again")[1] != "slower"


def test_a_method_that_failed_cannot_be_compared(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(SPIN)
    assert world.run(methods="pkg.cases.Cases.fails").code == 1
    words = [world.python, world.entry, "compare", str(world.workspace), str(world.workspace)]
    done = world.run_words(words)
    assert done.code == 2
    assert "did its trials pass?" in done.stderr

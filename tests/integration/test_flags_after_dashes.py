"""Flags of the benchmark itself follow `--` and are parsed by absl where the benchmark runs."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest
from worlds import Finished, World

CLASS = """
from absl import flags

flags.DEFINE_integer("batch_size", 4, "images a step")
flags.DEFINE_bool("use_cache", False, "keep the inputs")
flags.DEFINE_list("layers", [], "which")

class Flagged(Benchmark):
    def report(self):
        values = flags.FLAGS
        self.report_benchmark(wall_time=values.batch_size, extras={
            "cache": values.use_cache, "layers": ";".join(values.layers), "argv": sys.argv[1:]})
"""
METHOD = "pkg.cases.Flagged.report"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CLASS)
    return made


def refused(world: World, *words: str) -> str:
    """Run what must be refused before the first trial, and return the one line that says why."""
    done = world.run(*words, methods=METHOD)
    assert done.code == 2
    assert done.stdout == ""
    assert world.summary_files() == []
    assert list(world.workspace.glob("output/*")) == []
    [line] = done.stderr.splitlines()
    return line


def only_summary(done: Finished) -> dict[str, object]:
    [summary] = done.summaries()
    values = {extra["name"]: extra["value"] for extra in summary["benchmark_result"]["extras"]}
    return {"batch": summary["benchmark_result"]["wall_time"], **values}


def test_flags_after_the_dashes_reach_the_benchmark(world: World) -> None:
    flags = ("--batch_size=16", "--use_cache", "--layers=a,b")
    done = world.run("--format=json", "--", *flags, methods=METHOD)
    assert done.code == 0
    assert only_summary(done) == {"batch": 16.0, "cache": 1.0, "layers": "a;b", "argv": "[]"}
    assert done.summaries()[0]["perfrun"]["benchmark_flags"] == list(flags)


def test_without_flags_absl_is_left_to_the_benchmark_as_in_perfzero(world: World) -> None:
    done = world.run("--format=json", methods=METHOD)
    assert done.statuses == ["failed"]
    reason = done.summaries()[0]["perfrun"]["outcome"]["reason"]
    assert "UnparsedFlagAccessError" in reason
    assert "--batch_size" in reason


def test_an_unknown_flag_is_refused_before_the_first_trial_and_the_nearest_named(
    world: World,
) -> None:
    line = refused(world, "--", "--batchsize=8")
    assert "batchsize" in line
    assert "batch_size" in line.replace("batchsize", "", 1)


def test_a_wrong_value_is_refused_before_the_first_trial(world: World) -> None:
    line = refused(world, "--", "--batch_size=many")
    assert "batch_size" in line
    assert "many" in line


def test_a_word_that_is_no_flag_is_refused(world: World) -> None:
    assert "'stray'" in refused(world, "--", "--batch_size=8", "stray")


def test_an_environment_without_absl_is_named_as_the_reason(world: World, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    line = refused(world, f"--python={bare / 'bin' / 'python'}", "--", "--batch_size=8")
    assert "the environment under test has no absl-py" in line


def test_a_flag_of_one_module_is_unknown_to_another(world: World) -> None:
    world.write("class Plain(Benchmark):\n    def noop(self): pass", module="plain")
    done = world.run("--", "--batch_size=8", methods=f"{METHOD},pkg.plain.Plain.noop")
    assert done.code == 2
    assert "pkg.plain" in done.stderr
    assert world.summary_files() == []


def test_a_module_that_cannot_be_imported_is_left_to_its_trial(world: World) -> None:
    world.write("import no_such_package", module="lacking")
    methods = f"{METHOD},pkg.lacking.Any.method"
    done = world.run("--format=json", "--", "--batch_size=8", methods=methods)
    assert (done.code, done.statuses) == (1, ["passed", "failed"])


def test_perfruns_own_flags_are_not_the_benchmarks(world: World) -> None:
    line = refused(world, "--batch_size=8")
    assert "unknown flag --batch_size" in line
    assert "follow --" in line
    assert sys.executable not in line

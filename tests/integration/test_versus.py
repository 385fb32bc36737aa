"""`perfrun versus` with real processes: classes of a test in the place of frameworks."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import schemas

from tests.gitrepos import make_repository
from tests.worlds import HOLD, Finished, World, finish, strict, wait_held

SOURCE = f"""{HOLD}
from absl import flags

flags.DEFINE_integer("batch_size", 1, "examples a step")
flags.DEFINE_string("model", "", "name")


class One(Benchmark):
    step_s = 0.010

    def inference(self):
        self._report(1.0)

    def training(self):
        self._report(3.0)

    def _report(self, times):
        if "HOLD_AT" in os.environ:
            hold_at(int(os.environ["HOLD_AT"]), os.environ["HOLD_IN"])
        size = flags.FLAGS.batch_size
        jitter = 1 + (os.getpid() % 7) / 1000
        step_s = self.step_s * size * times * jitter
        self.report_benchmark(
            iters=5,
            wall_time=step_s,
            throughput=size / step_s,
            metrics=[dict(name="parameters", value=10.0), dict(name="cold_start_s", value=0.1)],
            extras=dict(dtype=self.dtype, model=flags.FLAGS.model),
        )

    dtype = "float32"


class Half(One):
    dtype = "float16"


class Other(One):
    step_s = 0.013

    def training(self):
        os.kill(os.getpid(), signal.SIGSEGV)
"""
TWO = "--frameworks=one=pkg.cases.One,other=pkg.cases.Other"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "a folder; with näme")
    made.folder.mkdir()
    made.write(SOURCE)
    return made


def versus(world: World, *words: str) -> Finished:
    return world.run("versus", TWO, "--model=net", *words)


def test_one_table_of_what_ran_in_turns_and_of_what_failed(world: World) -> None:
    done = versus(
        world,
        *("--phase=both", "--batch_sizes=4", "--rounds=10", "--price_per_hour=one=3.6"),
        *("--platform_name=small", "--seed=1", "--format=json"),
    )
    found = strict(done.stdout)
    assert done.code == 1, done.stderr  # one crashed
    schemas.check("versus", found)
    latency = {row["phase"]: row for row in found["comparisons"] if row["figure"] == "latency_s"}
    inference = latency["inference"]
    assert (inference["base"], inference["label"], inference["verdict"]) == (
        *("one", "other"),
        "slower",
    )
    assert inference["low"] > 1.25
    assert inference["ratio"] == pytest.approx(1.3, rel=0.02)
    cells = {(row["phase"], row["label"]): row for row in found["cells"]}
    assert cells["training", "other"]["failure"].startswith("crashed in 3 of 3 trials")
    assert cells["training", "other"]["figures"] == {}
    # The other goes on, so that its figures have intervals.
    assert cells["training", "one"]["figures"]["latency_s"]["trials"] == 6
    cost = cells["inference", "one"]["cost_per_million"]
    assert cost["median"] == pytest.approx(10.0, rel=0.01)  # 0.001 a second, 100 items a second
    assert cost["low"] <= cost["median"] <= cost["high"]
    assert cells["inference", "other"]["cost_per_million"] is None
    assert found["platform_name"] == "small"
    orders = {tuple(block["order"]) for block in found["blocks"] if len(block["order"]) == 2}
    assert orders == {("one", "other"), ("other", "one")}  # by that seed
    for block in found["blocks"]:
        for label, path in block["summaries"].items():
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            assert document["benchmark_info"]["execution_label"] == label
            assert document["benchmark_result"]["trial_id"] == block["number"]
            assert document["perfrun"]["order"]["seed"] == found["seed"]
            assert document["perfrun"]["benchmark_flags"] == ["--model=net", "--batch_size=4"]
    record = json.loads(Path(found["record"]).read_text(encoding="utf-8"))
    assert record == {key: value for key, value in found.items() if key != "record"}
    assert not world.left_running()


def test_ctrl_c_keeps_what_there_is_and_resume_goes_on(world: World) -> None:
    flags = ("versus", TWO, "--batch_sizes=1,2", "--rounds=6", "--min_effect=90%", "--format=json")
    held = {"HOLD_AT": "7", "HOLD_IN": str(world.folder)}  # in the first trial of the fourth block
    process = world.start_words(world.words(*flags), **held)
    wait_held(process, world.folder / "held")
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert stopped.code == 130, stopped.stderr
    before = strict(stopped.stdout)
    assert before["interrupted"]
    assert len(before["blocks"]) == 3
    done = world.run(*flags, "--resume")
    after = strict(done.stdout)
    assert done.code == 0, done.stderr
    assert (after["seed"], after["contenders"]) == (before["seed"], before["contenders"])
    assert [row for row in after["blocks"] if row in before["blocks"]] == before["blocks"]
    assert len(after["blocks"]) == 12
    # Nothing was run twice but the trial that was cut short.
    assert len(list(world.workspace.glob("versus/*/output/*/perfzero_summary.json"))) == 25
    assert not world.left_running()


def test_one_without_a_working_environment_is_left_out_and_the_machines_combine(
    world: World,
) -> None:
    broken = world.folder / "broken python"
    broken.write_text("#!/bin/sh\necho no Python here >&2\nexit 3\n", encoding="utf-8")
    broken.chmod(0o755)
    small = world.run(
        *("versus", TWO, "--rounds=2", "--platform_name=small", f"--python=other={broken}")
    )
    assert small.code == 1
    assert "other is left out" in small.stderr
    assert "Failed: other (inference, batch 1): " in small.stdout
    assert "no Python here" in small.stdout
    big = world.run(
        *("versus", TWO, "--rounds=2", "--platform_name=big", "--format=markdown"),
        f"--workspace={world.folder / 'second'}",
    )
    assert big.code == 0, big.stderr
    assert "| other |" in big.stdout
    assert "too few rounds: 2, and 7 can decide" in big.stdout
    combined = world.run_words(
        [
            *(world.python, world.entry, "versus", "--combine"),
            *(str(world.workspace), str(world.folder / "second"), "--price_per_hour=small=2"),
        ]
    )
    assert combined.code == 1  # one of them failed
    rows = [line.split() for line in combined.stdout.splitlines()[2:6]]
    assert [row[1:3] for row in rows] == [
        *(["one", "small"], ["one", "big"]),
        *(["other", "small"], ["other", "big"]),
    ]
    assert rows[2][-1] == "failed"
    assert "Between platforms there is no verdict" in combined.stdout
    document = strict(
        world.run_words(
            [
                *(world.python, world.entry, "versus", "--combine"),
                *(str(world.workspace), str(world.folder / "second"), "--format=json"),
            ]
        ).stdout
    )
    assert sorted(document["machines"]) == ["big", "small"]
    schemas.check("versus-combined", document)


def test_when_nothing_can_be_run_there_is_one_line(world: World) -> None:
    done = versus(world, "--", "--no_such_flag=1")
    assert done.code == 2
    assert done.stderr.splitlines()[-1].startswith("perfrun versus: nothing can be run:")
    assert "no_such_flag" in done.stderr.splitlines()[-1]
    assert not list(world.workspace.glob("versus/*/output/*/*"))
    assert not list(world.workspace.glob("versus/*.json"))


def test_code_comes_from_a_repository_and_is_at_the_same_commit_at_every_batch_size(
    tmp_path: Path,
) -> None:
    source = f"import os, signal\nfrom perfrun import Benchmark\n{SOURCE}"
    (commit,) = make_repository(
        tmp_path / "repo", [{"pkg/__init__.py": "", "pkg/cases.py": source}]
    )
    world = World(tmp_path)
    done = world.run_words(
        [
            *(world.python, world.entry, "versus", TWO, f"--workspace={world.workspace}"),
            *(f"--git_repos={(tmp_path / 'repo').as_uri()};main", "--python_path=repo"),
            *("--batch_sizes=1,2", "--rounds=1", "--format=json"),
        ]
    )
    found = strict(done.stdout)
    assert done.code == 0, done.stderr
    paths = [path for block in found["blocks"] for path in block["summaries"].values()]
    assert len(paths) == 4
    for path in paths:
        (checkout,) = json.loads(Path(path).read_text(encoding="utf-8"))["perfrun"]["git"]
        assert checkout["git_hash"] == commit
    assert not world.left_running()


def test_unequal_arms_are_refused_after_the_first_round_unless_that_is_allowed(
    world: World,
) -> None:
    words = ("--frameworks=one=pkg.cases.One,half=pkg.cases.Half", "--model=net", "--rounds=1")
    done = world.run("versus", *words, "--quiet")
    assert done.code == 2
    assert done.stderr == (
        "perfrun versus: not equal: dtype (one float32, half float16): give all the same, "
        "as -- --dtype=float32; or allow it: --allow_unequal=dtype\n"
    )
    allowed = world.run("versus", *words, "--quiet", "--allow_unequal=dtype")
    assert allowed.code == 0, allowed.stderr
    assert "Environment: dtype: one float32, half float16." in allowed.stdout

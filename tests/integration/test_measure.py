"""`Benchmark.measure` under the harness: kills, frameworks that compile again, old interpreters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import World, find_python

CLASS = """
class Cases(Benchmark):
    def two(self):
        self.measure(lambda: time.sleep(0.002), items_per_step=4, iterations=20)
        with self.measuring(name="loop", iterations=5) as timer:
            for _ in timer:
                time.sleep(0.002)

    def killed(self):
        def step():
            if self.calls_are_over():
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.001)
        self.measure(step, block_size=1, warmup=9)

    def hangs(self):
        def step():
            time.sleep(600 if self.calls_are_over() else 0.001)
        self.measure(step, block_size=1, warmup=9)

    def calls_are_over(self):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls > 40:
            open(os.path.join(self.output_dir, "last call"), "w").close()
        return self.calls > 40

    def in_a_child(self):
        import multiprocessing
        context = multiprocessing.get_context("fork")
        child = context.Process(target=self.two)
        child.start()
        child.join()
        self.report_benchmark(wall_time=1.0)
"""


def series_of(summary: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = summary["perfrun"]["series"]
    return found


def test_series_of_a_method_are_in_its_summary(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(CLASS)
    done = world.run("--format=json", methods="pkg.cases.Cases.two")
    (summary,) = done.summaries()
    two, loop = series_of(summary)
    assert [two["name"], loop["name"]] == ["two", "loop"]
    assert [two["report"], loop["report"]] == ["Cases.two", "Cases.loop"]
    assert [len(two["times_s"]), len(loop["times_s"])] == [20, 5]
    assert summary["benchmark_result"]["wall_time"] == two["statistics"]["median_s"] >= 0.002
    assert [report["name"] for report in summary["perfrun"]["reports"]] == [
        "Cases.two",
        "Cases.loop",
    ]
    assert not summary["perfrun"]["notes"]


@pytest.mark.parametrize(
    ("method", "status", "timeouts_s"),
    [("killed", "crashed", (200,)), ("hangs", "timed_out", (8, 90))],
)
def test_what_was_timed_before_a_violent_end_is_in_the_summary(
    tmp_path: Path, method: str, status: str, timeouts_s: tuple[int, ...]
) -> None:
    world = World(tmp_path)
    world.write(CLASS)
    for timeout_s in timeouts_s:  # a busy machine may come to the last call only with the second
        words = ("--format=json", f"--timeout={timeout_s}")
        done = world.run(*words, methods=f"pkg.cases.Cases.{method}")
        assert done.statuses == [status]
        (summary,) = done.summaries()
        if (Path(done.results[0]["summary"]).parent / "last call").exists():
            break
    assert summary["benchmark_result"]["wall_time"] == -1
    (series,) = series_of(summary)
    assert (series["complete"], series["stopped_by"]) == (False, None)
    assert (series["warmup"]["iterations"], series["iterations"]) == (9, 30)
    assert series["statistics"]["median_s"] >= 0.001
    assert series["steadiness"]["kind"] != "too_few"


def test_a_child_that_measures_has_its_series_there_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(CLASS)
    done = world.run("--format=json", methods="pkg.cases.Cases.in_a_child")
    (summary,) = done.summaries()
    assert [series["name"] for series in series_of(summary)] == ["in_a_child", "loop"]


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_it_measures_on_other_versions_of_python(version: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(CLASS)
    python = find_python(version)
    done = world.run("--format=json", f"--python={python}", methods="pkg.cases.Cases.two")
    (summary,) = done.summaries()
    assert [series["iterations"] for series in series_of(summary)] == [20, 5]


TORCH = """
import torch

class Cases(Benchmark):
    def steady(self):
        compiled = torch.compile(lambda batch: batch * 2 + 1, backend="eager")
        batch = torch.ones(64, 64)
        self.measure(lambda: compiled(batch), items_per_step=64, iterations=30, warmup=2)

    def compiles_again(self):
        compiled = torch.compile(lambda batch: batch * 2 + 1, backend="eager")
        kinds = [torch.float32] * 14 + [torch.float64] + [torch.float32] * 30
        batches = iter([torch.ones(64, 64, dtype=kind) for kind in kinds])
        self.measure(lambda: compiled(next(batches)), block_size=1, iterations=30, warmup=2)
"""
TENSORFLOW = """
import tensorflow as tf

class Cases(Benchmark):
    def steady(self):
        compiled = tf.function(lambda batch: batch * 2 + 1)
        batch = tf.ones((64, 64))
        self.measure(lambda: compiled(batch), items_per_step=64, iterations=30, warmup=2)

    def compiles_again(self):
        compiled = tf.function(lambda batch: batch * 2 + 1)
        kinds = [tf.float32] * 14 + [tf.float64] + [tf.float32] * 30
        batches = iter([tf.ones((64, 64), dtype=kind) for kind in kinds])
        self.measure(lambda: compiled(next(batches)), block_size=1, iterations=30, warmup=2)

    def hidden(self):
        inner = tf.function(lambda batch: batch * 2 + 1)
        lengths = iter([2] * 14 + [3] + [2] * 30)
        class Model:
            def call(self):
                return {"out": [inner(tf.ones((next(lengths),)))]}
        self.measure(Model().call, block_size=1, iterations=30, warmup=2)

    def queued(self):
        tf.config.experimental.set_synchronous_execution(False)
        batch = tf.random.normal((700, 700))
        def share_left(**given):
            # How much of the time goes to work that the interval before had left in the queue.
            waits = []
            def step():
                began = time.perf_counter()
                tf.test.experimental.sync_devices()
                waits.append(time.perf_counter() - began)
                self.kept = batch
                for _ in range(4):  # `@` would ask for the shape, and wait for it
                    self.kept = tf.raw_ops.MatMul(a=self.kept, b=batch)
            found = self.measure(step, block_size=1, iterations=11, warmup=2, **given)
            return sorted(waits[-11:])[5] / found.median_s
        self.report_benchmark(name="shares", wall_time=1.0, metrics=[
            {"name": "waited", "value": share_left(name="waited")},
            {"name": "not_waited", "value": share_left(name="not_waited", synchronize=False)},
        ])
"""


def measured(world: World, source: str, python: str, method: str) -> dict[str, Any]:
    """The summary of a method that measures once."""
    world.write(source)
    done = world.run("--format=json", f"--python={python}", methods=f"pkg.cases.Cases.{method}")
    assert done.code == 0, done.stderr
    (summary,) = done.summaries()
    return summary


def only(summary: dict[str, Any]) -> dict[str, Any]:
    (series,) = series_of(summary)
    return series


@pytest.mark.torch
def test_a_recompilation_by_torch_is_seen(tmp_path: Path, torch_python: str) -> None:
    world = World(tmp_path)
    steady = only(measured(world, TORCH, torch_python, "steady"))
    assert set(steady["recompilations"].values()) == {0}
    assert steady["item"] == "example"
    again = only(measured(world, TORCH, torch_python, "compiles_again"))
    assert again["recompilations"]["torch_dynamo_graphs"] == 1
    assert again["steadiness"]["steady"] is False
    # The compilation is one value far above the rest, and not in the median: the first call and
    # two more are not among these.
    assert again["times_s"][14 - 3] > 3 * again["statistics"]["median_s"]


@pytest.mark.tensorflow
def test_a_retrace_by_tensorflow_is_seen(tmp_path: Path, tensorflow_python: str) -> None:
    world = World(tmp_path)
    steady = only(measured(world, TENSORFLOW, tensorflow_python, "steady"))
    assert set(steady["recompilations"].values()) == {0}
    assert steady["synchronised_by"] == ["tensorflow's context.async_wait"]
    again = only(measured(world, TENSORFLOW, tensorflow_python, "compiles_again"))
    assert again["recompilations"]["tf_function_traces"] == 1
    assert again["steadiness"]["steady"] is False
    # One that the step does not name: its tracing still takes TensorFlow's time.
    hidden = only(measured(world, TENSORFLOW, tensorflow_python, "hidden"))
    assert hidden["recompilations"]["tf_graph_building_us"] > 0
    assert hidden["steadiness"]["steady"] is False


@pytest.mark.tensorflow
def test_work_that_tensorflow_has_queued_is_waited_for(
    tmp_path: Path, tensorflow_python: str
) -> None:
    summary = measured(World(tmp_path), TENSORFLOW, tensorflow_python, "queued")
    waited, not_waited = series_of(summary)
    (shares,) = [r for r in summary["perfrun"]["reports"] if r["name"] == "Cases.shares"]
    share = {metric["name"]: metric["value"] for metric in shares["metrics"]}
    # Were only the launches timed, every step would begin by waiting for the one before.
    assert share["waited"] < 0.5 < share["not_waited"]
    assert waited["synchronised_by"] == ["tensorflow's context.async_wait"]
    assert not_waited["synchronised_by"] == []
    assert not [note for note in waited["notes"] if "still working" in note]

"""Steps of a model, in both frameworks: each one of training is an update; parts of inference.

In float16 the first gradients overflow, and such steps update nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

# One process for each framework. Its argument is the framework's folder below benchmarks/.
SCRIPT = """
import importlib, json, sys
from dataclasses import replace

framework, folder = sys.argv[1:]
Model = importlib.import_module(f"benchmarks.{framework}.model").Model
NET = {"model": "sensor_net", "batch_size": 1, "output_dir": folder, "learning_rate": 0.01}
HALF = {**NET, "dtype": "float16"}
found = {}


def first_weights(job):
    if framework == "torch":
        return next(job.network.module.parameters()).detach().double().numpy().copy()
    return job.network.model.trainable_variables[0].numpy().astype("f8")


# With an input of zeros the gradient of the first weights is zero: only the decay changes them.
for name, keywords in (("float32", NET), ("float16", HALF)):
    job = Model(**keywords, weight_decay=0.25).job(training=True)
    inputs, labels = job.arguments
    job = replace(job, arguments=(inputs * 0, labels))
    seen = [first_weights(job)]
    with job.scope():
        for _ in range(3):
            job.run()
            seen.append(first_weights(job))
    shares = [(now / seen[0])[abs(seen[0]) > 1e-3] for now in seen]
    found["decay_" + name] = [[float(one.min()), float(one.max())] for one in shares]

    job = replace(Model(**{**keywords, "learning_rate": 0}).job(training=True), loss_scaler=None)
    before = first_weights(job)
    with job.scope():
        job.run()
    found["still_" + name] = bool((first_weights(job) == before).all())


class Loud(Model):
    # Inputs so large that the first gradients overflow.
    def _built(self, way, batch_size):
        job = super()._built(way, batch_size)
        inputs, labels = job.arguments
        return replace(job, arguments=(inputs * 10, labels))


class Later(Model):
    # The third step after the scale has settled is not finite.
    def _built(self, way, batch_size):
        job = super()._built(way, batch_size)
        calls = []

        def step(inputs, labels):
            calls.append(None)
            return job.step(inputs * (float("inf") if len(calls) == 1 + 3 + 3 else 1), labels)

        return replace(job, step=step)


class Never(Model):
    def _built(self, way, batch_size):
        job = super()._built(way, batch_size)
        inputs, labels = job.arguments
        return replace(job, arguments=(inputs * float("inf"), labels))


benchmark = Loud(**HALF, iterations=5, warmup=0)
benchmark.report_benchmark = lambda **report: found.update(loud=report["extras"])
benchmark.training_float16()

job = Loud(**HALF).job(training=True)
with job.scope():
    job.loss_scaler.settle(job.run)
    changed = []
    for _ in range(5):
        before = first_weights(job)
        job.run()
        changed.append(bool((first_weights(job) != before).any()))
    job.loss_scaler.check(5)
found["changed"] = changed
found["again"] = job.loss_scaler.skipped - job.loss_scaler.skipped_before

for cls in (Later, Never):
    benchmark = cls(**HALF, iterations=5, warmup=0)
    benchmark.report_benchmark = lambda **report: None
    try:
        benchmark.training_float16()
    except RuntimeError as error:
        found[cls.__name__] = str(error)

batches = {**NET, "iterations": 30, "warmup": 2}
batches["batch_sizes"] = "1,4"
del batches["batch_size"]
benchmark = Model(**batches)
reports = found["batches"] = {}
benchmark.report_benchmark = lambda name, **report: reports.update({name: report})
benchmark.inference_batches()
for method, keywords in (
    ("inference", batches),
    ("inference_batches", {**batches, "batch_size": 2}),
    ("inference_batches", {**batches, "data": "synthetic/device"}),
):
    try:
        getattr(Model(**keywords), method)()
    except ValueError as error:
        found.setdefault("refused", []).append(str(error))
print(json.dumps(found))
"""

Steps = Callable[[str], dict[str, Any]]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    ],
)
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    python = request.getfixturevalue(f"{request.param}_python")
    folder = tmp_path_factory.mktemp("steps")
    done = subprocess.run(
        [python, "-c", SCRIPT, request.param, str(folder)],
        capture_output=True,
        text=True,
        env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weight_decay_is_part_of_the_gradient_and_of_the_momentum(
    steps: dict[str, Any], dtype: str
) -> None:
    weight, velocity = 1.0, 0.0  # as DLBS: learning rate 0.01, momentum 0.9
    for least, most in steps[f"decay_{dtype}"]:
        assert [least, most] == pytest.approx([weight, weight], rel=1e-5)
        velocity = 0.9 * velocity + 0.25 * weight
        weight -= 0.01 * velocity


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_learning_rate_of_zero_changes_no_weight(steps: dict[str, Any], dtype: str) -> None:
    assert steps[f"still_{dtype}"]


def test_five_timed_steps_in_float16_are_five_updates(steps: dict[str, Any]) -> None:
    extras = steps["loud"]
    assert extras["skipped_steps_before"] > 0, "its first gradients were meant to overflow"
    assert extras["skipped_steps"] == 0
    # Each skipped step has halved the first scale, and it is kept at a quarter of what did fit.
    halvings = extras["skipped_steps_before"] + 2
    assert extras["loss_scale"] * 2**halvings in (2**16, 2**15)  # PyTorch's, Keras'
    assert steps["changed"] == [True] * 5
    assert steps["again"] == 0


def test_a_step_that_is_skipped_among_the_timed_ones_fails_the_method(
    steps: dict[str, Any],
) -> None:
    assert steps["Later"].startswith(
        "float16: 1 steps were skipped after the scale of the loss had settled, at least one of "
        "them among the 5 timed ones; they updated nothing"
    )


def test_a_scale_that_never_settles_fails_the_method(steps: dict[str, Any]) -> None:
    assert steps["Never"].startswith(
        "float16: the scale of the loss does not settle: 32 steps were skipped"
    )


def test_the_parts_of_inference_are_measured_for_each_batch_size(steps: dict[str, Any]) -> None:
    parts = ("on_device", "cpu_to_gpu", "gpu_to_cpu", "total")
    reports = steps["batches"]
    assert list(reports) == [f"batch_{size}_{part}" for size in (1, 4) for part in parts]
    for name, report in reports.items():
        found = {metric["name"]: metric["value"] for metric in report["metrics"]}
        size = report["extras"]["batch_size"]
        assert report["wall_time"] * report["throughput"] == pytest.approx(size), name
        assert found["latency_min_s"] <= found["latency_mean_s"] <= found["latency_max_s"]
        assert found["latency_std_s"] <= found["latency_max_s"] - found["latency_min_s"]
        assert found["examples_per_second_std"] >= 0
        assert ("parameters" in found) == name.endswith("on_device")
    for size in (1, 4):
        least = {
            part: next(
                metric["value"]
                for metric in reports[f"batch_{size}_{part}"]["metrics"]
                if metric["name"] == "latency_min_s"
            )
            for part in parts
        }
        # The whole way contains the step and both copies.
        assert least["total"] > max(least[part] for part in parts[1:3])
    assert steps["refused"] == [
        "batch_sizes is for inference_batches; this method takes batch_size",
        "batch_size and batch_sizes are both given; inference_batches takes one",
        "data is 'synthetic/device'; here it must be one of synthetic/pinned, synthetic/pageable",
    ]

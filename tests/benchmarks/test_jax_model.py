"""A Flax model run for real by JAX: traced and compiled once, counted as PyTorch's are, or refused.

All of it in one process: importing JAX and compiling take the longest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from image_sets import run_code
from not_in_a_trial import NOT_IN_A_TRIAL
from several_methods import Several, method, run_several

MODEL = "benchmarks.jax.model.Model"
TINY: dict[str, object] = {"model": "sensor_net", "iterations": 3, "warmup": 1}
RUNS: dict[str, tuple[str, dict[str, object]]] = {
    # The first one is the only one with a cold start.
    "compiled": ("inference", {**TINY, "intra_threads": 1}),
    "eager": ("inference_eager", TINY),
    "half": ("inference_bfloat16", TINY),
    "trained": ("training", TINY),
    "from_the_host": ("inference", {**TINY, "data": "synthetic/pageable"}),
    # What is refused.
    "other_way": ("training", {**TINY, "forward_only": True}),
    "no_gpu": ("inference", {**TINY, "device": "gpu"}),
    "late_threads": ("inference", {**TINY, "intra_threads": 7}),
    "two_pools": ("inference", {**TINY, "inter_threads": 5}),
    "contradiction": ("inference_eager", {**TINY, "compile": "xla"}),
    "other_framework": ("inference", {**TINY, "compile": "graph"}),
    "layout": ("inference", {**TINY, "channels_last": False}),
    "shape": ("inference", {**TINY, "input_shape": "3x32x32"}),
    "too_long": ("inference", {**TINY, "model": "bert_base", "input_shape": 600}),
    "unknown": ("inference", {**TINY, "model": "resnet19"}),
}
REFUSED = {
    "other_way": "SetupError: forward_only is True; this method is the one for training",
    "no_gpu": "SetupError: device is 'gpu'; JAX ",
    "late_threads": "SetupError: intra_threads is 7, and JAX has started its threads",
    "two_pools": "SetupError: inter_threads is 5; XLA has one pool, of 1 threads, within and",
    "contradiction": "SetupError: compile is 'xla'; this method is the one for eager",
    "other_framework": "SetupError: compile is 'graph'; here it must be one of eager, xla",
    "layout": "SetupError: channels_last is false; Flax' models have the channels last",
    "shape": "SetupError: input_shape is 3x32x32; sensor_net takes features, such as 784",
    "too_long": "SetupError: input_shape is 600; it has positions for 512 tokens",
    "unknown": "SetupError: there is no model resnet19 for JAX; did you mean resnet18",
}


@pytest.fixture(scope="module")
def several(jax_python: str, tmp_path_factory: pytest.TempPathFactory) -> Several:
    runs = {
        name: method(f"{MODEL}.{way}", {"PJRT_NPROC": "1"}, **knobs)
        for name, (way, knobs) in RUNS.items()
    }
    return run_several(jax_python, tmp_path_factory.mktemp("jax"), runs)


@pytest.mark.jax
def test_what_cannot_be_measured_is_refused_in_one_line(several: Several) -> None:
    said = several.refusals
    assert set(said) == set(REFUSED), said
    for name, line in REFUSED.items():
        assert said[name].startswith(line), said[name]
        assert "\n" not in said[name]


@pytest.mark.jax
def test_each_way_of_running_a_model_is_measured_and_named(several: Several) -> None:
    runs = several.reports
    assert set(runs) == set(RUNS) - set(REFUSED)
    modes = {name: run["extras"]["compile"] for name, run in runs.items()}
    assert modes == {**dict.fromkeys(runs, "xla"), "eager": "eager"}
    assert runs["half"]["extras"]["dtype"] == "bfloat16"
    # SensorNet's matrices by hand: 784, 1024, 1024, 1024, 16.
    by_hand = 2 * (784 * 1024 + 2 * 1024 * 1024 + 1024 * 16)
    for name, run in runs.items():
        metrics, extras = run["metrics"], run["extras"]
        assert metrics["latency_median_s"] > 0, name
        assert metrics["parameters"] == metrics["trainable_parameters"] == 2_919_440
        assert ("final_loss" in metrics) == (name == "trained"), name
        assert ("compile_s" in metrics) == (name != "eager"), name
        assert extras["threads"] == extras["inter_threads"] == 1
        assert extras.get("traces") == (None if name == "eager" else 1), name
        assert ("xla_compile_s" in extras) == (name != "eager"), name
        assert {"jax_version", "flax_version", "device", "seed"} <= set(extras)
        # Backward: once more for the weights, and for the inputs of all layers but the first.
        trained = 3 * by_hand - 2 * 784 * 1024
        flops = metrics.get("flops_per_example")
        assert flops in (None, trained if name == "trained" else by_hand), name
    parts = ("transfer_in_median_s", "device_step_median_s", "transfer_out_median_s")
    assert all(runs["from_the_host"]["metrics"][part] > 0 for part in parts)


STEPS = """
import json, sys
from benchmarks.jax._support import workload
from benchmarks.jax._support.framework import jax
from benchmarks.jax.model import Model

# Training again and again: one trace, and each state is given to the device.
job = Model(model="sensor_net").job(training=True, batch_size=2)
first = jax.tree.leaves(job.step.state["weights"])[0]
losses = [float(job.run()) for _ in range(5)]
found = {"trained": [losses[-1] < losses[0], job.step.traces, first.is_deleted()]}
found["facts"] = job.facts()
found["not_of_the_steps"] = sorted(set(sys.argv[2:]) & set(sys.modules))

from benchmarks.jax._support import arithmetic
found["counts"] = {}
for name, shape in json.loads(sys.argv[1]).items():
    job = Model(model=name, input_shape=shape).job(training=True, batch_size=2)
    forward = workload.forward(job.network, eager=False)
    inputs = job.arguments[:1]
    inference = arithmetic.count(
        forward.function, forward.state, inputs, batch_size=2, training=False
    )
    both = [inference.flops_per_example, job.work().flops_per_example]
    found["counts"][name] = [job.network.parameter_counts()[0], *both]

# float16: a scale that overflows is halved, and the weights stay what they were.
job = Model(model="sensor_net", dtype="float16").job(training=True, batch_size=2)
job.step.state["scale"] = jax.numpy.float32(2.0**40)
before = [leaf.sum() for leaf in jax.tree.leaves(job.step.state["weights"])]
job.run()
after = [leaf.sum() for leaf in jax.tree.leaves(job.step.state["weights"])]
state = job.loss_scaler.read()
found["skipped"] = [state.scale, state.updates, all(a == b for a, b in zip(before, after))]
job.step.state["scale"] = jax.numpy.float32(2.0**10)
job.run()
moved = [leaf.sum() for leaf in jax.tree.leaves(job.step.state["weights"])]
found["updated"] = [job.loss_scaler.read().updates, any(a != b for a, b in zip(after, moved))]

# Loops and branches of a jaxpr.
def turns(x, y):
    return jax.lax.scan(lambda c, _: (c @ y, None), x, None, length=3)[0]
square = jax.ShapeDtypeStruct((4, 4), "float32")
count = lambda f: arithmetic.count(f, square, (square,), batch_size=1, training=False)
found["scan"] = count(turns).flops_per_example
found["while"] = count(
    lambda x, y: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c @ y, x)
).why_unknown
print(json.dumps(found))
"""
# FLOPs of one example by PyTorch's counter, forward, and forward and backward.
BY_TORCH = {
    "resnet18": ("3x64x64", 11_689_512, 297_115_648, 872_079_360),
    "mobilenet_v2": ("3x64x64", 3_504_872, 51_457_024, 152_601_600),
    "llama_small": ("16", 58_073_600, 1_337_982_976, 4_013_948_928),
    "sensor_net": ("784", 2_919_440, 5_832_704, 15_892_480),
}


@pytest.mark.jax
def test_a_step_is_traced_once_counted_as_in_pytorch_and_gives_its_state_away(
    jax_python: str,
) -> None:
    shapes = {name: shape for name, (shape, *_) in BY_TORCH.items()}
    found: dict[str, Any] = json.loads(
        run_code(jax_python, STEPS, json.dumps(shapes), *NOT_IN_A_TRIAL)
    )
    assert found["not_of_the_steps"] == []
    for name, (_, *expected) in BY_TORCH.items():
        assert found["counts"][name] == expected, name
    assert found["trained"] == [True, 1, True]
    assert found["facts"]["traces"] == 1
    assert found["facts"]["lower_s"] > 0
    assert found["facts"]["xla_compile_s"] > 0
    assert found["skipped"] == [2.0**39, 0, True]
    assert found["updated"] == [1, True]
    assert found["scan"] == 3 * 2 * 4**3
    assert "runs until a condition holds" in found["while"]


# How often all arrays are listed, with 5 and with 25 timed steps.
LISTED = """
import json, sys
import jax
from benchmarks.jax.model import Model

listed = jax.live_arrays
count = 0

def counting(platform):
    global count
    count += 1
    return listed(platform)

jax.live_arrays = counting
found = {}
for way in ("inference", "training", "training_eager"):
    for steps in (5, 25):
        before = count
        model = Model(model="sensor_net", iterations=steps, warmup=1, output_dir=sys.argv[1])
        model.count_afterwards = lambda *given, **kw: None
        getattr(model, way)()
        found.setdefault(way, []).append(count - before)
print(json.dumps(found))
"""


@pytest.mark.jax
def test_inference_waits_for_its_output_and_training_for_the_updates_behind_its_loss(
    jax_python: str, tmp_path: Path
) -> None:
    *_, last = run_code(jax_python, LISTED, str(tmp_path)).splitlines()  # after the reports
    found = json.loads(last)
    # Listing takes 5 % of a step of 200 us.
    assert {way: many - few for way, (few, many) in found.items()} == {
        "inference": 0,
        "training": 20,
        "training_eager": 20,
    }


# How much is compiled to make a network and its optimiser's state, here or in the loop by hand.
COMPILED = """
import sys
import jax
from flax import nnx

count = 0

def note(event, duration, **more):
    global count
    count += event == "/jax/core/compile/backend_compile_duration"

jax.monitoring.register_event_duration_secs_listener(note)
if sys.argv[1] == "ours":
    from benchmarks.jax.model import Model

    Model(model="mobilenet_v2", input_shape="3x64x64").job(training=True, batch_size=2)
else:
    from overhead.loops import jax_loop

    spec, shape, model = jax_loop.built("mobilenet_v2", 64)
    model.train()
    graph, *state = nnx.split(model, nnx.Param, ...)
    weights, rest = jax.tree.map(jax_loop.on_device, state)
    jax_loop.trainer(spec, graph, weights, rest, jax_loop.example(spec, shape, 2))
print(count)
"""


@pytest.mark.jax
def test_a_network_and_its_optimiser_compile_what_a_loop_by_hand_does(jax_python: str) -> None:
    ours, by_hand = (int(run_code(jax_python, COMPILED, side)) for side in ("ours", "loop"))
    assert by_hand > 50, "a kind of zeros for each size of a layer, at least"
    assert ours <= by_hand + 3, "each one more takes memory that is there until the trial's end"

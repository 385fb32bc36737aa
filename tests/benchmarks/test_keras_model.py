"""A Keras model run for real: inference and training, eager, as a graph, and compiled by XLA."""

from __future__ import annotations

import pytest
from several_methods import Several, method, run_several
from shipped_run import RunMethod, assert_plausible

MODEL = "benchmarks.tensorflow.model.Model"

TINY = {"iterations": 3, "warmup": 1}
IMAGE = {**TINY, "input_shape": "3x32x32", "batch_size": 2}
RUNS: dict[str, tuple[str, str, dict[str, object]]] = {
    # The first one is the only one with a cold start.
    "graph": (MODEL, "inference", {"model": "resnet18", **IMAGE}),
    "eager": (MODEL, "inference_eager", {"model": "resnet18", **IMAGE}),
    "compiled": (MODEL, "inference_compiled", {"model": "sensor_net", "batch_size": 4, **TINY}),
    "half": (MODEL, "inference_bfloat16", {"model": "sensor_net", **TINY}),
    "trained": (MODEL, "training", {"model": "resnet18", **IMAGE}),
    "trained_eager": (MODEL, "training_eager", {"model": "sensor_net", **TINY}),
    "trained_compiled": (MODEL, "training_compiled", {"model": "sensor_net", **TINY}),
    "trained_half": (MODEL, "training_float16", {"model": "sensor_net", **TINY}),
    "from_the_host": (
        MODEL,
        "inference",
        {"model": "sensor_net", "data": "synthetic/pageable", **TINY},
    ),
    "run_forward": (MODEL, "run", {"model": "sensor_net", "forward_only": True, **TINY}),
    "tokens": (
        MODEL,
        "inference",
        {"model": "bert_base", "input_shape": 8, "iterations": 2, "warmup": 0},
    ),
    "named": ("benchmarks.tensorflow.dlbs.DeepMNIST", "inference", TINY),
    # What is refused.
    "other_way": (MODEL, "training", {"model": "sensor_net", "forward_only": True}),
    "no_gpu": (MODEL, "inference", {"model": "sensor_net", "device": "gpu"}),
    "other_framework": (MODEL, "inference", {"model": "sensor_net", "compile": "max-autotune"}),
    "contradiction": (MODEL, "inference_eager", {"model": "sensor_net", "compile": "xla"}),
    "late_threads": (MODEL, "inference", {"model": "sensor_net", "intra_threads": 7}),
    "shape": (MODEL, "inference", {"model": "sensor_net", "input_shape": "3x32x32"}),
    "too_long": (MODEL, "inference", {"model": "bert_base", "input_shape": 600}),
    "unknown": (MODEL, "inference", {"model": "resnet19"}),
    "other_model": ("benchmarks.tensorflow.dlbs.DeepMNIST", "inference", {"model": "resnet18"}),
}
REFUSED = {
    "other_way": "SetupError: forward_only is True; this method is the one for training",
    "no_gpu": "SetupError: device is 'gpu'; TensorFlow sees 0 GPUs",
    "other_framework": "SetupError: compile is 'max-autotune'; here it must be one of eager, graph",
    "contradiction": "SetupError: compile is 'xla'; this method is the one for eager",
    "late_threads": "SetupError: intra_threads is 7, and TensorFlow has started its threads",
    "shape": "SetupError: input_shape is 3x32x32; sensor_net takes features, such as 784",
    "too_long": "SetupError: bert_base cannot be built for 600: ",
    "unknown": "SetupError: there is no model resnet19 for TensorFlow; did you mean resnet18",
    "other_model": "SetupError: DeepMNIST does not take model",
}


@pytest.fixture(scope="module")
def several(tensorflow_python: str, tmp_path_factory: pytest.TempPathFactory) -> Several:
    runs = {name: method(f"{cls}.{way}", **knobs) for name, (cls, way, knobs) in RUNS.items()}
    return run_several(tensorflow_python, tmp_path_factory.mktemp("keras"), runs)


@pytest.mark.tensorflow
def test_what_cannot_be_measured_is_refused_in_one_line(several: Several) -> None:
    said = several.refusals
    assert set(said) == set(REFUSED), said
    for name, line in REFUSED.items():
        assert said[name].startswith(line), said[name]
        assert "\n" not in said[name]


@pytest.mark.tensorflow
def test_each_way_of_running_a_model_is_measured_and_named(several: Several) -> None:
    runs = several.reports
    assert set(runs) == set(RUNS) - set(REFUSED)
    compiled = {name: run["extras"]["compile"] for name, run in runs.items()}
    assert compiled["graph"] == compiled["run_forward"] == compiled["trained"] == "graph"
    assert compiled["eager"] == compiled["trained_eager"] == "eager"
    assert compiled["compiled"] == compiled["trained_compiled"] == "xla"
    dtypes = {name: run["extras"]["dtype"] for name, run in runs.items()}
    assert (dtypes["half"], dtypes["trained_half"], dtypes["graph"]) == (
        *("bfloat16", "float16", "float32"),
    )
    for name, run in runs.items():
        metrics = run["metrics"]
        assert metrics["latency_median_s"] > 0, name
        assert ("final_loss" in metrics) == name.startswith("trained"), name
        assert ("compile_s" in metrics) == (run["extras"]["compile"] != "eager"), name
        assert ("cold_start_s" in metrics) == (name == "graph"), name
        assert metrics["model_build_s"] > 0, name


@pytest.mark.tensorflow
def test_arithmetic_is_counted_for_one_example_and_held_against_the_peak(several: Several) -> None:
    runs = several.reports
    # SensorNet's matrices by hand: 784, 1024, 1024, 1024, 16.
    by_hand = 2 * (784 * 1024 + 2 * 1024 * 1024 + 1024 * 16)
    for name in ("compiled", "half", "run_forward", "from_the_host"):
        metrics = runs[name]["metrics"]
        assert metrics["flops_per_example"] == by_hand, name
        assert metrics["macs_per_example"] == by_hand / 2
        achieved = by_hand * metrics["examples_per_second_per_device"]
        assert metrics["achieved_flops_per_second"] == pytest.approx(achieved)
        share = achieved / metrics["peak_flops_per_second"]
        assert metrics["model_flops_utilisation"] == pytest.approx(share)
    # Backward: once more for the weights, and for the inputs of all layers but the first.
    trained = 3 * by_hand - 2 * 784 * 1024
    for name in ("trained_eager", "trained_compiled", "trained_half"):
        assert runs[name]["metrics"]["flops_per_example"] == trained, name
    assert (
        runs["graph"]["metrics"]["flops_per_example"]
        == (runs["eager"]["metrics"]["flops_per_example"])
    )
    counted_by = runs["trained"]["extras"]["flops_counted_by"]
    assert counted_by.startswith("shapes of operators: convolutions, matrix products and attention")
    assert counted_by.endswith("2 per multiply-add, forward and backward pass")


@pytest.mark.tensorflow
def test_a_batch_from_the_host_shows_the_parts_of_its_way(several: Several) -> None:
    metrics = several.reports["from_the_host"]["metrics"]
    parts = ("transfer_in_median_s", "device_step_median_s", "transfer_out_median_s")
    assert all(metrics[name] > 0 for name in parts)
    assert metrics["end_to_end_median_s"] == metrics["latency_median_s"]
    assert not set(parts) & set(several.reports["graph"]["metrics"])


@pytest.mark.tensorflow
def test_extras_say_what_was_measured(several: Several) -> None:
    extras = several.reports["graph"]["extras"]
    assert extras["model"] == "resnet18"
    assert extras["model_library"] == "perfrun"
    assert extras["input_shape"] == "3x32x32"
    assert extras["batch_size"] == extras["global_batch_size"] == 2
    assert extras["device"] == "cpu"
    assert extras["threads"] >= 1
    assert extras["data"] == "synthetic/device"
    assert {"tensorflow_version", "keras_version", "seed", "channels_last"} <= set(extras)
    assert several.reports["tokens"]["extras"]["input_shape"] == "8"


@pytest.mark.tensorflow
def test_a_cold_start_holds_import_build_and_first_step(
    run_method: RunMethod, tensorflow_python: str
) -> None:
    run = run_method(
        *(f"{MODEL}.inference", "--model=sensor_net", "--num_batches=4", "--intra_threads=1"),
        python=tensorflow_python,
    )
    assert_plausible(run, examples_per_step=1, iterations=4)
    metrics = run.metrics
    parts = ("framework_import_s", "model_build_s", "first_call_s")
    assert sum(metrics[name] for name in parts) < metrics["cold_start_s"] < run.process_s
    assert run.extras["threads"] == 1
    assert run.bounds("parameters") == (2_919_440, 2_919_440)

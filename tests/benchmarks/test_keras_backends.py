"""The same Keras model on each backend: one process each, because importing takes the longest."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from not_in_a_trial import NOT_IN_A_TRIAL
from shipped_run import ROOT

PROGRAM = """
import json, sys
import numpy as np
from benchmarks.keras.model import Model, keras

said, jobs = {}, {}
for way in ("inference", "training"):
    job = Model(model="sensor_net").job(training=way == "training", batch_size=2)
    with job.scope():
        results = [job.run() for _ in range(4)]
        job.wait(results[-1])
    trained = way == "training"
    if trained:
        said["learned"] = float(results[-1]) < float(results[0])
    else:
        job.check(results[-1])
    jobs[way] = job
said["not_of_the_steps"] = sorted(set(sys.argv[1:]) & set(sys.modules))
for way, job in jobs.items():
    said[way] = [job.work().flops_per_example, job.is_compiled, job.network.parameter_counts()[1]]
said["facts"] = job.facts()
if "jax" in sys.modules:  # built and counted alike on each backend, so one will do
    pixels = Model(model="mobilenet_v2", input_shape="3x32x32").job(training=True, batch_size=2)
    said["images"] = [pixels.work().flops_per_example, pixels.network.parameter_counts()[1]]
# Of one step with momentum: what weight decay adds to the gradients moves the weights at once.
def moved(decay):
    model = Model(model="sensor_net", compile="eager", weight_decay=decay, learning_rate=0.02)
    job = model.job(training=True, batch_size=2)
    weights = job.network.model.trainable_variables
    before = as_array(weights[0])
    with job.scope():
        job.wait(job.run())
    weights = job.step.state[0] if hasattr(job.step, "state") else weights
    return before, as_array(weights[0]) - before

def as_array(weight):
    return np.array(keras.ops.convert_to_numpy(weight))

(before, plain), (_, with_decay) = moved(0), moved(0.5)
error = with_decay - (plain - 0.02 * 0.5 * before)
said["decay"] = [float(abs(values).max()) for values in (error, plain, plain - with_decay)]
try:
    Model(model="sensor_net").training_float16()
except ValueError as error:
    said["refused"] = str(error)
said["loaded"] = [name for name in ("tensorflow", "torch", "jax", "flax") if name in sys.modules]
print(json.dumps(said))
"""


@pytest.mark.parametrize(
    ("backend", "compiled"),
    [
        pytest.param("jax", True, marks=pytest.mark.jax),
        pytest.param("torch", False, marks=pytest.mark.torch),
        pytest.param("tensorflow", True, marks=pytest.mark.tensorflow),
    ],
)
def test_keras_runs_trains_and_counts_alike_on_the_backend_that_is_named(
    backend: str, compiled: bool, request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue(f"{backend}_python")
    done = subprocess.run(
        [python, "-c", PROGRAM, *NOT_IN_A_TRIAL],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "KERAS_BACKEND": backend,
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["inference"] == [5_832_704, compiled, 2_919_440]
    assert said["training"] == [15_892_480, compiled, 2_919_440]
    assert said["learned"]
    assert said["not_of_the_steps"] == []
    off, by_loss, by_decay = said["decay"]
    assert min(by_loss, by_decay) > 1e-4
    assert off < 1e-6
    if backend == "jax":
        assert said["images"] == [43_910_400, 3_504_872]  # as PyTorch's of 32 pixels
    facts = said["facts"]
    assert (facts["keras_backend"], facts["dtype"], facts["channels_last"]) == (
        *(backend, "float32", "true"),
    )
    assert facts["threads"] >= 1
    assert said["refused"].startswith("training in float16 needs a scale of the loss")
    # Keras with JAX does without Flax: the memory that its import takes is not the model's.
    assert said["loaded"] == [backend]

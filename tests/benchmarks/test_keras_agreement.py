"""The latency that a Keras benchmark reports is that of a loop written by hand."""

from __future__ import annotations

import json
import subprocess

import pytest
from shipped_run import ROOT

# Rounds of both in turns, in one process: what else the machine does falls on both. The loop by
# hand uses nothing of ours but perf_counter's name for the time; it fetches every result.
IN_TURNS = """
import json, statistics, sys, time
from benchmarks.tensorflow.model import Model
import tensorflow as tf

SIZES, BATCH, STEPS, ROUNDS = (2500, 2000, 1500, 1000, 500), 64, 15, 8

# One thread: several wait for each other, and on a busy machine long.
tf.config.threading.set_intra_op_parallelism_threads(1)
layers = [tf.keras.layers.Dense(size, activation="relu") for size in SIZES]
by_hand = tf.keras.Sequential([tf.keras.Input((784,)), *layers, tf.keras.layers.Dense(10)])
examples = tf.random.normal((BATCH, 784))

@tf.function
def predict(batch):
    return by_hand(batch, training=False)

def loop():
    times_s = []
    for _ in range(STEPS):
        began_s = time.perf_counter()
        predict(examples).numpy()
        times_s.append(time.perf_counter() - began_s)
    return statistics.median(times_s)

class Ours(Model):
    def report_benchmark(self, wall_time, metrics, **_):
        found = {metric["name"]: metric["value"] for metric in metrics}
        assert wall_time == found["latency_median_s"]
        ours.append(wall_time)

ours, theirs = [], []
loop()
for _ in range(ROUNDS):
    Ours(model="deep_mnist", batch_size=BATCH, iterations=STEPS, warmup=3).inference()
    theirs.append(loop())
print(json.dumps([ours, theirs]))
"""
TOLERANCE = 0.05


@pytest.mark.tensorflow
def test_our_latency_is_that_of_a_loop_written_by_hand(tensorflow_python: str) -> None:
    done = subprocess.run(
        [tensorflow_python, "-c", IN_TURNS],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = json.loads(done.stdout.splitlines()[-1])
    ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
    # All eight ratios: an interval that holds their true median with 99 % (order statistics).
    assert ratios[0] <= 1 + TOLERANCE, ratios
    assert ratios[-1] >= 1 - TOLERANCE, ratios

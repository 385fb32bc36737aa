"""A trial's peak memory beside that of the same steps in a loop written by hand.

Counting the arithmetic and measuring the device's peak were a part of it once: 40 %.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from not_in_a_trial import NOT_IN_A_TRIAL
from worlds import World

# perfrun's and the benchmark's own Python code takes 5 MiB. The rest is glibc's: how much of freed
# memory it keeps, in which thread's arena, differs by up to 5 MiB between runs of either loop.
OWN_BYTES = 10 * 2**20
SHARE = 1.02
STEPS = 6
CLASSES = {
    "torch": """
import json
from benchmarks.torch.model import Model
""",
    "tensorflow": """
import json
from benchmarks.tensorflow.model import Model
""",
}
NET = """
class Net(Model, model="deep_mnist"):
    def training(self):
        super().training()
        with open({path!r}, "w") as file:
            json.dump(sorted(sys.modules), file)
"""
BY_HAND = {
    "torch": """
import torch
sizes = (784, 2500, 2000, 1500, 1000, 500, 10)
layers = []
for inner, outer in zip(sizes, sizes[1:]):
    layers += [torch.nn.Linear(inner, outer), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers[:-1])
inputs, labels = torch.randn(8, 784), torch.randint(10, (8,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
""",
    "tensorflow": """
import tensorflow as tf
layers = [tf.keras.layers.Dense(size, activation="relu") for size in (2500, 2000, 1500, 1000, 500)]
model = tf.keras.Sequential([tf.keras.Input((784,)), *layers, tf.keras.layers.Dense(10)])
inputs, labels = tf.random.normal((8, 784)), tf.random.uniform((8,), maxval=10, dtype=tf.int32)
optimizer = tf.keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)
optimizer.build(model.trainable_variables)
cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
@tf.function
def step(inputs, labels):
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = tf.reduce_mean(cross_entropy(labels=labels, logits=logits))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
for _ in range(STEPS):
    step(inputs, labels)
""",
}
MARK = """
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(int(line.split()[1]) * 1024)
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    ],
)
def test_peak_memory_is_that_of_a_loop_written_by_hand(
    framework: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    python = str(request.getfixturevalue(f"{framework}_python"))
    by_hand = subprocess.run(
        [python, "-c", f"STEPS = {STEPS}" + BY_HAND[framework] + MARK],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )
    assert by_hand.returncode == 0, by_hand.stderr
    expected = int(by_hand.stdout.splitlines()[-1])

    world = World(tmp_path)
    modules = tmp_path / "modules.json"
    world.write(CLASSES[framework] + NET.format(path=str(modules)))
    done = world.run(
        *(f"--python={python}", "--format=json", "--"),
        *(f"--num_batches={STEPS - 2}", "--num_warmup_batches=1"),
        methods="pkg.cases.Net.training",
        **ENVIRONMENT,
    )
    assert done.statuses == ["passed"], done.stderr
    (summary,) = done.summaries()
    found = summary["perfrun"]["memory"]
    for name in ("process_rss", "method_rss", "tree_pss"):
        bytes_ = found[name]["bytes"]
        assert expected / SHARE - OWN_BYTES < bytes_ < expected * SHARE + OWN_BYTES, name
    assert not set(NOT_IN_A_TRIAL) & set(json.loads(modules.read_text()))
    # It was counted all the same.
    metrics = {metric["name"]: metric["value"] for metric in summary["benchmark_result"]["metrics"]}
    assert metrics["flops_per_example"] > 2 * 2 * 11_972_510
    assert metrics["model_flops_utilisation"] > 0

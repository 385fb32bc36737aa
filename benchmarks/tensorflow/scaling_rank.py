"""One process of a scaling benchmark: a worker of tf.distribute that trains when it is told to.

A line on standard input is a turn; the times of its steps become a line of the rank's file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

READY = "ready"  # the file's first line: built, compiled, warm


def main(order: dict[str, Any]) -> None:
    """Carry out the order; each line is written as soon as it is known."""
    # TensorFlow reads its part in the cluster from the environment, when it makes the strategy.
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": order["addresses"]},
            "task": {"type": "worker", "index": order["index"]},
        }
    )
    step, facts = _prepared(order)
    with Path(order["file"]).open("a", encoding="utf-8", buffering=1) as file:
        file.write(json.dumps({READY: facts}) + "\n")
        for line in sys.stdin:
            step()  # untimed: ranks that communicate leave it together
            times_ns = [_timed_ns(step) for _ in range(order["steps_per_round"])]
            file.write(json.dumps({"round": int(line), "step_ns": times_ns}) + "\n")


def _timed_ns(step: Callable[[], float]) -> int:
    began_ns = time.perf_counter_ns()
    step()
    return time.perf_counter_ns() - began_ns


def _prepared(order: dict[str, Any]) -> tuple[Callable[[], float], dict[str, Any]]:
    """Build the model and warm a step of it up; it returns the loss, so that its work is done."""
    from benchmarks.tensorflow import building, catalogue, steps
    from benchmarks.tensorflow.framework import tf

    tf.config.threading.set_intra_op_parallelism_threads(order["threads_per_rank"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    replicas = strategy.num_replicas_in_sync
    spec = catalogue.find(order["model"])
    tf.keras.utils.set_random_seed(order["seed"])
    with strategy.scope(), building.precision(order["dtype"]):
        model = spec.build(tuple(order["input_shape"] or spec.input_shape))
        optimizer = tf.keras.optimizers.SGD(steps.LEARNING_RATE, steps.MOMENTUM)
        optimizer.build(model.trainable_variables)
    tf.random.set_seed(order["seed"] + order["index"])  # every rank has examples of its own
    inputs = steps.example_inputs(spec, model, order["batch_size"])
    labels = steps.example_labels(spec, inputs)

    def replica(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = steps.loss_of(spec, model(inputs, training=True), labels)
            # The optimizer adds the replicas' gradients up; their mean is wanted.
            shared = loss / replicas
        gradients = tape.gradient(shared, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    run = tf.function(lambda: strategy.run(replica, args=(inputs, labels)))

    def step() -> float:
        return float(run().numpy())

    for _ in range(1 + order["warmup"]):
        step()
    operations = run.get_concrete_function().graph.get_operations()
    return step, {
        "replicas": replicas,
        "collectives": sum(operation.type.startswith("Collective") for operation in operations),
        # Equal in all ranks when they have trained one model, whatever their examples.
        "weights": float(
            tf.add_n([tf.reduce_sum(tf.abs(weight)) for weight in model.trainable_variables])
        ),
        "tensorflow_version": tf.__version__,
    }

"""Training a small network on real data to a known accuracy, by Keras."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from benchmarks.configured import Configured
from benchmarks.datasets.scikit import Split, Task, learned, load
from benchmarks.tensorflow.framework import tf

WARMUP = 3  # epochs, after the first and before the timed ones
TAKES = ("iterations", "warmup", "batch_size", "seed")


class Classifier(Configured, ABC):
    """A task of scikit-learn's data. One timed step is an epoch; `iterations` counts epochs."""

    task: ClassVar[Task]
    takes = TAKES

    def training(self) -> None:
        """All epochs of the task, then the accuracy on data that it has never seen."""
        task, seed = self.task, self.settings.value("seed", 0)
        split = load(task, seed)
        tf.keras.utils.set_random_seed(seed)
        network = _network(split.features, task)
        train = _train_step(network, split.features, task)
        features = tf.constant(split.train_features)
        labels = tf.constant(split.train_labels)
        count = len(split.train_labels)
        size = self.settings.value("batch_size", task.batch_size or count)
        shuffle = np.random.default_rng(seed)

        def epoch() -> Any:
            for chosen in _batches(count, size, shuffle):
                loss = train(tf.gather(features, chosen), tf.gather(labels, chosen))
            return loss

        warmup = self.settings.value("warmup", WARMUP)
        timed = self.measure(
            epoch,
            item="epoch",
            warmup=warmup,
            iterations=self.settings.value("iterations", max(1, task.epochs - 1 - warmup)),
            block_size=1,
            report=False,
        )
        epochs = 1 + warmup + timed.iterations
        self.report_benchmark(
            **timed.report_arguments(
                metrics=learned(task, epochs=epochs, **_figures(network, split)),
                extras={
                    "batch_size": size,
                    "epochs": epochs,
                    "train_examples": count,
                    "test_examples": len(split.test_labels),
                    "seed": seed,
                    "tensorflow_version": tf.__version__,
                    "keras_version": tf.keras.__version__,
                },
            )
        )


def _network(features: int, task: Task) -> Any:
    """Dense layers with ReLU between them; no softmax, which is part of the loss here."""
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in task.hidden]
    network = tf.keras.Sequential([*layers, tf.keras.layers.Dense(task.classes)])
    network.build((None, features))
    return network


def _train_step(network: Any, features: int, task: Task) -> Any:
    optimizer = tf.keras.optimizers.Adam(task.learning_rate)
    optimizer.build(network.trainable_variables)  # variables may not be made inside the graph
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train(examples: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, network(examples, training=True))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    # One trace for all batches, the shorter last one included.
    shapes = (
        tf.TensorSpec((None, features), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    return tf.function(train, input_signature=shapes)


def _batches(count: int, size: int, shuffle: np.random.Generator) -> Iterator[Any]:
    order = np.arange(count) if size >= count else shuffle.permutation(count)
    for begin in range(0, count, size):
        yield order[begin : begin + size]


def _figures(network: Any, split: Split) -> dict[str, float]:
    test_loss, accuracy = _scores(network, split.test_features, split.test_labels)
    train_loss, _ = _scores(network, split.train_features, split.train_labels)
    return {"accuracy": accuracy, "train_loss": train_loss, "test_loss": test_loss}


def _scores(network: Any, features: Any, labels: Any) -> tuple[float, float]:
    output = network(features, training=False)
    loss = tf.keras.losses.sparse_categorical_crossentropy(labels, output, from_logits=True)
    right = np.argmax(output.numpy(), axis=1) == labels
    return float(np.mean(loss.numpy())), float(np.mean(right))

"""Training a small network on real data to a known accuracy, by Keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks._support.datasets.learning import Split, Task
from benchmarks.tensorflow._support.framework import KERAS_VERSION, tf


class Learner:
    """A network of dense layers, trained with Adam."""

    def __init__(self, task: Task, split: Split, batch_size: int, seed: int) -> None:
        tf.keras.utils.set_random_seed(seed)
        self._split = split
        self._batch_size = batch_size
        self._network = _network(split.features, task)
        self._train = _train_step(self._network, split.features, task)
        self._features = tf.constant(split.train_features)
        self._labels = tf.constant(split.train_labels)
        self._shuffle = np.random.default_rng(seed)

    def epoch(self) -> Any:
        for chosen in self._batches():
            loss = self._train(tf.gather(self._features, chosen), tf.gather(self._labels, chosen))
        return loss

    def scores(self) -> dict[str, float]:
        split = self._split
        test_loss, accuracy = self._scored(split.test_features, split.test_labels)
        train_loss, _ = self._scored(split.train_features, split.train_labels)
        return {"accuracy": accuracy, "train_loss": train_loss, "test_loss": test_loss}

    def facts(self) -> dict[str, Any]:
        return {"tensorflow_version": tf.__version__, "keras_version": KERAS_VERSION}

    def _batches(self) -> Iterator[Any]:
        count = len(self._split.train_labels)
        whole = self._batch_size >= count
        order = np.arange(count) if whole else self._shuffle.permutation(count)
        for begin in range(0, count, self._batch_size):
            yield order[begin : begin + self._batch_size]

    def _scored(self, features: Any, labels: Any) -> tuple[float, float]:
        output = self._network(features, training=False)
        loss = tf.keras.losses.sparse_categorical_crossentropy(labels, output, from_logits=True)
        right = np.argmax(output.numpy(), axis=1) == labels
        return float(np.mean(loss.numpy())), float(np.mean(right))


def _network(features: int, task: Task) -> Any:
    """Build dense layers with ReLU between them; softmax is part of the loss here."""
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

    # One trace serves all batches, the shorter last one included.
    shapes = (
        tf.TensorSpec((None, features), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    return tf.function(train, input_signature=shapes)

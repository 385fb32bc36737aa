"""Training a small network on real data to a known accuracy, by Keras."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks._support.datasets.learning import Recipe, Split, Task
from benchmarks._support.knobs import Settings
from benchmarks.tensorflow._support import placement
from benchmarks.tensorflow._support.framework import KERAS_VERSION, tf


class Learner:
    """A network of dense layers, trained with Adam."""

    suffix: ClassVar[str] = ".keras"

    def __init__(self, task: Task, split: Split, recipe: Recipe, settings: Settings) -> None:
        self._place = placement.choose(settings)
        tf.keras.utils.set_random_seed(recipe.seed)
        self._split = split
        self._recipe = recipe
        with self.scope():
            self._network = _network(split.features, task)
            self._train = _train_step(self._network, split.features, task, recipe)
            self._features = tf.constant(split.train_features)
            self._labels = tf.constant(split.train_labels)
            self._test_features = tf.constant(split.test_features)
        self._shuffle = np.random.default_rng(recipe.seed)

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self._place.scope()
        return scope

    def epoch(self) -> Any:
        for chosen in self._batches():
            loss = self._train(tf.gather(self._features, chosen), tf.gather(self._labels, chosen))
        return loss

    def scored(self, features: Any, labels: Any) -> tuple[float, float]:
        output = self._network(features, training=False)
        if self._recipe.softmax_twice:
            output = tf.nn.softmax(output)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=output)
        right = np.argmax(output.numpy(), axis=1) == labels
        return float(np.mean(loss.numpy())), float(np.mean(right))

    def facts(self) -> dict[str, Any]:
        return {
            "device": self._place.description,
            **placement.threads(),
            "tensorflow_version": tf.__version__,
            "keras_version": KERAS_VERSION,
        }

    def save(self, path: str) -> None:
        self._network.save(path)

    def load(self, path: str) -> Any:
        return tf.keras.models.load_model(path)

    def predict(self, network: Any) -> NDArray[np.float32]:
        output = self._chosen(network)(self._test_features, training=False)
        found: NDArray[np.float32] = tf.nn.softmax(output).numpy()
        return found

    def _chosen(self, network: Any) -> Any:
        return self._network if network is None else network

    def _batches(self) -> Iterator[Any]:
        count = len(self._split.train_labels)
        whole = self._recipe.batch_size >= count
        order = np.arange(count) if whole else self._shuffle.permutation(count)
        for begin in range(0, count, self._recipe.batch_size):
            yield order[begin : begin + self._recipe.batch_size]


def _network(features: int, task: Task) -> Any:
    """Build dense layers with ReLU between them; softmax is part of the loss here."""
    layers = [tf.keras.layers.Dense(units, activation="relu") for units in task.hidden]
    network = tf.keras.Sequential([*layers, tf.keras.layers.Dense(task.classes)])
    network.build((None, features))
    return network


def _train_step(network: Any, features: int, task: Task, recipe: Recipe) -> Any:
    optimizer = tf.keras.optimizers.Adam(task.learning_rate)
    optimizer.build(network.trainable_variables)  # variables may not be made inside the graph
    loss_of = _loss_after_softmax if recipe.softmax_twice else _loss

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


def _loss(labels: Any, output: Any) -> Any:
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, output)


def _loss_after_softmax(labels: Any, output: Any) -> Any:
    # By TensorFlow's own loss: that of Keras finds the softmax before it, and goes around it.
    shares = tf.nn.softmax(output)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=shares)
    return tf.reduce_mean(losses)

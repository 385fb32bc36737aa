"""Training a small network on real data to a known accuracy, by JAX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks._support.datasets.learning import Split, Task
from benchmarks.jax._support import placement
from benchmarks.jax._support.flax_library import FLAX_VERSION, nnx, optax
from benchmarks.jax._support.framework import jax
from benchmarks.jax._support.nets.feedforward import perceptron
from benchmarks.jax._support.nets.layers import Layers

jnp = jax.numpy


class Learner:
    """A network of linear layers, trained with Adam; a step is compiled by XLA."""

    def __init__(self, task: Task, split: Split, batch_size: int, seed: int) -> None:
        network = perceptron(task.hidden, task.classes, (split.features,), Layers("float32", seed))
        self._structure, weights = nnx.split(network)
        self._split = split
        self._batch_size = batch_size
        self._weights = jax.tree.map(jnp.array, weights)
        self._optimizer = optax.adam(task.learning_rate)
        self._state = self._optimizer.init(self._weights)
        self._features, self._labels = (
            jnp.array(split.train_features),
            jnp.array(split.train_labels),
        )
        self._shuffle = np.random.default_rng(seed)
        self._train = jax.jit(self._step, donate_argnums=(0, 1))
        self._test = jax.jit(self._loss)

    def epoch(self) -> Any:
        for chosen in self._batches():
            features, labels = self._features[chosen], self._labels[chosen]
            self._weights, self._state, loss = self._train(
                self._weights, self._state, features, labels
            )
        return loss

    def scores(self) -> dict[str, float]:
        split = self._split
        test_loss, accuracy = self._scored(split.test_features, split.test_labels)
        train_loss, _ = self._scored(split.train_features, split.train_labels)
        return {"accuracy": accuracy, "train_loss": train_loss, "test_loss": test_loss}

    def facts(self) -> dict[str, Any]:
        return {
            "device": jax.default_backend(),
            "threads": placement.threads(),
            "jax_version": jax.__version__,
            "flax_version": FLAX_VERSION,
        }

    def _batches(self) -> Iterator[Any]:
        count = len(self._labels)
        if self._batch_size >= count:
            yield slice(None)
            return
        order = self._shuffle.permutation(count)
        for begin in range(0, count, self._batch_size):
            yield order[begin : begin + self._batch_size]

    def _loss(self, weights: Any, features: Any, labels: Any) -> tuple[Any, Any]:
        output = nnx.merge(self._structure, weights)(features)
        losses = optax.softmax_cross_entropy_with_integer_labels(output, labels)
        return losses.mean(), output

    def _step(self, weights: Any, state: Any, features: Any, labels: Any) -> Any:
        (loss, _), gradients = jax.value_and_grad(self._loss, has_aux=True)(
            weights, features, labels
        )
        changes, state = self._optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, changes), state, loss

    def _scored(self, features: Any, labels: Any) -> tuple[float, float]:
        loss, output = self._test(self._weights, features, labels)
        return float(loss), float((np.argmax(output, axis=1) == labels).mean())

"""Training a small network on real data to a known accuracy, by JAX."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks._support.datasets.learning import Recipe, Split, Task
from benchmarks._support.knobs import Settings
from benchmarks.jax._support import placement
from benchmarks.jax._support.flax_library import FLAX_VERSION, nnx, optax
from benchmarks.jax._support.framework import jax
from benchmarks.jax._support.nets.feedforward import perceptron
from benchmarks.jax._support.nets.layers import Layers
from perfrun import SetupError

jnp = jax.numpy


class Learner:
    """A network of linear layers, trained with Adam; a step is compiled by XLA."""

    suffix: ClassVar[str] = ".npz"

    def __init__(self, task: Task, split: Split, recipe: Recipe, settings: Settings) -> None:
        self._place = placement.choose(settings)
        self._split = split
        self._recipe = recipe
        layers = Layers("float32", recipe.seed)
        network = perceptron(task.hidden, task.classes, (split.features,), layers)
        self._structure, weights = nnx.split(network)
        self._optimizer = optax.adam(task.learning_rate)
        with self.scope():
            self._weights = jax.tree.map(jnp.array, weights)
            self._state = self._optimizer.init(self._weights)
            self._features = jnp.array(split.train_features)
            self._labels = jnp.array(split.train_labels)
        self._shuffle = np.random.default_rng(recipe.seed)
        self._train = jax.jit(self._step, donate_argnums=(0, 1))
        self._test = jax.jit(self._loss)

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self._place.scope()
        return scope

    def epoch(self) -> Any:
        for chosen in self._batches():
            features, labels = self._features[chosen], self._labels[chosen]
            self._weights, self._state, loss = self._train(
                self._weights, self._state, features, labels
            )
        return loss

    def scored(self, features: Any, labels: Any) -> tuple[float, float]:
        loss, output = self._test(self._weights, features, labels)
        right = np.argmax(np.asarray(output), axis=1) == np.asarray(labels)
        return float(loss), float(np.mean(right))

    def facts(self) -> dict[str, Any]:
        return {
            "device": self._place.description,
            "threads": placement.threads(),
            "jax_version": jax.__version__,
            "flax_version": FLAX_VERSION,
        }

    def save(self, path: str) -> None:
        np.savez(path, *map(np.asarray, jax.tree.leaves(self._weights)))

    def load(self, path: str) -> Any:
        leaves, form = jax.tree.flatten(self._weights)
        with np.load(path, allow_pickle=False) as found, self.scope():
            read = [jnp.array(found[f"arr_{number}"]) for number in range(len(leaves))]
        if [each.shape for each in read] != [each.shape for each in leaves]:
            raise SetupError(f"{path}: holds weights of another network")
        return jax.tree.unflatten(form, read)

    def predict(self, network: Any) -> NDArray[np.float32]:
        weights = self._weights if network is None else network
        output = nnx.merge(self._structure, weights)(self._split.test_features)
        return np.asarray(jax.nn.softmax(output), np.float32)

    def _batches(self) -> Iterator[Any]:
        count, size = len(self._labels), self._recipe.batch_size
        if size >= count:
            yield slice(None)
            return
        order = self._shuffle.permutation(count)
        for begin in range(0, count, size):
            yield order[begin : begin + size]

    def _loss(self, weights: Any, features: Any, labels: Any) -> tuple[Any, Any]:
        output = nnx.merge(self._structure, weights)(features)
        if self._recipe.softmax_twice:
            output = jax.nn.softmax(output)
        losses = optax.softmax_cross_entropy_with_integer_labels(output, labels)
        return losses.mean(), output

    def _step(self, weights: Any, state: Any, features: Any, labels: Any) -> Any:
        (loss, _), gradients = jax.value_and_grad(self._loss, has_aux=True)(
            weights, features, labels
        )
        changes, state = self._optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, changes), state, loss

"""Iris, learned by JAX: 150 flowers, 4 lengths, 3 species."""

from __future__ import annotations

from benchmarks._support.datasets.learning import IRIS, AsPublished
from benchmarks.jax._support.learner import Learner


class Iris(AsPublished):
    """Three linear layers 50-50-3, Adam 0.001, 100 epochs of the whole training set."""

    task = IRIS
    learner = Learner

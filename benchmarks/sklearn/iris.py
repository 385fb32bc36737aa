"""Iris, learned by scikit-learn: 150 flowers, 4 lengths, 3 species."""

from __future__ import annotations

from benchmarks._support.datasets.learning import IRIS, TRAINING, Learning
from benchmarks.sklearn._support.learner import Learner


class Iris(Learning):
    """Three linear layers 50-50-3, Adam 0.001, 100 epochs of the whole training set."""

    task = IRIS
    learner = Learner
    takes = (*TRAINING, "intra_threads")  # of its matrix products; it has no other device

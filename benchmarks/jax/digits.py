"""Handwritten digits, learned by JAX: 1797 images of 8 x 8 pixels, 10 classes."""

from __future__ import annotations

from benchmarks._support.datasets.learning import DIGITS, Learning
from benchmarks.jax._support.learner import Learner


class Digits(Learning):
    """Three linear layers 128-64-10, Adam 0.001, 30 epochs in batches of 64."""

    task = DIGITS
    learner = Learner

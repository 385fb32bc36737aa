"""Handwritten digits, learned by PyTorch: 1797 images of 8 x 8 pixels, 10 classes."""

from __future__ import annotations

from benchmarks.datasets.scikit import DIGITS
from benchmarks.torch.classifier import Classifier


class Digits(Classifier):
    """Three linear layers 128-64-10, Adam 0.001, 30 epochs in batches of 64."""

    task = DIGITS

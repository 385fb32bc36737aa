"""The fully connected networks of DLBS (HPE's Deep Learning Benchmarking Suite)."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def deep_mnist() -> nn.Module:
    """Six layers for handwritten digits, after Ciresan et al., arXiv:1003.0358: 11,972,510."""
    return _dense((784, 2500, 2000, 1500, 1000, 500, 10), nn.ReLU)


def acoustic_model() -> nn.Module:
    """The hybrid speech recogniser: frames of 540 numbers, 8192 phone states: 34,678,784."""
    return _dense((540, *(2048,) * 5, 8192), nn.ReLU)


def sensor_net() -> nn.Module:
    """Three hidden layers of 1024, 16 classes: 2,919,440 parameters."""
    return _dense((784, *(1024,) * 3, 16), nn.ReLU)


def _dense(sizes: tuple[int, ...], activation: type[nn.Module]) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])

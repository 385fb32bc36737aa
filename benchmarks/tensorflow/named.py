"""The base of classes for one model each."""

from __future__ import annotations

from abc import ABC

from benchmarks.tensorflow.model import KNOBS, Model


class Named(Model, ABC):
    """`Model` with the model fixed: `model` is no knob of it."""

    takes = tuple(name for name in KNOBS if name != "model")

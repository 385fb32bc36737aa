"""The nets that DLBS had and no library has."""

from __future__ import annotations

from benchmarks.jax.model import Model


class DeepMNIST(Model, model="deep_mnist"):
    """deep_mnist: 11,972,510 parameters."""


class AcousticModel(Model, model="acoustic_model"):
    """acoustic_model: 34,678,784 parameters."""


class SensorNet(Model, model="sensor_net"):
    """sensor_net: 2,919,440 parameters."""


class AlexNet(Model, model="alexnet"):
    """alexnet: 62,378,344 parameters."""


class AlexNetOWT(Model, model="alexnet_owt"):
    """alexnet_owt: 61,100,840 parameters."""


class Overfeat(Model, model="overfeat"):
    """overfeat: 145,920,872 parameters."""

"""The nets that DLBS had and no library has."""

from __future__ import annotations

from benchmarks.torch.model import Model


class DeepMNIST(Model, model="deep_mnist"):
    """Six fully connected layers for handwritten digits: 11,972,510 parameters."""


class AcousticModel(Model, model="acoustic_model"):
    """Fully connected speech recogniser, 540 features: 34,678,784 parameters."""


class SensorNet(Model, model="sensor_net"):
    """Three hidden layers of 1024: 2,919,440 parameters."""


class AlexNet(Model, model="alexnet"):
    """The AlexNet of the paper, without groups: 62,378,344 parameters, 227 pixels."""


class AlexNetOWT(Model, model="alexnet_owt"):
    """AlexNet after "one weird trick": 61,100,840 parameters, 227 pixels."""


class Overfeat(Model, model="overfeat"):
    """OverFeat: 145,920,872 parameters, 231 pixels."""

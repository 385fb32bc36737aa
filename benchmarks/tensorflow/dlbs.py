"""The nets that DLBS had and no library has."""

from __future__ import annotations

from benchmarks.tensorflow.named import Named


class DeepMNIST(Named):
    """Six fully connected layers for handwritten digits: 11,972,510 parameters."""

    model_name = "deep_mnist"


class AcousticModel(Named):
    """Fully connected speech recogniser, 540 features: 34,678,784 parameters."""

    model_name = "acoustic_model"


class SensorNet(Named):
    """Three hidden layers of 1024: 2,919,440 parameters."""

    model_name = "sensor_net"


class AlexNet(Named):
    """The AlexNet of the paper, without groups: 62,378,344 parameters, 227 pixels."""

    model_name = "alexnet"


class AlexNetOWT(Named):
    """AlexNet after "one weird trick": 61,100,840 parameters, 227 pixels."""

    model_name = "alexnet_owt"


class Overfeat(Named):
    """OverFeat: 145,920,872 parameters, 231 pixels."""

    model_name = "overfeat"

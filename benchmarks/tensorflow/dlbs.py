"""The nets that DLBS had and no library has."""

from __future__ import annotations

from benchmarks.tensorflow.model import NamedModel


class DeepMNIST(NamedModel):
    """DeepMNIST of DLBS."""

    model_name = "deep_mnist"


class AcousticModel(NamedModel):
    """AcousticModel of DLBS."""

    model_name = "acoustic_model"


class SensorNet(NamedModel):
    """SensorNet of DLBS."""

    model_name = "sensor_net"


class AlexNet(NamedModel):
    """AlexNet of DLBS."""

    model_name = "alexnet"


class AlexNetOWT(NamedModel):
    """AlexNetOWT of DLBS."""

    model_name = "alexnet_owt"


class Overfeat(NamedModel):
    """Overfeat of DLBS."""

    model_name = "overfeat"

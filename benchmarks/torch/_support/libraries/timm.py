"""Models of timm, `timm:NAME`: any name that `timm.create_model` takes, with random weights."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.torch._support.libraries import torchvision
from benchmarks.torch._support.libraries.torchvision import load_package

PREFIX = "timm"

# Published in timm's results table of ImageNet, in millions there.
_PARAMETERS = {
    "efficientnet_b0": 5_288_548,
    "resnet50": 25_557_032,
    "inception_v4": 42_679_816,
    "resnet200": 64_673_832,
    "vit_base_patch16_224": 86_567_656,
}


def names() -> tuple[str, ...]:
    """Return the names of all architectures."""
    return tuple(_timm().list_models())


def is_one(name: str) -> bool:
    """Return True when timm builds a model of this name; a tag after a dot names weights."""
    return bool(_timm().is_model(name))


def find(name: str) -> ModelSpec:
    """Return the model of a name for which `is_one` is true."""
    known = _timm().get_pretrained_cfg(name, allow_unregistered=True)
    shape = tuple(known.input_size) if known and known.input_size else (3, 224, 224)
    classes = known.num_classes if known and known.num_classes else 1000
    count = _PARAMETERS.get(name)
    return ModelSpec(
        name=f"{PREFIX}:{name}",
        library="timm",
        input_kind="image",
        input_shape=shape,
        classes=classes,
        build=functools.partial(_build, name, shape),
        parameters=count,
        trainable_parameters=count,
    )


def _build(name: str, own: Shape, shape: Shape) -> Any:
    options: dict[str, Any] = {}
    if shape[0] != own[0]:
        options["in_chans"] = shape[0]
    module = _timm().create_model(name, pretrained=False, **options)
    if shape[1:] != own[1:] and hasattr(module, "set_input_size"):
        module.set_input_size(img_size=shape[1:])
    return module


def _timm() -> Any:
    torchvision.load()  # repaired, where its operators are of another build: timm imports them
    load_package("timm")
    return importlib.import_module("timm")

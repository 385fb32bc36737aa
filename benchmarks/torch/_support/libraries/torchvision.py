"""Classification models of torchvision, `torchvision:NAME`, and the import of model libraries.

torchvision is also imported where its compiled operators were built for another PyTorch. Its models
are plain Python, but its package registers fake kernels for two compiled operators when it is
imported, and fails when the library that declares them could not be loaded (a wheel for another
CUDA version, or the CUDA wheel beside a CPU build of PyTorch). Declaring the operators without an
implementation lets the import pass; calling one of them still fails, with torchvision's own
explanation.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
from types import ModuleType
from typing import Any

from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.torch._support.framework import torch
from perfrun import SetupError


def load_package(name: str) -> ModuleType:
    """Import a package; SetupError names it where it is not installed.

    Weights are random here, so a library is told not to ask the Hugging Face hub.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec(name) is None:
        raise SetupError(
            f"these models need the package {name}: pip install {name} "
            f"(or scripts/install_framework.py --framework torch --extra {name}; "
            f"in an image: setup.py --extra_pip_specs={name})"
        )
    return importlib.import_module(name)


_MISSING = re.compile(r"operator torchvision::\w+ does not exist")

# The operators that torchvision/_meta_registrations.py registers fakes for whether or not its
# library was loaded; all others it asks `_has_ops` about.
_DECLARATIONS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

_libraries: list[torch.library.Library] = []  # a declaration lives as long as its Library object


def load() -> ModuleType:
    """Import torchvision; where missing operators make that fail, declare them and try again."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if not _MISSING.search(str(error)):
            raise
    _declare_operators()
    _forget_half_imported()
    return importlib.import_module("torchvision")


def is_loaded() -> bool:
    """Return True when torchvision was imported in this process."""
    return "torchvision" in sys.modules


def is_repaired() -> bool:
    """Return True when `load` had to declare the operators: then they cannot be called."""
    return bool(_libraries)


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "DEF")
    for declaration in _DECLARATIONS:
        library.define(declaration)
    _libraries.append(library)


def _forget_half_imported() -> None:
    # Submodules survive a failed import, but are no longer attributes of the package.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


PREFIX = "torchvision"

# The side that EfficientNet-B2 was designed for; torchvision's weights were evaluated at 288.
_SIDES = {"efficientnet_b2": 260}
# Their auxiliary classifier is for training to convergence; the published count of GoogLeNet is
# without. `init_weights` is slow, and leaving it out causes a warning.
_OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"init_weights": False},
}
# inception_v3 as Keras and DLBS have it: torchvision's figure less 3,326,696 of the auxiliary head.
WITHOUT_AUXILIARY = 23_834_568


def names() -> tuple[str, ...]:
    """Return the names of all classification models."""
    models = load().models
    return tuple(models.list_models(module=models))


def find(name: str) -> ModelSpec:
    """Return the model of a name that is in `names`."""
    models = load().models
    published = next(iter(models.get_model_weights(name)), None)
    facts = published.meta if published else {}
    side = _SIDES.get(name, _crop(published))
    return ModelSpec(
        name=f"{PREFIX}:{name}",
        library="torchvision",
        input_kind="image",
        input_shape=(3, side, side),
        classes=1000,
        build=functools.partial(_build, name),
        parameters=facts.get("num_params"),
        trainable_parameters=facts.get("num_params"),
    )


def published_macs(name: str) -> float | None:
    """Return the multiply-adds of one image that torchvision's documentation has for a model."""
    if name in _SIDES:  # they are those of the size of its weights
        return None
    models = load().models
    published = next(iter(models.get_model_weights(name)), None) if name in names() else None
    billions = published.meta.get("_ops") if published else None
    return billions * 1e9 if billions else None


def inception_without_auxiliary() -> ModelSpec:
    """Return inception_v3 without the auxiliary classifier."""
    return ModelSpec(
        name="inception_v3",
        library="torchvision",
        input_kind="image",
        input_shape=(3, 299, 299),
        classes=1000,
        build=lambda shape: _build("inception_v3", shape, aux_logits=False),
        parameters=WITHOUT_AUXILIARY,
        trainable_parameters=WITHOUT_AUXILIARY,
    )


def _crop(weights: Any) -> int:
    transforms = getattr(weights, "transforms", None)
    return int(getattr(transforms, "keywords", {}).get("crop_size", 224))


def _build(name: str, shape: Shape, **options: Any) -> Any:
    options = {**_OPTIONS.get(name, {}), **options}
    if name.startswith("vit_"):  # its positions are parameters: one size each
        options["image_size"] = shape[-1]
    return load().models.get_model(name, weights=None, **options)

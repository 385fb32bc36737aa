"""Classification models of torchvision, `torchvision:NAME`, with what it publishes about them."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.models.spec import ModelSpec, Shape
from benchmarks.torch import vision

PREFIX = "torchvision"

# The side that EfficientNet-B2 was designed for; torchvision's weights were evaluated at 288.
_SIDES = {"efficientnet_b2": 260}
# Their auxiliary classifier is for training to convergence; the published count of GoogLeNet is
# without. `init_weights` is a slow initialisation, and a warning where nothing is said about it.
_OPTIONS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"init_weights": False},
}
# inception_v3 as Keras and DLBS have it: torchvision's figure less 3,326,696 of the auxiliary head.
WITHOUT_AUXILIARY = 23_834_568


def names() -> tuple[str, ...]:
    """Return the names of all classification models."""
    models = vision.load().models
    return tuple(models.list_models(module=models))


def find(name: str) -> ModelSpec:
    """Return the model of a name that `names` has."""
    models = vision.load().models
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
    return vision.load().models.get_model(name, weights=None, **options)

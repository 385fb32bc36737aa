"""Models by name for JAX, in Flax' layers with random weights.

A plain name is the same architecture as in `benchmarks.torch.catalogue`, with the same number of
parameters. `dlbs:NAME` is DLBS' name of those that are here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks._support.models.naming import PLAIN, Names, print_names, unknown_model
from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.jax._support.nets import feedforward, mobile, transformers

MODULE = "benchmarks.jax.catalogue"
DLBS = "dlbs"

_RESIDUAL = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}
_VGG = {11: 132_863_336, 13: 133_047_848, 16: 138_357_544, 19: 143_667_240}
_EFFICIENT = (
    *((224, 5_288_548), (240, 7_794_184), (260, 9_109_994), (300, 12_233_232)),
    *((380, 19_341_616), (456, 30_389_784), (528, 43_040_704), (600, 66_347_960)),
)


def _spec(
    name: str,
    build: Callable[..., Any],
    shape: Shape,
    classes: int,
    parameters: int,
    **more: Any,
) -> ModelSpec:
    return ModelSpec(
        name=name,
        library="flax",
        input_kind=more.pop("input_kind", "image" if len(shape) == 3 else "features"),
        input_shape=shape,
        classes=classes,
        build=lambda given: partial(build, given),  # which then takes the layers
        parameters=parameters,
        trainable_parameters=parameters,
        **more,
    )


def _image(name: str, build: Callable[..., Any], parameters: int, side: int = 224) -> ModelSpec:
    return _spec(name, build, (3, side, side), 1000, parameters)


def _text(
    name: str, build: Callable[..., Any], vocabulary: int, parameters: int, target: str
) -> ModelSpec:
    return _spec(*(name, build, (128,), vocabulary, parameters), input_kind="tokens", target=target)


_ALL = (
    *(_image(f"resnet{depth}", partial(feedforward.resnet, depth), count)
      for depth, count in _RESIDUAL.items()),
    *(_image(f"vgg{depth}", partial(feedforward.vgg, depth), count)
      for depth, count in _VGG.items()),
    *(_image(f"efficientnet_b{number}", partial(mobile.efficientnet, number), count, side)
      for number, (side, count) in enumerate(_EFFICIENT)),
    _image("mobilenet_v2", mobile.mobilenet_v2, 3_504_872),
    _image("mobilenet_v3_large", partial(mobile.mobilenet_v3, "large"), 5_483_032),
    _image("mobilenet_v3_small", partial(mobile.mobilenet_v3, "small"), 2_542_856),
    _image("alexnet", feedforward.alexnet, 62_378_344, 227),
    _image("alexnet_owt", feedforward.alexnet_owt, 61_100_840, 227),
    _image("overfeat", feedforward.overfeat, 145_920_872, 231),
    _image("vit_b_16", partial(transformers.ViT, 16, 768, 12, 12), 86_567_656),
    _image("vit_b_32", partial(transformers.ViT, 32, 768, 12, 12), 88_224_232),
    _image("vit_l_16", partial(transformers.ViT, 16, 1024, 24, 16), 304_326_632),
    _spec("deep_mnist", partial(feedforward.perceptron, feedforward.DEEP_MNIST, 10), (784,), 10,
          11_972_510),
    _spec("acoustic_model", partial(feedforward.perceptron, feedforward.ACOUSTIC_MODEL, 8192),
          (540,), 8192, 34_678_784),
    _spec("sensor_net", partial(feedforward.perceptron, feedforward.SENSOR_NET, 16), (784,), 16,
          2_919_440),
    _text("bert_base", transformers.Bert, 30_522, 109_482_240, "none"),
    _text("gpt2", partial(transformers.GPT2, 768, 12, 12), 50_257, 124_439_808, "next_token"),
    _text("gpt2_medium", partial(transformers.GPT2, 1024, 24, 16), 50_257, 354_823_168,
          "next_token"),
    _text("llama_small", transformers.Llama, 32_000, 58_073_600, "next_token"),
)  # fmt: skip
_PLAIN = {spec.name: spec for spec in _ALL}
_DLBS = tuple(
    name
    for name in _PLAIN
    if name.startswith(("resnet", "vgg", "alexnet", "overfeat", "deep", "acoustic", "sensor"))
)


def find(name: str) -> ModelSpec:
    """Return the model of a name; SetupError names the nearest ones when there is none."""
    library, colon, rest = name.partition(":")
    if not colon and name in _PLAIN:
        return _PLAIN[name]
    if library == DLBS and rest in _DLBS:
        return _PLAIN[rest]
    raise unknown_model(name, names(), "JAX", MODULE)


def names() -> tuple[str, ...]:
    """Return all names that `find` knows."""
    return tuple(name for names_of in names_by_library().values() for name in names_of())


def names_by_library() -> dict[str, Names]:
    """Return the plain names, and DLBS' with its prefix."""
    return {
        PLAIN: lambda: tuple(_PLAIN),
        DLBS: lambda: tuple(f"{DLBS}:{name}" for name in _DLBS),
    }


if __name__ == "__main__":
    sys.exit(print_names(names_by_library(), MODULE, sys.argv[1:]))

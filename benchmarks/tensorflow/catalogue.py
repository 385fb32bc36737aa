"""Models by name: all of keras.applications, DLBS' nets, residual nets, and transformers.

A plain name is the same architecture as in PyTorch. Parameter counts are those of
keras.io/api/applications, and for the trainable ones of torchvision's documentation where it has
the same architecture.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from benchmarks._support.models.naming import PLAIN, Names, print_names, unknown_model
from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.tensorflow._support.framework import tf
from benchmarks.tensorflow._support.nets import feedforward, transformers

MODULE = "benchmarks.tensorflow.catalogue"
KERAS, DLBS = "keras", "dlbs"  # library prefixes

# Of keras.applications: side of the image in pixels, parameters, trainable ones.
_APPLICATIONS: dict[str, tuple[int, int, int]] = {
    "ConvNeXtTiny": (224, 28_589_128, 28_589_128),
    "ConvNeXtSmall": (224, 50_223_688, 50_223_688),
    "ConvNeXtBase": (224, 88_591_464, 88_591_464),
    "ConvNeXtLarge": (224, 197_767_336, 197_767_336),
    "ConvNeXtXLarge": (224, 350_196_968, 350_196_968),
    "DenseNet121": (224, 8_062_504, 7_978_856),
    "DenseNet169": (224, 14_307_880, 14_149_480),
    "DenseNet201": (224, 20_242_984, 20_013_928),
    "EfficientNetB0": (224, 5_330_571, 5_288_548),
    "EfficientNetB1": (240, 7_856_239, 7_794_184),
    "EfficientNetB2": (260, 9_177_569, 9_109_994),
    "EfficientNetB3": (300, 12_320_535, 12_233_232),
    "EfficientNetB4": (380, 19_466_823, 19_341_616),
    "EfficientNetB5": (456, 30_562_527, 30_389_784),
    "EfficientNetB6": (528, 43_265_143, 43_040_704),
    "EfficientNetB7": (600, 66_658_687, 66_347_960),
    "EfficientNetV2B0": (224, 7_200_312, 7_139_704),
    "EfficientNetV2B1": (240, 8_212_124, 8_141_052),
    "EfficientNetV2B2": (260, 10_178_374, 10_096_086),
    "EfficientNetV2B3": (300, 14_467_622, 14_358_406),
    "EfficientNetV2S": (384, 21_612_360, 21_458_488),
    "EfficientNetV2M": (480, 54_431_388, 54_139_356),
    "EfficientNetV2L": (480, 119_027_848, 118_515_272),
    "InceptionResNetV2": (299, 55_873_736, 55_813_192),
    "InceptionV3": (299, 23_851_784, 23_817_352),
    "MobileNet": (224, 4_253_864, 4_231_976),
    "MobileNetV2": (224, 3_538_984, 3_504_872),
    "MobileNetV3Small": (224, 2_554_968, 2_542_856),
    "MobileNetV3Large": (224, 5_507_432, 5_483_032),
    "NASNetMobile": (224, 5_326_716, 5_289_978),
    "NASNetLarge": (331, 88_949_818, 88_753_150),
    "ResNet50": (224, 25_636_712, 25_583_592),
    "ResNet50V2": (224, 25_613_800, 25_568_360),
    "ResNet101": (224, 44_707_176, 44_601_832),
    "ResNet101V2": (224, 44_675_560, 44_577_896),
    "ResNet152": (224, 60_419_944, 60_268_520),
    "ResNet152V2": (224, 60_380_648, 60_236_904),
    "VGG16": (224, 138_357_544, 138_357_544),
    "VGG19": (224, 143_667_240, 143_667_240),
    "Xception": (299, 22_910_480, 22_855_952),
}

# Plain names of those that are the same in torchvision.
_PLAIN = {
    **{f"efficientnet_b{number}": f"EfficientNetB{number}" for number in range(8)},
    **{f"efficientnet_v2_{size}": f"EfficientNetV2{size.upper()}" for size in "sml"},
    **{f"densenet{depth}": f"DenseNet{depth}" for depth in (121, 169, 201)},
    **{f"convnext_{size}": f"ConvNeXt{size.title()}" for size in ("tiny", "small", "base")},
    "convnext_large": "ConvNeXtLarge",
    "inception_v3": "InceptionV3",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3_small": "MobileNetV3Small",
    "mobilenet_v3_large": "MobileNetV3Large",
    "vgg16": "VGG16",
    "vgg19": "VGG19",
}

_RESIDUAL = {
    18: (11_699_112, 11_689_512),
    34: (21_814_696, 21_797_672),
    50: (25_610_152, 25_557_032),
    101: (44_654_504, 44_549_160),
    152: (60_344_232, 60_192_808),
}


# DLBS' names, for those that are here.
_DLBS = {
    **{name: name for name in ("deep_mnist", "acoustic_model", "sensor_net", "overfeat")},
    **{name: name for name in ("alexnet", "alexnet_owt", "vgg16", "vgg19")},
    **{f"resnet{depth}": f"resnet{depth}" for depth in _RESIDUAL},
    "inception3": "inception_v3",
}


def find(name: str) -> ModelSpec:
    """Return the model of a name; SetupError names the nearest ones when there is none."""
    library, colon, rest = name.partition(":")
    if not colon:
        if name in _PLAIN:
            return _application(_PLAIN[name], name)
        if name in _OWN:
            return _OWN[name]
    elif library == KERAS and rest in _application_names():
        return _application(rest, name)
    elif library == DLBS and rest in _DLBS:
        return find(_DLBS[rest])
    raise unknown_model(name, names(), "TensorFlow", MODULE)


def names() -> tuple[str, ...]:
    """Return all names that `find` knows."""
    return tuple(name for names_of in names_by_library().values() for name in names_of())


def names_by_library() -> dict[str, Names]:
    """Return the plain names, and those of each library with its prefix."""
    return {
        PLAIN: lambda: (*_PLAIN, *_OWN),
        KERAS: lambda: tuple(f"{KERAS}:{name}" for name in _application_names()),
        DLBS: lambda: tuple(f"{DLBS}:{name}" for name in _DLBS),
    }


def _application_names() -> tuple[str, ...]:
    """Return the names of all constructors, those of newer Keras versions included."""
    module = tf.keras.applications
    return tuple(
        name
        for name, found in vars(module).items()
        if not name.startswith("_") and callable(found) and _builds_a_model(found)
    )


def _builds_a_model(found: Any) -> bool:
    return "include_top" in inspect.signature(found).parameters


def _application(constructor: str, name: str) -> ModelSpec:
    side, parameters, trainable = _APPLICATIONS.get(constructor, (224, None, None))
    return ModelSpec(
        name=name,
        library="keras.applications",
        input_kind="image",
        input_shape=(3, side, side),
        classes=1000,
        build=functools.partial(_build_application, constructor),
        parameters=parameters,
        trainable_parameters=trainable,
    )


def _build_application(constructor: str, shape: Shape) -> Any:
    build = getattr(tf.keras.applications, constructor)
    model = build(
        weights=None, input_shape=_channels_last(shape), classes=1000, classifier_activation=None
    )
    # Under a 16-bit policy the logits are of 16 bits, too, and a loss of these would be a guess.
    logits = tf.keras.layers.Activation("linear", dtype="float32")(model.output)
    return tf.keras.Model(model.input, logits, name=model.name)


def _channels_last(shape: Shape) -> Shape:
    return (*shape[1:], shape[0])


def _own(
    name: str,
    build: Callable[[Shape], Any],
    shape: Shape,
    classes: int | None,
    parameters: int,
    trainable: int | None = None,
    **more: Any,
) -> ModelSpec:
    image = len(shape) == 3
    return ModelSpec(
        name=name,
        library="perfrun",
        input_kind=more.pop("input_kind", "image" if image else "features"),
        input_shape=shape,
        classes=classes,
        build=(lambda given: build(_channels_last(given))) if image else build,
        parameters=parameters,
        trainable_parameters=trainable or parameters,
        **more,
    )


_OWN = {
    spec.name: spec
    for spec in (
        _own("deep_mnist", feedforward.deep_mnist, (784,), 10, 11_972_510),
        _own("acoustic_model", feedforward.acoustic_model, (540,), 8192, 34_678_784),
        _own("sensor_net", feedforward.sensor_net, (784,), 16, 2_919_440),
        _own("alexnet", feedforward.alexnet, (3, 227, 227), 1000, 62_378_344),
        _own("alexnet_owt", feedforward.alexnet_owt, (3, 227, 227), 1000, 61_100_840),
        _own("overfeat", feedforward.overfeat, (3, 231, 231), 1000, 145_920_872),
        _own("vit_b_16", transformers.vit_b_16, (3, 224, 224), 1000, 86_567_656),
        _own(
            *("bert_base", transformers.bert_base, (128,), 30_522, 109_482_240),
            input_kind="tokens",
            target="none",
        ),
        _own(
            *("gpt2", transformers.gpt2, (128,), 50_257, 124_439_808),
            input_kind="tokens",
            target="next_token",
        ),
        _own(
            *("llama_small", transformers.llama_small, (128,), 32_000, 58_073_600),
            input_kind="tokens",
            target="next_token",
        ),
        *(
            _own(
                f"resnet{depth}",
                functools.partial(feedforward.resnet, depth),
                (3, 224, 224),
                1000,
                *_RESIDUAL[depth],
            )
            for depth in _RESIDUAL
        ),
    )
}


if __name__ == "__main__":
    sys.exit(print_names(names_by_library(), MODULE, sys.argv[1:]))

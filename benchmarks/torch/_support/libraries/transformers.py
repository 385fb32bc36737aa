"""Models of transformers from a configuration: `transformers:NAME`, random weights, no hub.

A name is one of those here, whose configuration is the published one, or a model type that
transformers knows (`transformers:albert`), with the configuration that it takes for that type.
Models of an encoder and a decoder (T5) take two inputs and are not here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks._support.models.spec import ModelSpec, Shape
from benchmarks.torch._support.libraries import torchvision
from benchmarks.torch._support.libraries.torchvision import load_package
from perfrun import SetupError

PREFIX = "transformers"
TOKENS = 128  # of one example, unless input_shape says otherwise

Head = Literal["none", "next_token", "class"]
_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}


@dataclass(frozen=True, kw_only=True)
class _Known:
    """The part of a published configuration that differs from that of its type."""

    kind: str
    head: Head
    parameters: int | None
    options: Mapping[str, Any] = field(default_factory=dict)


_KNOWN = {
    "bert-base": _Known(kind="bert", head="none", parameters=109_482_240),
    "bert-large": _Known(kind="bert", head="none", parameters=335_141_888, options=_LARGE),
    "distilbert": _Known(kind="distilbert", head="none", parameters=66_362_880),
    "roberta-base": _Known(
        kind="roberta",
        head="none",
        parameters=124_645_632,
        options={"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
    ),
    "gpt2": _Known(kind="gpt2", head="next_token", parameters=124_439_808),
    "gpt2-medium": _Known(
        kind="gpt2",
        head="next_token",
        parameters=354_823_168,
        options={"n_embd": 1024, "n_layer": 24, "n_head": 16},
    ),
    # No published Llama is small enough for every machine; this one has 8 layers of 512.
    "llama-small": _Known(
        kind="llama",
        head="next_token",
        parameters=58_073_600,
        options={
            "hidden_size": 512,
            "intermediate_size": 1376,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "vocab_size": 32000,
        },
    ),
    "vit-base": _Known(kind="vit", head="none", parameters=86_389_248),
}


def names() -> tuple[str, ...]:
    """Return the names whose configuration is here."""
    return tuple(_KNOWN)


def find(name: str) -> ModelSpec | None:
    """Return the model of a name or of a type of transformers; None where there is none."""
    library = _library()
    known = _KNOWN.get(name)
    options = dict(known.options) if known else {}
    kind = known.kind if known else name
    # The classes of all types, imported one at a time when they are asked for.
    with contextlib.suppress(ValueError, KeyError):
        configuration = library.AutoConfig.for_model(kind, **options)
        if getattr(configuration, "is_encoder_decoder", False):
            return None  # it wants two inputs
        head = known.head if known else _head(library, configuration)
        return _spec(name, head, configuration, known.parameters if known else None)
    return None


def _head(library: Any, configuration: Any) -> Head:
    """Return the head for prediction of the next token where a type only does that; else none."""
    kind = type(configuration)
    causal = kind in library.MODEL_FOR_CAUSAL_LM_MAPPING
    return "next_token" if causal and kind not in library.MODEL_FOR_MASKED_LM_MAPPING else "none"


def _spec(name: str, head: Head, configuration: Any, parameters: int | None) -> ModelSpec:
    side = getattr(configuration, "image_size", None)
    channels = getattr(configuration, "num_channels", 3)
    is_image = isinstance(side, int)
    shape: Shape = (channels, side, side) if isinstance(side, int) else (TOKENS,)
    return ModelSpec(
        name=f"{PREFIX}:{name}",
        library="transformers",
        input_kind="image" if is_image else "tokens",
        input_shape=shape,
        classes=None if is_image else configuration.vocab_size,
        build=functools.partial(_build, head, configuration),
        target=head,
        parameters=parameters,
        trainable_parameters=parameters,
    )


def _build(head: Head, configuration: Any, shape: Shape) -> Any:
    library = _library()
    longest = getattr(configuration, "max_position_embeddings", None)
    if len(shape) == 1 and longest is not None and shape[0] > longest:
        raise SetupError(f"input_shape is {shape[0]}; it has positions for {longest} tokens")
    # A cache of keys and values is for generating one token after the other.
    configuration.use_cache = False
    auto = library.AutoModelForCausalLM if head == "next_token" else library.AutoModel
    return auto.from_config(configuration)


def _library() -> Any:
    if importlib.util.find_spec("torchvision") is not None:
        torchvision.load()  # repaired, where its operators are of another build
    return load_package("transformers")

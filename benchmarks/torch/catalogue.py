"""Models by name: `torchvision:NAME`, `timm:NAME`, `transformers:NAME`, `dlbs:NAME`, or plain ones.

A plain name is torchvision's, with these exceptions: it is the same architecture as in
`benchmarks.tensorflow.catalogue` where both have it, so `alexnet` is that of the paper and
`inception_v3` has no auxiliary classifier. What torchvision lacks comes from DLBS' nets, from
transformers (`bert_base`, `gpt2`), or from timm.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from dataclasses import replace
from importlib import metadata

from benchmarks._support.models.naming import PLAIN, Names, print_names, unknown_model
from benchmarks._support.models.spec import ModelSpec
from benchmarks.torch._support.libraries import dlbs, timm, torchvision, transformers
from perfrun import SetupError

MODULE = "benchmarks.torch.catalogue"
_LIBRARIES = (torchvision.PREFIX, timm.PREFIX, transformers.PREFIX, dlbs.PREFIX)


def find(name: str) -> ModelSpec:
    """Return the model of a name; SetupError names the nearest ones when there is none.

    SetupError, too, where the library of that name is not installed.
    """
    library, colon, rest = name.partition(":")
    if colon and library not in _LIBRARIES:
        raise SetupError(
            f"model is {name!r}: PyTorch's models are in {', '.join(_LIBRARIES)}, not {library!r}"
        )
    found = _qualified(library, rest) if colon else _plain(name)
    if found is None:
        near = names_by_library()[library if colon else PLAIN]
        raise unknown_model(name, near(), "PyTorch", MODULE)
    return replace(found, name=name)


def names() -> tuple[str, ...]:
    """Return the plain names, timm's excepted."""
    of_transformers = (name.replace("-", "_") for name in transformers.names())
    return tuple(dict.fromkeys((*torchvision.names(), *dlbs.OWN, *of_transformers)))


def names_by_library() -> dict[str, Names]:
    """Return the plain names (timm's excepted), and those of each library with its prefix."""
    libraries: dict[str, Names] = {
        torchvision.PREFIX: torchvision.names,
        timm.PREFIX: timm.names,
        transformers.PREFIX: transformers.names,
        dlbs.PREFIX: dlbs.names,
    }
    return {
        PLAIN: names,
        **{prefix: functools.partial(_prefixed, prefix, of) for prefix, of in libraries.items()},
    }


def _prefixed(prefix: str, names_of: Names) -> tuple[str, ...]:
    return tuple(f"{prefix}:{name}" for name in names_of())


def _qualified(library: str, name: str) -> ModelSpec | None:
    if library == torchvision.PREFIX:
        return torchvision.find(name) if name in torchvision.names() else None
    if library == timm.PREFIX:
        return timm.find(name) if timm.is_one(name) else None
    if library == transformers.PREFIX:
        return transformers.find(name)
    if library == dlbs.PREFIX:
        if name in dlbs.ELSEWHERE:
            return find(dlbs.ELSEWHERE[name])
        return {**dlbs.OWN, dlbs.GOOGLENET.name: dlbs.GOOGLENET}.get(name)
    return None


def _plain(name: str) -> ModelSpec | None:
    if name in dlbs.OWN:
        return dlbs.OWN[name]
    if name.replace("_", "-") in transformers.names():  # before what imports torchvision
        return transformers.find(name.replace("_", "-"))
    if name == "inception_v3":
        return torchvision.inception_without_auxiliary()
    if name in torchvision.names():
        return torchvision.find(name)
    if importlib.util.find_spec("timm") is not None and timm.is_one(name):
        return timm.find(name)
    return None


def versions(library: str) -> dict[str, str]:
    """Return the report's notes on the model library, and the state of torchvision."""
    found = {}
    if library in ("torchvision", "timm", "transformers"):
        found[f"{library}_version"] = metadata.version(library)
    if torchvision.is_loaded():
        repaired = torchvision.is_repaired()
        found["torchvision_operators"] = "declared only" if repaired else "compiled"
    return found


if __name__ == "__main__":
    sys.exit(print_names(names_by_library(), MODULE, sys.argv[1:]))

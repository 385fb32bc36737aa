"""Import a library of models, without the network, or say in one line that it is missing."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType


def load(name: str) -> ModuleType:
    """Import a package; RuntimeError names it where it is not installed.

    Weights are random here: a library that would ask the Hugging Face hub is told not to.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec(name) is None:
        raise RuntimeError(
            f"these models need the package {name}; install it beside PyTorch: "
            f"scripts/install_framework.py --framework torch --extra {name}"
        )
    return importlib.import_module(name)

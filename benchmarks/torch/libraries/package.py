"""Import a library of models, without the network, or say in one line that it is missing."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType

from perfrun import SetupError


def load(name: str) -> ModuleType:
    """Import a package; SetupError names it where it is not installed.

    Weights are random here: a library that would ask the Hugging Face hub is told not to.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec(name) is None:
        raise SetupError(
            f"these models need the package {name}: pip install {name} "
            f"(or scripts/install_framework.py --framework torch --extra {name}; "
            f"in an image: setup.py --extra_pip_specs={name})"
        )
    return importlib.import_module(name)

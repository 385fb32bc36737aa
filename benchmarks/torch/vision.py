"""torchvision, also where its compiled operators were built for another PyTorch.

torchvision's models are plain Python, but its package registers fake kernels for two compiled
operators when it is imported, and fails when the library that declares them could not be loaded
(a wheel for another CUDA version, or the CUDA wheel beside a CPU build of PyTorch). Declaring the
operators without an implementation lets the import pass; calling one of them still fails, with
torchvision's own explanation.
"""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType

from benchmarks.torch.framework import torch

_MISSING = re.compile(r"operator torchvision::\w+ does not exist")

# The operators that torchvision/_meta_registrations.py registers fakes for whether or not its
# library was loaded; all others it asks `_has_ops` about.
_DECLARATIONS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

_libraries: list[torch.library.Library] = []  # a declaration lives as long as its Library object


def load() -> ModuleType:
    """Import torchvision, after declaring its missing operators if that is why it fails."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if not _MISSING.search(str(error)):
            raise
    _declare_operators()
    _forget_half_imported()
    return importlib.import_module("torchvision")


def is_loaded() -> bool:
    """Whether torchvision was imported in this process."""
    return "torchvision" in sys.modules


def is_repaired() -> bool:
    """Whether `load` had to declare the operators: compiled ones then cannot be called."""
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

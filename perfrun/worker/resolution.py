"""What was checked out is what is measured: refuse a module that came from somewhere else.

Checkouts come first on the path, and still Python may take an installed copy: a folder without
`__init__.py` loses to a package further down the path, and a module that was loaded at the
interpreter's start (by a `.pth` file) is not looked for again.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import FrozenSet, Optional, Sequence

_STDLIB: FrozenSet[str] = getattr(sys, "stdlib_module_names", frozenset())  # Python >= 3.10


class ResolutionError(ImportError):
    """A module did not come from the checkout that holds it."""


def check_module(module: str, path: Optional[str], checkouts: Sequence[str]) -> None:
    """Raise when a checkout holds `module` but it was imported from elsewhere (`path`).

    Of several checkouts that hold it, the first on the path is meant.
    """
    relative = os.path.join(*module.split("."))
    for checkout in checkouts:
        wanted = (
            os.path.join(checkout, relative + ".py"),
            os.path.join(checkout, relative, "__init__.py"),
        )
        there = [file for file in wanted if os.path.exists(file)]
        if not there:
            continue
        if not (path and os.path.realpath(path) in map(os.path.realpath, there)):
            raise ResolutionError(
                "%s is in the checkout %s, but Python took it from %s: a package of the same name "
                "is installed or comes first" % (module, checkout, path)
            )
        return


def check_loaded(checkouts: Sequence[str]) -> None:
    """Do the same for every other package that has been loaded, by its top-level name.

    The standard library is left out: a checkout's `types.py` is no rival of Python's own.
    """
    if not checkouts:
        return
    library = os.path.dirname(os.path.realpath(os.__file__))
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if "." in name or name in _STDLIB or name in ("perfrun", "__main__") or not path:
            continue
        if os.path.dirname(os.path.realpath(path)) in (library, os.path.join(library, name)):
            continue
        check_module(name, path, checkouts)

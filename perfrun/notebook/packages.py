"""Packages that only a notebook needs: imported when they are asked for."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from perfrun.errors import UsageError


class MissingPackage(UsageError, ImportError):  # noqa: N818 - it says what to install
    """A package that is not installed, with the command that installs it."""


def needed(name: str, what: str) -> Any:
    """Import a package or raise MissingPackage, which says what needs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MissingPackage(
            f"{what} needs the Python package {package} ({error}); install it with "
            f"`{sys.executable} -m pip install {package}`"
        ) from None

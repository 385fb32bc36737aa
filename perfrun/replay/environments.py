"""Make an environment anew from the versions of a summary, by pip and the configured index."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.image.lock import locked
from perfrun.summary.series_identity import section, text
from perfrun.workspace.programs import (
    INSTALL_S,
    carry_out,
    fitting_python,
    make_venv,
    pip_words,
    variables,
)

_WORD = re.compile(r"[\w.!+-]+", re.ASCII)  # each is a word of pip's, where an option could follow


def rebuilt(
    document: Mapping[str, Any], folder: Path, python: str, notify: Callable[[str], None]
) -> Path:
    """Make the environment in `folder` and return its interpreter. Raises UsageError."""
    environment = section(section(document, "perfrun"), "environment")
    found = section(environment, "distributions")
    about = section(environment, "python")
    version = ".".join(text(about.get("version")).split(".")[:2])
    implementation = text(about.get("implementation")) or "cpython"
    if not found or not re.fullmatch(r"3\.\d{1,3}", version, re.ASCII):
        raise UsageError("--rebuild: the summary does not say which versions there were")
    pinned = locked({name: str(each) for name, each in found.items()})
    for name, each in pinned.items():
        if not (_WORD.fullmatch(name) and _WORD.fullmatch(each)) or name.startswith("-"):
            raise UsageError(f"--rebuild: {name!r:.60} {each!r:.60} is no distribution and version")
    base = fitting_python(version, implementation, python)
    notify(f"--rebuild: installing {len(pinned)} distributions for Python {version}")
    made = make_venv(folder, base)
    if pinned:
        words = [*pip_words(made, None), "install", "--quiet", "--no-deps"]
        names = [f"{name}=={each}" for name, each in pinned.items()]
        carry_out([*words, *names], "--rebuild", INSTALL_S, variables())
    return made

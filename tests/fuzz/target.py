"""A target: a parser, or a writer, that is called with bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Call = Callable[[bytes], object]
MEMORY = "/dev/shm"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A parser, the errors that it names, and inputs that lie near what it reads."""

    name: str
    call: Call
    errors: tuple[type[Exception], ...] = ()
    seeds: tuple[bytes, ...]


def text(data: bytes) -> str:
    """A text of any characters that a command line or a file can bring, lone surrogates too."""
    return data.decode("utf-8", "surrogateescape")


def folder(name: str) -> Path:
    """A folder of this process and this target, the same at every call, with what is left in it."""
    made = Path(_folder(os.getpid()).name, name)
    made.mkdir(exist_ok=True)
    return made


def is_folder(word: str) -> bool:
    """Return True for the name of a folder; no text raises."""
    return os.path.isdir(os.path.normpath(word))  # noqa: PTH112 - as the docstring says


@cache
def _folder(_process: int) -> tempfile.TemporaryDirectory[str]:
    parent = tempfile.tempdir or in_memory()
    return tempfile.TemporaryDirectory(prefix="perfrun-fuzz-", dir=parent)


def in_memory() -> str | None:
    """The folder for files in memory; None where there is none."""
    return MEMORY if os.access(MEMORY, os.W_OK) else None

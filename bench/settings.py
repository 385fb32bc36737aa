"""What the caller of the bench can choose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A repository on this machine and the commit to check out."""

    repository: Path
    git_hash: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where to work, what is there to measure, and how often."""

    scratch: Path
    rounds: int
    tensorflow_python: str | None
    pin: Pin | None
    image: str | None = None  # for trials in containers
    summaries: int = 20_000  # in the index
    postgresql: str | None = None  # address of an empty database

"""Documents that commands have kept in a workspace: what is damaged or hostile counts as absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.schema import Wrong
from perfrun.untrusted import Folder, Refused, parse_json

LARGEST_BYTES = 64 * 2**20


def names_in(folder: Path) -> list[str]:
    """Return the sorted names in a folder; none where there is no folder."""
    try:
        with Folder(folder) as held:
            return held.names()
    except OSError:
        return []


def read_checked(folder: Path, name: str, wanted: schema.Check) -> dict[str, Any] | None:
    """Read a document of a workspace and check it; None for one that cannot be used."""
    try:
        with Folder(folder) as held:
            said = parse_json(held.read(name, LARGEST_BYTES))
        found: dict[str, Any] = schema.checked(wanted, said, name, [])
    except (OSError, Refused, Wrong):
        return None
    return found

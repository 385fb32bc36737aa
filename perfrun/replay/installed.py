"""The distributions of an environment, as they are installed: versions, files, origins.

A description comes from the environment's own interpreter, which knows its path; files are read by
perfrun itself.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.errors import UsageError
from perfrun.untrusted import Refused, parse_json, read_file
from perfrun.worker import describe
from perfrun.workspace.programs import carry_out, variables

_LIMIT_S = 120.0
_MOST_BYTES = 64 << 20  # of a RECORD: a framework has tens of thousands of files
_NOT_PACKED = ("INSTALLER", "REQUESTED", "RECORD", "RECORD.jws", "RECORD.p7s", "direct_url.json")
# By the worker's own rule for names and for which of two wins, so that both say the same.
_LIST = """
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("describe", sys.argv[1])
describe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(describe)
sys.path = [one for one in sys.path if one]
found, metadata = {}, {}
for folder in sys.path:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        name = describe.re.sub(r"[-_.]+", "-", entry.partition("-")[0]).lower()
        if entry.endswith((".dist-info", ".egg-info")):
            metadata.setdefault(name, os.path.join(folder, entry))
versions, commits = describe.installed_distributions()
print(json.dumps({"versions": versions, "metadata": metadata, "prefix": sys.prefix}))
"""


class NotPackable(ValueError):  # noqa: N818 - always caught within this folder
    """A distribution of which no wheel can be made; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One installed distribution."""

    name: str  # normalised
    version: str
    metadata: Path  # its .dist-info folder
    prefix: Path  # of the environment: a RECORD may name files below it and no others

    @property
    def direct_url(self) -> Mapping[str, Any]:
        """Where pip was told to take it from; empty when an index was asked."""
        try:
            found = parse_json(self.text("direct_url.json"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def is_editable(self) -> bool:
        """True when its code lies in a folder where somebody works on it."""
        about = self.direct_url.get("dir_info")
        return isinstance(about, dict) and bool(about.get("editable"))

    def text(self, name: str) -> str:
        """Return a file of its metadata. Raises OSError or ValueError."""
        return read_file(self.metadata / name, _MOST_BYTES).decode("utf-8")

    def files(self) -> Iterator[tuple[str, Path, str]]:
        """Yield its files: path in RECORD, place, and SHA-256 (base64, empty when unknown).

        What pip wrote about the installation, and what Python has compiled, are none of its files.
        Raises NotPackable.
        """
        try:
            rows = list(csv.reader(io.StringIO(self.text("RECORD"))))
        except (OSError, Refused, UnicodeDecodeError, csv.Error):
            raise NotPackable("no list of its files (RECORD): not installed from a wheel") from None
        base, own = self.metadata.parent, self.metadata.name
        for row in rows:
            name = row[0] if row else ""
            parts = Path(name).parts
            if not name or name.endswith(".pyc") or "__pycache__" in parts:
                continue
            if parts[0] == own and len(parts) == 2 and parts[1] in _NOT_PACKED:
                continue
            place = base / name
            if not place.resolve().is_relative_to(self.prefix.resolve()):
                raise NotPackable(f"{name} lies outside of the environment")
            digest = row[1].partition("=")[2] if len(row) > 1 and row[1][:7] == "sha256=" else ""
            yield name, place, digest


def distributions(python: str) -> dict[str, Distribution]:
    """Return the distributions of an environment by name. Raises UsageError."""
    words = [python, "-c", _LIST, str(Path(describe.__file__).resolve())]
    answer = carry_out(words, python, _LIMIT_S, variables())
    try:
        said = parse_json(answer)
        found = {
            str(name): Distribution(
                name=str(name),
                version=str(version),
                metadata=Path(str(said["metadata"][name])),
                prefix=Path(str(said["prefix"])),
            )
            for name, version in said["versions"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{python}: its description of itself cannot be used") from None
    return found


def refuse_changed(found: Mapping[str, Distribution], recorded: Mapping[str, Any]) -> None:
    """Raise UsageError when the environment is no longer that of the trial."""
    now = {name: one.version for name, one in found.items()}
    changed = [
        f"{name} {recorded.get(name, '(none)')} -> {now.get(name, '(none)')}"
        for name in sorted({*now, *recorded})
        if now.get(name) != recorded.get(name)
    ]
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise UsageError(
            f"the environment has changed since the trial ({', '.join(changed[:5])}{more}): what "
            "is packed would not be what ran"
        )


def normalised(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()

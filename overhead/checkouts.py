"""Measure a checkout at a pinned hash, and a full clone of the same repository beside it."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from overhead.processes import ROOT, SUBJECTS, MeasurementError, Pin, Settings, finish
from overhead.table import Goal, Row, Rule

MIB = 2**20
COMMITS = 400
FILES = 300
FILE_BYTES = 12_000
CHANGED = 3  # files in each commit


@dataclass
class Taken:
    """The values of all rounds, side by side."""

    own_s: list[float] = field(default_factory=list)
    own_mib: list[float] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)
    clone_s: list[float] = field(default_factory=list)
    clone_mib: list[float] = field(default_factory=list)
    status_s: list[float] = field(default_factory=list)


def checkout_rows(settings: Settings) -> list[Row]:
    """Measure two checkouts of a pin: seconds, files on disk, and no remote for the second."""
    given = settings.pin is not None
    pin = settings.pin or synthetic_repository(settings.scratch / "synthetic.git")
    taken = Taken()
    for number in range(settings.rounds):
        folder = settings.scratch / f"checkout-{number}"
        folder.mkdir()
        _one_round(pin, folder, taken)
        shutil.rmtree(folder)
    return _rows(
        "pinned checkout" if given else "pinned checkout, made-up repository", given, taken
    )


def _rows(what: str, given: bool, taken: Taken) -> list[Row]:
    clone = "git clone + checkout"
    rows = (
        ("first", "s", 1.8, taken.own_s, clone, taken.clone_s),
        ("files on disk", "MiB", 16, taken.own_mib, clone, taken.clone_mib),
        ("second, remote gone", "s", 0.15, taken.again_s, "git status", taken.status_s),
    )
    return [
        Row(
            what=f"{what}, {part}",
            unit=unit,
            values=tuple(values),
            reference=reference,
            references=tuple(references),
            # The goals in seconds and MiB hold for the repository that they were set for.
            goal=Goal(rule=Rule.VALUE_AT_MOST, limit=limit) if given else None,
        )
        for part, unit, limit, values, reference, references in rows
    ]


def _one_round(pin: Pin, folder: Path, taken: Taken) -> None:
    # A link is what the url names, so that the remote can be taken away without touching it.
    remote, workspace, clone = folder / "remote", folder / "workspace", folder / "clone"
    remote.symlink_to(pin.repository)
    first = _checked_out(workspace, remote, pin)
    taken.own_s.append(first["seconds"])
    taken.own_mib.append(content_bytes(workspace) / MIB)
    git = ["git", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false"]
    cloned = finish([*git, "clone", "--quiet", "--no-checkout", f"file://{remote}", str(clone)])
    placed = finish([*git, "-C", str(clone), "checkout", "--quiet", pin.git_hash])
    taken.clone_s.append(cloned.wall_s + placed.wall_s)
    taken.clone_mib.append(content_bytes(clone) / MIB)
    remote.unlink()
    second = _checked_out(workspace, remote, pin)
    if second["fetched"]:
        raise MeasurementError("the second checkout says that it asked the remote")
    taken.again_s.append(second["seconds"])
    taken.status_s.append(finish([*git, "-C", str(clone), "status", "--porcelain"]).wall_s)


def _checked_out(workspace: Path, remote: Path, pin: Pin) -> dict[str, Any]:
    program = SUBJECTS / "checkout.py"
    words = [str(program), str(ROOT), str(workspace), f"file://{remote}", pin.git_hash]
    found: dict[str, Any] = json.loads(finish([sys.executable, *words]).stdout)
    if found["hash"] != pin.git_hash:
        raise MeasurementError(f"asked for {pin.git_hash}, got {found['hash']}")
    return found


def content_bytes(folder: Path) -> int:
    """Return the sizes of all files in a folder, each once however many links it has.

    Sizes and not blocks: the figure is then the same on every file system.
    """
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, files in os.walk(folder):
        for name in files:
            status = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - a large tree
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def synthetic_repository(path: Path) -> Pin:
    """Make a repository with a long history and return a commit in the middle of it.

    The same hashes on every machine: contents, author and times are fixed.
    """
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    subprocess.run(
        ["git", "-C", str(path), "fast-import", "--quiet"],
        input=_history().encode("ascii"),
        check=True,
    )
    middle = f"main~{COMMITS // 2}"
    done = subprocess.run(
        ["git", "-C", str(path), "rev-parse", middle], capture_output=True, text=True, check=True
    )
    return Pin(repository=path, git_hash=done.stdout.strip())


def _history() -> str:
    """Return a stream for git fast-import: all files in commit 1, a few in each later one."""
    chance = random.Random(0)  # noqa: S311 - the same every time is what is wanted
    parts = []
    for commit in range(COMMITS):
        parts.append(
            f"commit refs/heads/main\ncommitter A <a@example.com> {1_600_000_000 + commit} +0000\n"
            f"data <<END\nchange {commit}\nEND\n"
        )
        names = range(FILES) if commit == 0 else chance.sample(range(FILES), CHANGED)
        for name in names:
            text = base64.b64encode(chance.randbytes(FILE_BYTES * 3 // 4)).decode()
            parts.append(f"M 100644 inline package/part{name % 20}/file{name}.txt\n")
            parts.append(f"data {len(text)}\n{text}\n")
    return "".join(parts)

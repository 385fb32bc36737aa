"""Baselines: named sets of results, one file each in `<workspace>/baselines`.

A file names the trials and holds none of their figures. It is no part of the index, which can be
removed and built anew, and `perfrun prune` keeps the trials that it names.
"""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.durable import make_folder, sync_names
from perfrun.errors import UsageError, WorkspaceError
from perfrun.options.parsers import nearest, shown
from perfrun.schema import Wrong
from perfrun.summary.record import SummaryRecord
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import Refused, parse_json, read_file

FOLDER = "baselines"
LAST = "last"  # the latest run, wherever results are chosen
MOST_TRIALS = 10_000  # of a baseline
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_SUFFIX = ".json"
_LARGEST_BYTES = 16 * 2**20
_VERSION = 1
_LONGEST_PATH = 4096


@dataclass(frozen=True, kw_only=True)
class NamedTrial:
    """A trial as a baseline names it."""

    uid: str  # the same for every copy of the trial's summary
    execution_id: str
    method: str
    timestamp: float  # seconds since the epoch
    path: str  # of its summary, relative if it is in the workspace; '' of an index's alone


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A named set of trials."""

    name: str
    set_at: float  # seconds since the epoch
    selection: tuple[str, ...]  # the words that chose the trials
    trials: tuple[NamedTrial, ...]
    notes: tuple[str, ...] = field(default=())  # what is wrong with its file

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of its trials, each once."""
        return tuple(sorted({trial.method for trial in self.trials}))


_TRIAL = schema.table(
    {
        "uid": schema.matching(r"[0-9a-f]{64}", "a hash"),
        "execution_id": schema.text(),
        "method": schema.text(),
        "timestamp": schema.seconds,
        "path": schema.text(_LONGEST_PATH),
    },
    needs=("uid", "execution_id", "method", "timestamp", "path"),
)
_FILE = schema.table(
    {
        "version": schema.whole(1, _VERSION),
        "set_at": schema.seconds,
        "selection": schema.listed(schema.text(), 1000),
        "trials": schema.listed(_TRIAL, MOST_TRIALS),
    },
    needs=("version", "trials"),
    absent={"set_at": 0.0, "selection": []},
)


def is_name(text: str) -> bool:
    """Return True for a text that a baseline can be called."""
    return _NAME.fullmatch(text) is not None and text != LAST


def checked_name(text: str) -> str:
    """Return the name of a new baseline. Raises UsageError."""
    if text == LAST:
        raise UsageError(f"{LAST!r} stands for the latest run and cannot be a baseline's name")
    if not is_name(text):
        raise UsageError(
            f"{shown(text)!r} cannot be a baseline's name: it has letters, digits, dots, dashes "
            "and underscores, begins with a letter or digit, and is at most 100 characters long"
        )
    return text


def names(workspace: Path) -> list[str]:
    """Return the names of a workspace's baselines."""
    try:
        found = [path.name for path in (workspace / FOLDER).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(workspace / FOLDER, error) from None
    return sorted(name for name in map(_without_suffix, found) if is_name(name))


def read(workspace: Path, name: str) -> Baseline | None:
    """Return a baseline; None when there is none of that name. Raises WorkspaceError."""
    path = _path(workspace, name)
    notes: list[str] = []
    try:
        said = parse_json(read_file(path, _LARGEST_BYTES))
        document: dict[str, Any] = schema.checked(_FILE, said, path.name, notes)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise _unreadable(path, error) from None
    except Refused as error:
        raise WorkspaceError(f"{path}: {error}; set the baseline again, or remove it") from None
    except Wrong as error:
        raise WorkspaceError(f"{path} {error}; set the baseline again, or remove it") from None
    return Baseline(
        name=name,
        set_at=document["set_at"],
        selection=tuple(document["selection"]),
        trials=tuple(NamedTrial(**trial) for trial in document["trials"]),
        notes=tuple(notes),
    )


def named(workspace: Path, name: str) -> Baseline:
    """Return a baseline. Raises UsageError when there is none of that name."""
    found = read(workspace, name) if is_name(name) else None
    if found is None:
        near = nearest(name, names(workspace))
        hint = f"did you mean {near}?" if near else "`perfrun baseline list` shows those there are"
        raise UsageError(f"there is no baseline {shown(name)!r} in {workspace}; {hint}")
    return found


def write(
    workspace: Path, name: str, selection: Sequence[str], records: Sequence[SummaryRecord]
) -> Baseline:
    """Write a baseline, in the place of one of that name. Raises WorkspaceError."""
    trials = sorted(
        (_named_trial(record, workspace) for record in {r.uid: r for r in records}.values()),
        key=lambda trial: (trial.timestamp, trial.execution_id),
    )
    if len(trials) > MOST_TRIALS:
        raise UsageError(f"{len(trials):,} trials: a baseline names {MOST_TRIALS:,} at most")
    made = Baseline(
        name=checked_name(name),
        set_at=time.time(),
        selection=tuple(selection),
        trials=tuple(trials),
    )
    document = {
        "version": _VERSION,
        "set_at": made.set_at,
        "selection": list(selection),
        "trials": [asdict(trial) for trial in trials],
    }
    path = _path(workspace, name)
    try:
        for folder in make_folder(path.parent):
            sync_names(folder)
        write_whole(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be written: {error.strerror or error}") from None
    return made


def remove(workspace: Path, name: str) -> None:
    """Remove a baseline, also one whose file cannot be read; its trials stay."""
    if name not in names(workspace):
        named(workspace, name)  # it says what there is
    path = _path(workspace, name)
    try:
        path.unlink()
        sync_names(path.parent)
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be removed: {error.strerror or error}") from None


def named_trials(workspace: Path) -> tuple[NamedTrial, ...]:
    """Return all trials that baselines name. Raises WorkspaceError for a broken baseline."""
    found = (read(workspace, name) for name in names(workspace))
    return tuple(trial for one in found if one is not None for trial in one.trials)


def place_of(trial: NamedTrial, workspace: Path) -> Path | None:
    """Return the path at which the trial's summary was, if any; the workspace may have moved."""
    return workspace / trial.path if trial.path else None


def _named_trial(record: SummaryRecord, workspace: Path) -> NamedTrial:
    root, path = workspace.resolve(), record.path
    if path.name:  # else it is known from an index alone
        path = path.resolve()
        path = path.relative_to(root) if path.is_relative_to(root) else path
    return NamedTrial(
        uid=record.uid,
        execution_id=record.execution_id,
        method=record.method,
        timestamp=record.timestamp,
        path=str(path) if path.name else "",
    )


def _path(workspace: Path, name: str) -> Path:
    return workspace / FOLDER / f"{name}{_SUFFIX}"


def _without_suffix(name: str) -> str:
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else ""


def _unreadable(path: Path, error: OSError) -> WorkspaceError:
    return WorkspaceError(f"{path} cannot be read: {error.strerror or error}")

"""What perfrun remembers of its jobs: which array has which shards, and what Slurm said last.

    engine/slurm/batch-00001.json   written before `sbatch`, and with the job's number after it
    engine/slurm/states.json        what Slurm said, and when it was asked

A batch's name is its job's name, and unique: so the jobs of a `perfrun submit` that was killed
before it could write a number down are found by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from perfrun.durable import make_folder, sync_names
from perfrun.errors import WorkspaceError
from perfrun.shards.places import engine_folder
from perfrun.shards.plan import Plan
from perfrun.shards.plan_file import MOST_SHARDS
from perfrun.untrusted import Folder, Refused

STATES = "states.json"
_BATCH = re.compile(r"batch-([0-9]{5})\.json")
_LARGEST_BYTES = 16 * 2**20
_Index = Annotated[int, Meta(ge=0, lt=MOST_SHARDS)]
_Job = Annotated[str, Meta(pattern=r"^([0-9]{1,18})?\Z")]
_Word = Annotated[str, Meta(pattern=r"^[A-Z_]{1,40}\Z")]


class _Batch(Struct, frozen=True, forbid_unknown_fields=True):
    indices: Annotated[list[_Index], Meta(min_length=1, max_length=MOST_SHARDS)]
    job: _Job = ""


class _Said(Struct, frozen=True, forbid_unknown_fields=True):
    asked: Annotated[float, Meta(ge=0, le=1e11)]
    states: dict[_Index, tuple[Annotated[int, Meta(ge=1, le=99_999)], _Word]]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The shards of one array: task `n` runs `indices[n]`."""

    number: int  # from 1
    name: str  # of the job
    indices: tuple[int, ...]
    job: str = ""  # its number; empty until Slurm has said it


@dataclass(frozen=True, kw_only=True)
class Said:
    """Slurm's words on shards, each with the number of the batch that they are about."""

    asked: float = 0.0  # seconds since the epoch; 0: never
    states: Mapping[int, tuple[int, str]] = field(default_factory=dict)


class Batches:
    """The files of one submission's jobs."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        try:
            self.folder: Path = engine_folder(plan) / "slurm"
            for above in make_folder(self.folder):
                sync_names(above)
        except OSError as error:
            raise self._unwritten(error) from None

    def all(self) -> tuple[Batch, ...]:
        """Return the batches, the first one first."""
        with Folder(self.folder) as folder:
            found = [self._read(folder, number) for number in _numbers(folder)]
        return tuple(batch for batch in found if batch is not None)

    def new(self, indices: Sequence[int]) -> Batch:
        """Write down that these shards are about to be submitted."""
        with Folder(self.folder) as folder:
            names = folder.names("batch-")
        number = 1 + max(
            (int(found[1]) for n in names if (found := _BATCH.fullmatch(n))), default=0
        )
        batch = Batch(number=number, name=self._name(number), indices=tuple(indices))
        self._write(f"batch-{number:05d}.json", _Batch(indices=list(indices)))
        return batch

    def submitted(self, batch: Batch, job: str) -> Batch:
        """Write down the number that Slurm gave."""
        file = _Batch(indices=list(batch.indices), job=job)
        self._write(f"batch-{batch.number:05d}.json", file)
        return replace(batch, job=job)

    def refused(self, batch: Batch) -> None:
        """Forget a batch of which nothing was submitted: what was said before it counts."""
        (self.folder / f"batch-{batch.number:05d}.json").unlink(missing_ok=True)

    def said(self) -> Said:
        """Return what Slurm said last; nothing when that cannot be read: it is asked again."""
        try:
            with Folder(self.folder) as folder:
                read = msgspec.json.decode(folder.read(STATES, _LARGEST_BYTES), type=_Said)
        except (OSError, Refused, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Said()
        return Said(asked=read.asked, states=read.states)

    def keep(self, said: Said) -> None:
        """Write down what Slurm said."""
        self._write(STATES, _Said(asked=said.asked, states=dict(said.states)))

    def _name(self, number: int) -> str:
        return f"perfrun-{self._plan.submission}-{number}"

    def _read(self, folder: Folder, number: int) -> Batch | None:
        name = f"batch-{number:05d}.json"
        try:
            read = msgspec.json.decode(folder.read(name, _LARGEST_BYTES), type=_Batch)
        except (OSError, Refused, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        known = len(self._plan.shards)
        if any(index >= known for index in read.indices):
            return None
        return Batch(
            number=number, name=self._name(number), indices=tuple(read.indices), job=read.job
        )

    def _write(self, name: str, file: Struct) -> None:
        try:
            with Folder(self.folder) as folder:
                folder.write(name, msgspec.json.encode(file) + b"\n")
        except OSError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> WorkspaceError:
        where = self._plan.folder / "engine"
        return WorkspaceError(f"{where}: cannot be written: {error.strerror or error}")


def _numbers(folder: Folder) -> list[int]:
    names = folder.names("batch-")
    return [int(found[1]) for name in names if (found := _BATCH.fullmatch(name))]

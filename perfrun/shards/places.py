"""The files of a shard: who ran it, how each attempt ended, and the one result that counts.

    shards/<index>/lock           held while a process works on the shard
    shards/<index>/attempt-<n>/   a workspace of its own: no two processes ever write into one
        begun.json                who began it, and when
        ended.json                how it ended; absent when it was killed
    shards/<index>/result.json    names the attempt that counts; the first to finish makes it

An attempt is claimed by making its folder, and a result by linking its file: both are atomic, also
on a shared file system. What another machine wrote is a stranger's word: checked, never followed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from perfrun.durable import make_folder, sync_names
from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.shards.plan import Plan
from perfrun.summary.result_folder import safe_name, write_whole
from perfrun.untrusted import Folder, Refused, remove_tree
from perfrun.workspace.cache import share_cache

HOSTS = "hosts"  # in a submission: a folder of each host, with the commits that it has fetched
BEGUN, ENDED, RESULT, LOCK = "begun.json", "ended.json", "result.json", "lock"
WITHDRAWN = "withdrawn"  # in an attempt whose result must not count again
_CHECKOUTS = ("site-packages", "git-cache", ".locks")  # in the workspace of an attempt
_LARGEST_BYTES = 64 * 2**20
_MOST_ATTEMPTS = 1000
_TRIES, _TRY_S = 40, 0.025  # to hold a shard
_ATTEMPT = re.compile(r"attempt-([1-9][0-9]{0,3})")
S = TypeVar("S", bound=Struct)
_Name = Annotated[str, Meta(pattern=r"^[^/\0]{1,255}\Z")]
_Time = Annotated[float, Meta(ge=0, le=1e11)]
_Short = Annotated[str, Meta(max_length=4000)]


class How(str, Enum):
    """How an attempt ended."""

    RAN = "ran"  # every trial ran
    FAILED = "failed"  # a trial did not: the benchmark's matter
    MACHINE = "machine"  # nothing could be measured here
    INTERRUPTED = "interrupted"  # by a signal: preempted, or cancelled


WITH_RESULT = (How.RAN, How.FAILED)


@dataclass(frozen=True, kw_only=True)
class Begun:
    """The begin of an attempt."""

    host: str
    pid: int
    begun: float  # seconds since the epoch
    job: str = ""  # of a scheduler


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of an attempt."""

    how: How
    ended: float
    reason: str = ""  # of a failure, in one line
    # Folders of the trials in the attempt's `output`, each with the SHA-256 of its summary.
    trials: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt, as its files tell it."""

    number: int
    folder: Path
    begun: Begun | None  # None: killed before it could say
    ended: Ended | None  # None: it still runs, or was killed


class _Begun(Struct, frozen=True):
    host: _Short
    pid: Annotated[int, Meta(ge=0, lt=2**31)]
    begun: _Time
    job: _Short = ""


class _Ended(Struct, frozen=True):
    how: How
    ended: _Time
    reason: _Short = ""
    trials: Annotated[
        list[tuple[_Name, Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]]],
        Meta(max_length=1_000_000),
    ] = []


class _Result(Struct, frozen=True):
    attempt: Annotated[int, Meta(ge=1, le=_MOST_ATTEMPTS)]


class ShardPlace:
    """The folder of one shard."""

    def __init__(self, plan: Plan, index: int) -> None:
        self.folder = plan.folder / "shards" / f"{index:05d}"

    @property
    def log(self) -> Path:
        """A file for what the processes of the shard print, where an engine keeps it."""
        return self.folder / "log.txt"

    def make(self) -> None:
        """Make the folder. Raises WorkspaceError."""
        try:
            for above in make_folder(self.folder):
                sync_names(above)
        except OSError as error:
            raise WorkspaceError(f"{self.folder}: cannot be made: {error.strerror}") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the shard; False when another process works on it. The kernel lets go of the dead's.

        Who only looks has the lock for a moment, too, so it is tried for a while. On a file system
        without locks nothing is held: then two attempts may run, and the first result counts.
        """
        with FileLock(self.folder / LOCK) as lock:
            for _ in range(_TRIES):
                if lock.try_own():
                    yield True
                    return
                time.sleep(_TRY_S)
            yield False

    def is_held(self) -> bool:
        """Return True when a process works on the shard now."""
        if not (self.folder / LOCK).exists():
            return False
        # Shared: several that look at once do not take each other for a process at work.
        with FileLock(self.folder / LOCK) as lock:
            return not lock.try_share()

    def claim(self, job: str = "", host: str = "") -> Attempt:
        """Make the folder of a new attempt; nobody else has it. Raises WorkspaceError."""
        try:
            for number in range(1, _MOST_ATTEMPTS + 1):
                folder = self.folder / f"attempt-{number}"
                try:
                    folder.mkdir()
                except FileExistsError:
                    continue
                begun = Begun(
                    host=host or socket.gethostname(), pid=os.getpid(), begun=time.time(), job=job
                )
                write_whole(folder / BEGUN, json.dumps(asdict(begun)) + "\n")
                sync_names(self.folder)
                return Attempt(number=number, folder=folder, begun=begun, ended=None)
        except OSError as error:
            why = error.strerror or error
            raise WorkspaceError(f"{self.folder}: cannot be written: {why}") from None
        raise WorkspaceError(f"{self.folder}: {_MOST_ATTEMPTS} attempts are enough")

    def end(self, attempt: Attempt, ended: Ended) -> bool:
        """Record how an attempt ended; True when it has made the shard's result.

        False for an attempt without one, and when another attempt was first. Raises WorkspaceError.
        """
        try:
            write_whole(attempt.folder / ENDED, json.dumps(asdict(ended)) + "\n")
            if ended.how not in WITH_RESULT:
                return False
            return self._publish(attempt)
        except OSError as error:
            raise WorkspaceError(f"{attempt.folder}: cannot be written: {error.strerror}") from None

    def _publish(self, attempt: Attempt) -> bool:
        aside = self.folder / f".{RESULT}.{os.urandom(8).hex()}"
        write_whole(aside, json.dumps({"attempt": attempt.number}) + "\n")
        try:
            os.link(aside, self.folder / RESULT)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            if (self.folder / RESULT).exists():
                return False
            aside.rename(self.folder / RESULT)
        finally:
            aside.unlink(missing_ok=True)
            sync_names(self.folder)
        return True

    def share_cache(self, attempt: Attempt) -> None:
        """Have the attempts on this host fetch each commit once; each has its own checkouts.

        The folder is the host's own, so that no lock of it is one of a shared file system. Where
        the file system has no links, an attempt fetches for itself.
        """
        with contextlib.suppress(OSError):
            host = self.folder.parent.parent / HOSTS / safe_name(socket.gethostname())
            share_cache(attempt.folder, host)

    def tidy(self, attempt: Attempt) -> None:
        """Remove the checkouts of an attempt that has ended: its results do not need them."""
        for name in _CHECKOUTS:
            remove_tree(attempt.folder / name)

    def settle(self) -> None:
        """Publish what an attempt was killed before it could publish. Hold the shard first."""
        if self.counted() is None:
            for attempt in self.unpublished()[:1]:
                self._publish(attempt)

    def unpublished(self) -> tuple[Attempt, ...]:
        """Return the attempts with a result that may count, while none does."""
        return tuple(
            one
            for one in self.attempts()
            if one.ended and one.ended.how in WITH_RESULT and not (one.folder / WITHDRAWN).exists()
        )

    def withdraw(self) -> None:
        """Let the shard be run again: its result no longer counts, and its trials stay."""
        if (attempt := self.counted()) is not None:
            write_whole(attempt.folder / WITHDRAWN, "")
            (self.folder / RESULT).unlink(missing_ok=True)
            sync_names(self.folder)

    def counted(self) -> Attempt | None:
        """Return the attempt that counts; None while there is no result."""
        found = _read(self.folder, RESULT, _Result)
        if found is None:
            return None
        attempt = self.attempt(found.attempt)
        ended = attempt.ended
        return attempt if ended and ended.how in WITH_RESULT else None

    def attempts(self) -> tuple[Attempt, ...]:
        """Return all attempts, the first one first."""
        try:
            with Folder(self.folder) as folder:
                names = folder.names("attempt-")
        except OSError:
            return ()
        numbers = [int(found[1]) for name in names if (found := _ATTEMPT.fullmatch(name))]
        return tuple(map(self.attempt, sorted(numbers)))

    def attempt(self, number: int) -> Attempt:
        """Return an attempt as its files tell it."""
        folder = self.folder / f"attempt-{number}"
        begun = _read(folder, BEGUN, _Begun)
        return Attempt(
            number=number,
            folder=folder,
            begun=None if begun is None else Begun(**msgspec.structs.asdict(begun)),
            ended=read_ended(folder),
        )


def read_ended(folder: Path, name: str = ENDED) -> Ended | None:
    """Return how an attempt ended, as a file in its folder says; None without a proper one."""
    said = _read(folder, name, _Ended)
    if said is None:
        return None
    trials = tuple(said.trials)
    return Ended(how=said.how, ended=said.ended, reason=said.reason, trials=trials)


def engine_folder(plan: Plan) -> Path:
    """Return the folder for what the plan's engine has to remember; make it. Raises OSError."""
    folder = plan.folder / "engine"
    folder.mkdir(exist_ok=True)
    return folder


def _read(folder: Path, name: str, kind: type[S]) -> S | None:
    """Read a small file; None when it is not there, is a link, or is not what it should be."""
    try:
        with Folder(folder) as opened:
            return msgspec.json.decode(opened.read(name, _LARGEST_BYTES), type=kind)
    except (OSError, Refused, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

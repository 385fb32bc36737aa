"""The index over summaries. The summaries stay the truth: delete an index and build it anew.

with open_store(parse_address(None, workspace)) as store:
    store.refresh()
    for series in store.series(metric="wall_time"):
        ...
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select

from perfrun.ancestry import Ancestry
from perfrun.garbage import no_collection
from perfrun.store import reading
from perfrun.store.address import Address
from perfrun.store.connection import Database
from perfrun.store.extraction import BadSummary, Record, parse
from perfrun.store.folders import Found, Scan, scan, storable, would_be_found
from perfrun.store.identity import text
from perfrun.store.query import BadFile, Counts, Selector, Series, Trial
from perfrun.store.schema import bad_files, files
from perfrun.store.writing import Batch, FileKey, write

_BATCH = 500  # files in one transaction: a killed writer loses no more, others wait no longer


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What bringing an index up to date found."""

    found: int  # summaries in the folders
    read: int  # new or changed ones
    gone: int  # not there any more
    bad: int  # cannot be read; `Store.bad_files` names them
    empty: tuple[Path, ...] = ()  # of the folders named, those without any summary


@contextmanager
def open_store(address: Address) -> Iterator[Store]:
    """Open an index, making it if need be. Raises StoreError, also for one of a newer perfrun."""
    with Database(address) as database:
        yield Store(database)


class Store:
    """An index that is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.address = database.address
        workspace = self.address.workspace
        self._root = None if workspace is None else Path(os.path.realpath(workspace))
        self._start = f"{self._root}/"

    def refresh(self, folders: Sequence[Path] = ()) -> Refreshed:
        """Read what is new or changed in the index's workspace and in the folders.

        Raises UsageError for a folder that is not there, before anything is read.
        """
        with no_collection():
            own = [] if self._root is None else [scan(self._root / "output", must_be_there=False)]
            named = [scan(folder) for folder in folders]
        empty = [folder for folder, one in zip(folders, named, strict=True) if not one.found]
        return replace(self._take([*own, *named]), empty=tuple(empty))

    def add(self, paths: Iterable[Path]) -> Refreshed:
        """Read single summaries, whether they changed or not seem to have."""
        return self._take([scan(path) for path in paths])

    def series(
        self,
        method: str | None = None,
        metric: str | None = None,
        since: float | None = None,
        until: float | None = None,
        clones: Mapping[str, Path] | None = None,
    ) -> Iterator[Series]:
        """All series whose method and metric fit the patterns (`*`).

        Points are in the order of their commits where a checkout was pinned and its history is at
        hand: in `clones` (by the checkout's folder) or where `Ancestry` looks; else by time.
        `since` (inclusive) and `until` (exclusive) are seconds since the epoch.
        """
        with no_collection(), self._database.reading() as connection:
            found = list(
                reading.read_series(
                    connection, self._root, method=method, metric=metric, since=since, until=until
                )
            )
            urls = reading.read_urls(connection)
        # Not a generator: no transaction stays open while they are used.
        return iter(Ancestry(clones or {}, self._root).ordered(found, urls))

    def trials(self, selector: Selector | None = None) -> Iterator[Trial]:
        """The chosen trials by time, those that failed too."""
        with no_collection(), self._database.reading() as connection:
            return iter(list(reading.read_trials(connection, self._root, selector or Selector())))

    def bad_files(self) -> tuple[BadFile, ...]:
        """The summaries that could not be read when they were last looked at."""
        with self._database.reading() as connection:
            return reading.read_bad_files(connection, self._root)

    def counts(self) -> Counts:
        """How much the index holds."""
        with self._database.reading() as connection:
            return reading.read_counts(connection)

    def _take(self, scans: Sequence[Scan]) -> Refreshed:
        with no_collection():
            found = {path: one for part in scans for path, one in part.found.items()}
            known = self._known()
            keys = {path: self._key(path) for path in found}
            there = set(keys.values())
            changed = [one for path, one in found.items() if known.get(keys[path]) != one.stamp]
            gone = self._gone(scans, known, there)
        for at in range(0, len(changed), _BATCH):
            self._write(_read(changed[at : at + _BATCH], keys))
        for at in range(0, len(gone), _BATCH):
            self._write(Batch(gone=gone[at : at + _BATCH]))
        bad = self._bad_keys().keys() & there
        return Refreshed(found=len(found), read=len(changed), gone=len(gone), bad=len(bad))

    def _write(self, batch: Batch) -> None:
        with self._database.writing() as connection:
            # A store that was named is where the results of many machines come together; what
            # they said stays when they are gone. A workspace's own index is what is there.
            write(connection, batch, keep_gone=self._root is None)

    def _key(self, path: str) -> FileKey:
        """Files of the workspace are named relative to it: it may be mounted elsewhere tomorrow."""
        if self._root is not None and path.startswith(self._start):
            return FileKey("", storable(path[len(self._start) :]))
        return FileKey(socket.gethostname(), storable(path))

    def _known(self) -> dict[FileKey, str]:
        """The stamps of this host's files as they were when they were read."""
        with self._database.reading() as connection:
            where = files.c.host.in_(_hosts()) & ~files.c.gone
            query = select(files.c.host, files.c.path, files.c.stamp).where(where)
            rows = connection.execute(query).all()  # one by one takes longer
            known = {FileKey(host, path): stamp for host, path, stamp in rows}
        return {**known, **self._bad_keys()}

    def _bad_keys(self) -> dict[FileKey, str]:
        columns = (bad_files.c.host, bad_files.c.path, bad_files.c.stamp)
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).where(bad_files.c.host.in_(_hosts())))
            return {FileKey(host=row.host, path=row.path): row.stamp for row in rows}

    def _gone(
        self, scans: Sequence[Scan], known: Iterable[FileKey], there: set[FileKey]
    ) -> list[FileKey]:
        folders = {storable(folder) for part in scans for folder in part.folders}
        return [
            key
            for key in known
            if key not in there
            and would_be_found(key.path if key.host else f"{self._start}{key.path}", folders)
        ]


def _hosts() -> tuple[str, str]:
    return ("", socket.gethostname())


def _read(found: Sequence[Found], keys: Mapping[str, FileKey]) -> Batch:
    """Read and judge files; one that has just gone is left out."""
    good: dict[FileKey, tuple[str, Record]] = {}
    bad: dict[FileKey, tuple[str, str]] = {}
    for one in found:
        key = keys[one.path]
        try:
            if one.problem:
                raise BadSummary(one.problem)
            good[key] = (one.stamp, parse(Path(one.path).read_bytes()))
        except BadSummary as error:
            bad[key] = (one.stamp, text(str(error)))
        except FileNotFoundError:
            continue
        except OSError as error:
            bad[key] = (one.stamp, error.strerror or str(error))
    return Batch(good=good, bad=bad)

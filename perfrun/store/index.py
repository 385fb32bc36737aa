"""The index over summaries. It holds nothing that the summaries lack, so it can be rebuilt.

with open_store(parse_address(None, workspace)) as store:
    store.refresh()
    for series in store.series(metric="wall_time"):
        ...
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Table, func, select

from perfrun.options.store_address import Address
from perfrun.store import reading
from perfrun.store.ancestry import by_ancestry
from perfrun.store.database import Database
from perfrun.store.garbage_collection import no_collection
from perfrun.store.places import FileKey, Places, Scan, scan, storable, would_be_found
from perfrun.store.quarantine import Quarantine
from perfrun.store.quarantine import read as read_quarantine
from perfrun.store.query import BadFile, Counts, Selector, Series
from perfrun.store.rows import read_rows
from perfrun.store.schema import bad_files, files, trials
from perfrun.store.trial_facts import TrialFacts, read_facts, read_whole
from perfrun.store.writing import (
    Batch,
    TrialRows,
    by_place,
    of_files,
    rows_of,
    write_batch,
    write_roots,
)
from perfrun.summary.record import BadSummary, SummaryRecord, read_record
from perfrun.summary.series_identity import text

COLUMNS_FROM = 50_000  # trials; below, to read them takes less time than to import numpy
_COLUMNS, _SCANS = "-columns", "-scans"  # at the end of the names of their files
_NEWEST = select(func.max(trials.c.id))
_READ_AGAIN = ""  # the stamp of no file
_BATCH = 500  # files in one transaction: a killed writer loses no more, others wait no longer


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """The result of bringing an index up to date."""

    found: int  # summaries in the folders
    read: int  # new or changed ones
    gone: int  # no longer there
    bad: int  # cannot be read; `Store.bad_files` names them
    empty: tuple[Path, ...] = ()  # the named folders without any summary


@contextmanager
def open_store(
    address: Address, *, patience_s: float | None = None, beside: Path | None = None
) -> Iterator[Store]:
    """Open an index, or make it. Raises StoreError, also for the index of a newer perfrun.

    A server that is full or starts is asked again for `patience_s`, half a minute by default. The
    columns of a large index on a server lie in the folder `beside`, if one is given.
    """
    with Database(address, patience_s=patience_s) as database:
        yield Store(database, beside)


class Store:
    """An index that is open."""

    def __init__(self, database: Database, beside: Path | None = None) -> None:
        self._database, self._beside = database, beside
        self.address = database.address
        workspace = self.address.workspace
        self._root = None if workspace is None else Path(os.path.realpath(workspace))
        self._places = Places(self._root)
        self.left_out: dict[str, int] = {}  # trials that `series` left out, by their node

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
        """Read single summaries that are new or changed."""
        return self._take([scan(path) for path in paths])

    def series(
        self,
        method: str | None = None,
        metric: str | None = None,
        since: float | None = None,
        until: float | None = None,
        clones: Mapping[str, Path] | None = None,
        *,
        which: reading.Which = "all",
        methods: Sequence[str] = (),
        with_quarantine: bool = False,
    ) -> Iterator[Series]:
        """Return the series whose method and metric fit the patterns (`*`).

        Points are in the order of their commits where a checkout was pinned and its history is at
        hand: in `clones` (by the checkout's folder) or where `by_ancestry` finds it; else by time.
        `since` (inclusive) and `until` (exclusive) are seconds since the epoch. `which`
        selects primary metrics or derived ones. `methods` are further patterns for methods.
        Trials of nodes in quarantine are left out unless `with_quarantine` says otherwise;
        `left_out` counts them.
        """
        named = (*methods, *([method] if method else []))
        selector = Selector(methods=named, since=since, until=until)
        with no_collection(), self._database.reading() as connection:
            self.left_out = {}
            left_out = set() if with_quarantine else self._in_quarantine(connection)
            # The columns hold what nobody has left out.
            plain = selector != Selector() or bool(left_out)
            at = None if plain else self._beside_large(connection, _COLUMNS)
            found = list(
                reading.read_series(
                    connection, self._root, selector, metric=metric, which=which, left_out=left_out
                )
                if at is None
                else reading.read_series_of_columns(
                    *(connection, at, self._later, self._root), metric=metric, which=which
                )
            )
            urls = reading.read_urls(connection)
        # No generator, so that no transaction stays open while the series are used.
        return iter(by_ancestry(found, urls, clones or {}, self._root))

    @property
    def scans_beside(self) -> Path | None:
        """The file for what searches have said of the series; None without a place, as `beside`."""
        with self._database.reading() as connection:
            return self._beside_large(connection, _SCANS)

    def _beside_large(self, connection: Connection, ending: str) -> Path | None:
        """Return a file beside the index; None where that is small, or there is no place."""
        if (connection.execute(_NEWEST).scalar() or 0) < COLUMNS_FROM:
            return None
        if (file := self.address.file) is not None:
            return file.with_name(f"{file.name}{ending}")
        if self._beside is None or not self._beside.is_dir():
            return None
        name = hashlib.sha256(self.address.shown.encode()).hexdigest()[:16]
        return self._beside / f".store-{name}{ending}"

    @contextmanager
    def _later(self) -> Iterator[Connection]:
        """Open a transaction, or go on in that of `series`; also when this has been closed."""
        if (now := self._database.now) is not None:
            yield now
            return
        if not self._database.is_closed:
            with self._database.reading() as connection:
                yield connection
            return
        with Database(self.address) as database, database.reading() as connection:
            yield connection

    def _in_quarantine(self, connection: Connection) -> set[int]:
        """Return the ids of the trials that do not count, and count them by node."""
        quarantine = read_quarantine(self.address.home) if self.address.home else Quarantine()
        if not quarantine.periods:
            return set()
        found = set()
        for number, node, timestamp in reading.read_trials_of_nodes(connection, quarantine.nodes):
            if quarantine.leaves_out(node, timestamp):
                found.add(number)
                self.left_out[node] = self.left_out.get(node, 0) + 1
        return found

    def trials(self, selector: Selector | None = None) -> Iterator[SummaryRecord]:
        """Return the selected trials in the order of time, including those that failed."""
        with no_collection(), self._database.reading() as connection:
            return iter(list(reading.read_trials(connection, self._root, selector or Selector())))

    def facts(self) -> list[TrialFacts]:
        """Return of all trials, those that failed too, what takes little to read; by time."""
        with no_collection(), self._database.reading() as connection:
            return read_facts(connection)

    def whole(self, numbers: Sequence[int]) -> dict[int, SummaryRecord]:
        """Return trials by their numbers, also when this has been closed."""
        with self._later() as connection:
            return read_whole(connection, self._root, numbers)

    def newest(self, until: float) -> tuple[str, str] | None:
        """Return the run id and the execution id of the newest trial before a time."""
        with self._database.reading() as connection:
            return reading.read_newest(connection, until)

    def labels(self) -> list[str]:
        """Return the labels of the newest trials, a thousand at most."""
        with self._database.reading() as connection:
            return reading.read_labels(connection)

    def nodes(self) -> list[str]:
        """Return the host names of all trials."""
        with self._database.reading() as connection:
            return reading.read_nodes(connection)

    def bad_files(self) -> tuple[BadFile, ...]:
        """Return the summaries that could not be read at the last attempt."""
        with self._database.reading() as connection:
            return reading.read_bad_files(connection, self._root)

    def counts(self) -> Counts:
        """Return how much the index holds."""
        with self._database.reading() as connection:
            return reading.read_counts(connection)

    def _take(self, scans: Sequence[Scan]) -> Refreshed:
        found: dict[str, str] = {}
        problems: dict[str, str] = {}
        for part in scans:
            found.update(part.found)
            problems.update(part.problems)
        with no_collection():
            keys = {path: self._places.key(path) for path in found}
            named = {key.place for key in keys.values()}
            listed = [folder for part in scans for folder in part.folders]
            # Single files do not cost more in a store of a million: nothing else can have gone.
            alone = None if listed else list(keys.values())
            known = self._known(named | self._places.of_folders(listed), alone)
            changed = [
                (keys[path], path, stamp, problems.get(path, ""))
                for path, stamp in found.items()
                if known.get(keys[path]) != stamp
            ]
            gone = self._gone(scans, found, known.keys() - set(keys.values()))
        self._write_roots()
        for at in range(0, len(changed), _BATCH):
            self._write(_read(changed[at : at + _BATCH]))
        for at in range(0, len(gone), _BATCH):
            self._write(Batch(gone=gone[at : at + _BATCH]))
        bad = self._stamps(bad_files, named, alone).keys() & set(keys.values())
        return Refreshed(found=len(found), read=len(changed), gone=len(gone), bad=len(bad))

    def _write(self, batch: Batch) -> None:
        with self._database.writing() as connection:
            # An index named with --store collects the results of many machines, and keeps them when
            # the files are gone. A workspace's own index mirrors its files.
            write_batch(connection, batch, keep_gone=self._root is None)

    def _write_roots(self) -> None:
        with self._database.reading() as connection:
            known = reading.read_roots(connection)
        moved = {n: root for n, root in self._places.roots.items() if known.get(n) != root}
        if moved:
            with self._database.writing() as connection:
                write_roots(connection, moved)

    def _known(self, places: set[str], alone: Sequence[FileKey] | None) -> dict[FileKey, str]:
        """Return the stamps that the files of these places had when they were read."""
        good = self._stamps(files, places, alone)
        return {**good, **self._stamps(bad_files, places, alone)}

    def _stamps(
        self, table: Table, places: set[str], alone: Sequence[FileKey] | None
    ) -> dict[FileKey, str]:
        """Return the stamps in a table, of the files of these places or of those alone."""
        wheres: list[ColumnElement[bool]] = [table.c.place.in_(places)]
        if alone is not None:
            wheres = [of_files(table, place, paths) for place, paths in by_place(alone)]
        known: dict[FileKey, str] = {}
        with self._database.reading() as connection:
            for where in wheres:
                query = select(table.c.place, table.c.path, table.c.stamp).where(where)
                if table is files:
                    query = query.where(~files.c.gone)
                rows = read_rows(connection, query)
                known.update({FileKey(place, path): stamp for place, path, stamp in rows})
        return known

    def _gone(
        self, scans: Sequence[Scan], found: Mapping[str, str], not_found: Iterable[FileKey]
    ) -> list[FileKey]:
        folders = {storable(folder) for part in scans for folder in part.folders}
        there = {storable(path) for path in found}
        paths = {key: self._places.path(key) for key in not_found}
        return sorted(
            key
            for key, path in paths.items()
            if path not in there and would_be_found(path, folders)
        )


def _read(found: Sequence[tuple[FileKey, str, str, str]]) -> Batch:
    """Read files, given key, path, stamp and problem. A file that has just gone is left out."""
    good: dict[FileKey, tuple[str, TrialRows]] = {}
    bad: dict[FileKey, tuple[str, str]] = {}
    for key, path, stamp, problem in found:
        try:
            if problem:
                raise BadSummary(problem)
            good[key] = (stamp, rows_of(read_record(Path(path))))
        except BadSummary as error:
            bad[key] = (stamp, text(str(error)))
        except FileNotFoundError:
            continue
        except OSError as error:  # of the disk or of a mode, not of the content: read again later
            bad[key] = (_READ_AGAIN, error.strerror or str(error))
        except (RecursionError, TypeError, ValueError) as error:
            bad[key] = (stamp, text(f"cannot be used: {type(error).__name__}: {error}")[:200])
    return Batch(good=good, bad=bad)

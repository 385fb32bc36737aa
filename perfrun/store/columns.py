"""The numbers of a large index in columns, kept in a file beside it: only new trials are read anew.

Most of what `perfrun detect` needs of five million trials are times, figures and marks; texts are
needed of the few trials that it names. Trials are numbered in the order in which they were added,
so those after the last known one are new. The index has a state that is another one when any row of
a trial was changed or deleted, and then all is read again, as without the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from perfrun.store.array_file import read_arrays, write_arrays
from perfrun.store.query import Columns, Origin, RowsToRead
from perfrun.store.rows import read_rows
from perfrun.store.schema import measurements, meta, trials
from perfrun.summary.document import Status

_FORMAT = "2"  # of the file; another one is not read
_ROWS_AT_ONCE = 100_000
_MOST_SINGLE = 8  # trials of a series that are read one by one; a question for each takes time
_LOOKED_AT = 1_000  # trials at the end of the index, and as many spread over it
_STATUSES = tuple(status.value for status in Status)
_TRIALS = np.dtype(
    [
        ("id", "i8"),
        ("subject", "i8"),
        ("context", "i8"),
        ("time", "f8"),
        ("run", "u8"),  # of its id's digest; 0 without one
        ("status", "u1"),  # its place among `Status`
        ("disturbed", "?"),
    ]
)
_FIGURES = np.dtype([("trial", "i8"), ("metric", "i4"), ("value", "f8")])  # its place, not its id

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Facts(NamedTuple):
    """Those of a trial in columns."""

    run_id: str  # of its digest; '' without one
    timestamp: float
    status: str
    disturbed: bool


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What an index was like when its columns were read."""

    state: str
    uids: str  # digest of ids and uids: of the last trials, and of some of all others


@dataclass(frozen=True, kw_only=True)
class StoreColumns:
    """The trials of an index in the order of their ids, and their figures in that order."""

    mark: Mark
    trials: NDArray[Any]
    figures: NDArray[Any]


def read_columns(connection: Connection, path: Path) -> StoreColumns:
    """Return the columns of all trials: those of the file, and the rows that came after it.

    The file is written again when there were any. One that is damaged, foreign, or of another state
    of the index counts as none.
    """
    query = select(meta.c.value).where(meta.c.key == "state")
    state = str(connection.execute(query).scalar_one())
    known = _load(path)
    if known is None or known.mark.state != state or not _is_of(connection, known):
        mark = Mark(state=state, uids="")
        known = StoreColumns(mark=mark, trials=np.empty(0, _TRIALS), figures=np.empty(0, _FIGURES))
    now = _with_new(connection, known)
    if now is not known:
        with contextlib.suppress(OSError):  # a folder that is full or read-only: read again then
            _save(path, now)
    return now


def _is_of(connection: Connection, known: StoreColumns) -> bool:
    """Return False for the columns of an index whose place another one has taken.

    So has one that lost its last trials, or was put back from a backup, and got these trials again
    in another order: its ids are those of other trials.
    """
    return not len(known.trials) or _uids(connection, known.trials["id"]) == known.mark.uids


def _uids(connection: Connection, ids: Integers) -> str:
    """Return the digest of the uids of the last trials, and of some of all others."""
    spread = np.linspace(0, len(ids) - 1, min(len(ids), _LOOKED_AT), dtype=np.int64)
    chosen = {*ids[-_LOOKED_AT:].tolist(), *ids[spread].tolist()}
    query = select(trials.c.id, trials.c.uid).where(trials.c.id.in_(chosen)).order_by(trials.c.id)
    digest = blake2b(digest_size=16)
    for row in read_rows(connection, query):
        digest.update("{}\0{}\0".format(*row).encode())
    return digest.hexdigest()


def _with_new(connection: Connection, known: StoreColumns) -> StoreColumns:
    last = int(known.trials["id"][-1]) if len(known.trials) else 0
    newest = connection.execute(select(func.max(trials.c.id))).scalar() or 0
    if newest <= last:
        return known
    own = (
        *(trials.c.id, trials.c.subject_id, trials.c.context_id, trials.c.timestamp),
        *(trials.c.run_id, trials.c.status, trials.c.disturbed),
    )
    codes = {value: code for code, value in enumerate(_STATUSES)}
    runs: dict[str, int] = {}

    def row_of(row: Any) -> tuple[Any, ...]:
        number, subject, context, time, run_id, status, disturbed = row
        if run_id not in runs:
            runs[run_id] = _digest(run_id)
        return number, subject, context, time, runs[run_id], codes[status], disturbed

    query = select(*own).where(trials.c.id > last).order_by(trials.c.id)
    added = _array(connection, query, _TRIALS, row_of)
    # Of ids: they become places below, where numpy does it for all at once.
    columns = (measurements.c.trial_id, measurements.c.metric_id, measurements.c.value)
    query = select(*columns).where(measurements.c.trial_id > last).order_by(*columns[:2])
    figures = _array(connection, query, _FIGURES, tuple)
    figures["trial"] = len(known.trials) + np.searchsorted(added["id"], figures["trial"])
    every = np.concatenate([known.trials, added])
    return StoreColumns(
        mark=Mark(state=known.mark.state, uids=_uids(connection, every["id"])),
        trials=every,
        figures=np.concatenate([known.figures, figures]),
    )


def _digest(run_id: str) -> int:
    return int.from_bytes(blake2b(run_id.encode(), digest_size=8).digest(), "big") if run_id else 0


def _array(
    connection: Connection, query: Any, kind: np.dtype[Any], row_of: Callable[[Any], Any]
) -> NDArray[Any]:
    parts = [np.empty(0, kind)]
    rows: list[Any] = []
    for row in read_rows(connection, query):
        rows.append(row_of(row))
        if len(rows) == _ROWS_AT_ONCE:
            parts.append(np.array(rows, kind))
            rows = []
    parts.append(np.array(rows, kind))
    return np.concatenate(parts)


def _load(path: Path) -> StoreColumns | None:
    found = read_arrays(path, {"trials": _TRIALS, "figures": _FIGURES})
    if found is None or len(found["about"]) != 3 or found["about"][0] != _FORMAT:
        return None
    known, figures = found["trials"], found["figures"]
    if len(figures) and not (0 <= figures["trial"].min() <= figures["trial"].max() < len(known)):
        return None
    if len(known) and known["status"].max() >= len(_STATUSES):
        return None
    mark = Mark(state=str(found["about"][1]), uids=str(found["about"][2]))
    return StoreColumns(mark=mark, trials=known, figures=figures)


def _save(path: Path, columns: StoreColumns) -> None:
    about = (_FORMAT, columns.mark.state, columns.mark.uids)
    write_arrays(path, about, {"trials": columns.trials, "figures": columns.figures})


class TrialRows(RowsToRead):
    """Trials in the order of time, whose texts are read when one of them is looked at."""

    def __init__(
        self,
        columns: StoreColumns,
        places: Integers,
        ranks: Integers,
        commits_of: Mapping[int, Mapping[str, str]],
        read: Callable[[Sequence[int]], Mapping[int, Origin]],
    ) -> None:
        """Take the trials by their places; `ranks` of all trials order those of a subject by time.

        `commits_of` are those of contexts; `read` gives the rows of ids.
        """
        self._columns, self.places, self._all_ranks = columns, places, ranks
        self._commits_of, self._read = commits_of, read
        self._rows: list[Origin] | None = None
        self._single: dict[int, Origin] = {}  # by their id, until all are read
        self._asked = 0  # questions for one of them

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Origin]:
        return iter(self._all())

    def __getitem__(self, place: Any) -> Any:
        if self._rows is None and isinstance(place, int):
            number = int(self._columns.trials["id"][self.places[place]])
            if number not in self._single and self._asked < _MOST_SINGLE:
                self._asked += 1
                self._single[number] = self._read([number])[number]
            if number in self._single:
                return self._single[number]
        return self._all()[place]

    def read_ahead(self, several: Iterable[tuple[RowsToRead, int]]) -> None:
        """Read single trials of the same index, given where they stand, at once."""
        wanted = [
            (rows, int(self._columns.trials["id"][rows.places[place]]))
            for rows, place in several
            if isinstance(rows, TrialRows) and rows._rows is None
        ]
        found = self._read(sorted({number for _, number in wanted}))
        for rows, number in wanted:
            rows._single[number] = found[number]

    def _all(self) -> list[Origin]:
        if self._rows is None:
            ids = self._columns.trials["id"][self.places].tolist()
            found = self._read(ids)
            self._rows = [found[number] for number in ids]
        return self._rows

    @property
    def times(self) -> list[float]:
        """The seconds since the epoch at which each began."""
        times: list[float] = self._columns.trials["time"][self.places].tolist()
        return times

    @property
    def numbers(self) -> list[int]:
        """The numbers of the trials in the index."""
        numbers: list[int] = self._columns.trials["id"][self.places].tolist()
        return numbers

    @property
    def facts(self) -> list[_Facts]:
        """Their facts, one by one."""
        own = self._columns.trials[self.places]
        return [
            _Facts(f"{run:x}" if run else "", time, _STATUSES[status], disturbed)
            for run, time, status, disturbed in zip(
                *(own[name].tolist() for name in ("run", "time", "status", "disturbed")),
                strict=True,
            )
        ]

    @property
    def quiet_single_runs(self) -> bool:
        """True where each is a run of its own and none was disturbed."""
        own = self._columns.trials[self.places]
        runs = np.sort(own["run"])
        return not own["disturbed"].any() and bool(runs[0]) and not (runs[1:] == runs[:-1]).any()

    @property
    def commits(self) -> list[Mapping[str, str]]:
        """The commits of each; trials of a context share one object."""
        contexts = self._columns.trials["context"][self.places].tolist()
        return [self._commits_of[number] for number in contexts]

    def is_same(self, other: Sequence[Origin]) -> bool:
        """Return True for just the same trials in the same order."""
        return isinstance(other, TrialRows) and np.array_equal(self.places, other.places)

    def taken(self, order: Sequence[int]) -> TrialRows:
        """Return them in another order."""
        return self._at(self.places[np.asarray(order, dtype=np.int64)])

    @property
    def ranks(self) -> list[int]:
        """Numbers that order the trials of a subject by time, of each."""
        ranks: list[int] = self._all_ranks[self.places].tolist()
        return ranks

    def joined(self, others: Sequence[RowsToRead]) -> TrialRows:
        """Return them with others of the same index behind them."""
        own = [other.places for other in others if isinstance(other, TrialRows)]
        return self._at(np.concatenate([self.places, *own]))

    def _at(self, places: Integers) -> TrialRows:
        return TrialRows(self._columns, places, self._all_ranks, self._commits_of, self._read)


def series_columns(
    columns: StoreColumns,
    metric_ids: Sequence[int],
    commits_of: Mapping[int, Mapping[str, str]],
    read: Callable[[Sequence[int]], Mapping[int, Origin]],
    names: Callable[[Sequence[int]], Mapping[int, str]],
) -> dict[int, dict[int, Columns]]:
    """Return the columns of each subject's metrics, in the order of time.

    `names` gives the execution ids of trials: the order of those that began at the same time.
    """
    kept = columns.figures[np.isin(columns.figures["metric"], np.array(metric_ids, dtype="i4"))]
    ranks = _ranks(columns.trials, names)
    subjects = columns.trials["subject"][kept["trial"]]
    order = np.lexsort((ranks[kept["trial"]], kept["metric"], subjects))
    kept, subjects = kept[order], subjects[order]
    is_new = np.flatnonzero(
        (subjects[1:] != subjects[:-1]) | (kept["metric"][1:] != kept["metric"][:-1])
    )
    bounds = [0, *(is_new + 1).tolist(), len(kept)] if len(kept) else []
    found: dict[int, dict[int, Columns]] = {}
    for begin, end in pairwise(bounds):
        own = kept[begin:end]
        rows = TrialRows(columns, own["trial"], ranks, commits_of, read)
        by_metric = found.setdefault(int(subjects[begin]), {})
        by_metric[int(own["metric"][0])] = (rows, own["value"].tolist())
    return found


def _ranks(known: NDArray[Any], names: Callable[[Sequence[int]], Mapping[int, str]]) -> Integers:
    """Return for each trial a number that orders the trials of its subject by time."""
    order = np.lexsort((known["id"], known["time"], known["subject"]))
    times, subjects = known["time"][order], known["subject"][order]
    equal = np.flatnonzero((times[1:] == times[:-1]) & (subjects[1:] == subjects[:-1]))
    if len(equal):  # imported results; else few begin in the same microsecond
        touched = np.unique(np.concatenate([equal, equal + 1]))
        ids = known["id"][order[touched]].tolist()
        named = names(ids)
        texts = [named[number] for number in ids]
        rows = zip(
            *(some[order[touched]].tolist() for some in (known["subject"], known["time"])),
            texts,
            order[touched].tolist(),
            strict=True,
        )
        order[touched] = [one[-1] for one in sorted(rows)]
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks

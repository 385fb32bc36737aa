"""Find the summaries that a word of the command line names, by folder or in a workspace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from perfrun.compare import baselines
from perfrun.compare.baselines import LAST, NamedTrial
from perfrun.compare.differences import damage
from perfrun.errors import StoreError, UsageError
from perfrun.options.parsers import nearest, shown
from perfrun.store import quarantine
from perfrun.summary.record import SUMMARY, SummaryRecord, read_record
from perfrun.text import redact
from perfrun.worker.folders import places

if TYPE_CHECKING:
    from perfrun.options.store_address import Address
    from perfrun.store.query import Selector

_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?"
_DATES = re.compile(rf"({_DATE})(?:\.\.({_DATE}))?")
_HASH = re.compile(r"[0-9a-fA-F]{4,64}")
KINDS = ("run", "label", "id", "hash", "date", "baseline")
# A clock may be a little ahead; what says that it is of next year is not the latest run for a year.
_AHEAD_S = 24 * 3600.0
_IDS_AT_ONCE = 500  # in a query; older SQLites take a thousand values
Notify = Callable[[str], None]


class Results:
    """The results that words choose from: those of a workspace, read once, or of an index."""

    def __init__(self, workspace: Path, notify: Notify, store: str | None = None) -> None:
        """Take `store` from `--store`; without it, use the workspace's index if there is one."""
        self._workspace, self._notify, self._store = workspace, notify, store

    def select(self, word: str) -> tuple[SummaryRecord, ...]:
        """Return the results that the word names. Raises UsageError for none, or two meanings."""
        kind, colon, rest = word.partition(":")
        if colon and kind in KINDS:
            chosen = self._chosen(kind, rest)
            if not chosen:
                hint = self._hint(rest, kind, f"{kind}:")
                raise UsageError(f"{word}: {self._place} holds no such results{hint}")
            return chosen
        if word and exists(Path(word)):
            return read_folder(Path(word), self._notify)
        found = {kind: self._chosen(kind, word) for kind in KINDS if word}
        kinds = [kind for kind, records in found.items() if records]
        if not kinds and word == LAST:
            raise UsageError(f"{self._place} holds no results, so there is no last run")
        if not kinds:
            hint = self._hint(word)
            raise UsageError(
                f"{word!r} is neither a folder nor a run, label, execution id, commit, date or "
                f"baseline of the results in {self._place}{hint}"
            )
        if len(kinds) > 1:
            choices = " or ".join(f"{kind}:{word}" for kind in kinds)
            raise UsageError(f"{word!r} means several things in {self._place}: say {choices}")
        return found[kinds[0]]

    @property
    def _place(self) -> str:
        return redact(self._store) if self._store else str(self._workspace)

    def _hint(self, word: str, kind: str = "", prefix: str = "") -> str:
        """Return what was perhaps meant: `last`, a baseline or a label; nothing else has a name."""
        known = {
            "run": [LAST],
            "baseline": baselines.names(self._workspace),
            "label": self._labels(),
        }
        names = known.get(kind, []) if kind else [name for one in known.values() for name in one]
        near = nearest(word, names) if word else None
        return f"; did you mean {prefix}{shown(near)}?" if near else ""

    def _labels(self) -> list[str]:
        if self._index is None:
            return sorted({record.label for record in self._all if record.label})
        from perfrun.store.index import open_store

        with open_store(self._index) as store:
            return store.labels()

    def _chosen(self, kind: str, word: str) -> tuple[SummaryRecord, ...]:
        if kind == "baseline":
            return self._of_baseline(word)
        if kind == "run" and word == LAST:
            return self._of_last_run()
        meets = _condition(kind, word)
        if meets is None:
            return ()
        if self._index is not None:
            return _from_index(self._index, _selector(kind, word), self._notify)
        return tuple(record for record in self._all if meets(record))

    def _of_last_run(self) -> tuple[SummaryRecord, ...]:
        """Return the trials of the run that has the newest one; without a run, that trial alone."""
        until = time.time() + _AHEAD_S
        if self._index is not None:
            from perfrun.store.index import open_store
            from perfrun.store.query import Selector

            with open_store(self._index) as store:
                newest = store.newest(until)
            if newest is None:
                return ()
            run_id, execution_id = newest
            chosen = (
                Selector(run_ids=(run_id,)) if run_id else Selector(execution_ids=(execution_id,))
            )
            return _from_index(self._index, chosen, self._notify)
        past = [record for record in self._all if record.timestamp < until]
        if not past:
            return ()
        last = max(past, key=lambda record: (record.timestamp, record.execution_id))
        if not last.run_id:
            return (last,)
        return tuple(record for record in self._all if record.run_id == last.run_id)

    def _of_baseline(self, word: str) -> tuple[SummaryRecord, ...]:
        """Return the trials of a baseline, wherever they are now; none without such a baseline."""
        found = baselines.read(self._workspace, word) if baselines.is_name(word) else None
        if found is None:
            return ()
        for note in found.notes:
            self._notify(note)
        at_hand = {trial.uid: self._read_named(trial) for trial in found.trials}
        lacking = [trial for trial in found.trials if at_hand[trial.uid] is None]
        if lacking:
            at_hand.update(self._of_index(lacking))
        records = [record for record in at_hand.values() if record is not None]
        gone = len(at_hand) - len(records)
        if gone:
            self._notify(f"baseline {word}: {gone} of its {len(at_hand)} trials are gone")
        if records:
            records = self.without_quarantine(records, f"baseline {word}")
        if not records:
            raise UsageError(
                f"baseline {word}: all of its {len(at_hand)} trials are gone from {self._place}; "
                f"set it again, or remove it with `perfrun baseline rm {word}`"
            )
        return _usable(records, self._notify)

    def without_quarantine(
        self, records: Sequence[SummaryRecord], what: str
    ) -> list[SummaryRecord]:
        """Return the trials whose nodes are in no quarantine. Raises UsageError for none."""
        known = quarantine.read(self._workspace)
        kept: list[SummaryRecord] = []
        out: list[SummaryRecord] = []
        for one in records:
            (out if known.leaves_out(one.hostname, one.timestamp) else kept).append(one)
        nodes = ", ".join(sorted({one.hostname for one in out}))
        if not kept:
            raise UsageError(
                f"{what}: all of its {len(records)} trials are of nodes in quarantine ({nodes}); "
                "release them with `perfrun nodes --release=NODE`, or choose other results"
            )
        if out:
            self._notify(
                f"{what}: {len(out)} of its {len(records)} trials are left out: of {nodes}, in "
                "quarantine (`perfrun nodes` says why)"
            )
        return kept

    def _read_named(self, trial: NamedTrial) -> SummaryRecord | None:
        path = baselines.place_of(trial, self._workspace)
        try:
            found = read_record(path) if path else None
        except (OSError, ValueError):
            return None
        return found if found is not None and found.uid == trial.uid else None

    def _of_index(self, trials: Iterable[NamedTrial]) -> dict[str, SummaryRecord]:
        """Look up trials whose summaries are not where they were."""
        uids = {trial.uid for trial in trials}
        if self._index is None:
            return {record.uid: record for record in self._all if record.uid in uids}
        from perfrun.store.query import Selector

        found: dict[str, SummaryRecord] = {}
        ids = sorted({trial.execution_id for trial in trials})
        for at in range(0, len(ids), _IDS_AT_ONCE):
            selector = Selector(execution_ids=tuple(ids[at : at + _IDS_AT_ONCE]))
            records = _from_index(self._index, selector, self._notify)
            found |= {record.uid: record for record in records if record.uid in uids}
        return found

    @cached_property
    def _index(self) -> Address | None:
        """The index to choose from, brought up to date if it is the workspace's own."""
        if not self._store and not exists(self._workspace / "perfrun.db"):
            return None
        from perfrun.options.store_address import parse_address
        from perfrun.store.index import open_store  # SQLAlchemy

        address = parse_address(self._store, self._workspace)
        try:
            with open_store(address) as store:
                if address.workspace is not None:
                    store.refresh()
            return address
        except StoreError as error:
            if self._store:
                raise
            self._notify(f"reading the summaries themselves: {error}")
            return None

    @cached_property
    def _all(self) -> tuple[SummaryRecord, ...]:
        output = self._workspace / "output"
        paths = sorted(output.glob(f"*/{SUMMARY}")) if exists(output) else []
        return _read(paths, self._notify)


def _from_index(address: Address, selector: Selector, notify: Notify) -> tuple[SummaryRecord, ...]:
    """Choose trials by an index instead of opening every summary of a workspace.

    A chosen trial is read from its summary, or from the index if the summary is on another
    machine or gone: the index holds what a comparison needs.
    """
    from perfrun.store.index import open_store

    with open_store(address) as store:
        trials = [_at_hand(trial) for trial in store.trials(selector)]
    return _usable(trials, notify)


def _at_hand(trial: SummaryRecord) -> SummaryRecord:
    try:
        found = read_record(trial.path)
    except (OSError, ValueError):
        return trial
    return found if found.uid == trial.uid else trial


def read_folder(folder: Path, notify: Notify) -> tuple[SummaryRecord, ...]:
    """Read the summaries of a workspace, an output folder, a result folder, or one file.

    Unreadable summaries are named and left out. Raises UsageError when none is left.
    """
    paths = _summaries(folder)
    records = _read(paths, notify)
    if not records:
        what = "none of its summaries can be read" if paths else f"there is no {SUMMARY} in it"
        raise UsageError(f"{folder}: {what}")
    return records


def _summaries(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder.resolve()]  # what the user names may be a link; what is found may not
    if (folder / SUMMARY).is_file():
        return [folder / SUMMARY]
    for pattern in (f"output/*/{SUMMARY}", f"*/{SUMMARY}"):
        found = sorted(folder.glob(pattern))
        if found:
            return found
    return sorted(Path(place, SUMMARY) for place, names in places(str(folder)) if SUMMARY in names)


def each_of_folder(folder: Path, notify: Notify) -> Iterator[SummaryRecord]:
    """Read the summaries of a folder one by one, so that not all of them are in memory."""
    for path in _summaries(folder):
        yield from _read([path], notify)


def _read(paths: Iterable[Path], notify: Notify) -> tuple[SummaryRecord, ...]:
    records = []
    for path in paths:
        try:
            records.append(read_record(path))
        except (OSError, ValueError) as error:
            notify(f"{path} is left out: {error}")
    return _usable(records, notify)


def _usable(records: Iterable[SummaryRecord], notify: Notify) -> tuple[SummaryRecord, ...]:
    """Return the records that can be compared; the others are named, and stop nothing."""
    found = []
    for record in records:
        why = damage(record)
        if why is None:
            found.append(record)
        else:
            notify(f"{record.path} is left out: {why}")
    return tuple(found)


def _condition(kind: str, word: str) -> Callable[[SummaryRecord], bool] | None:
    """Return the test that a word stands for; None when it cannot be of this kind."""
    if kind == "run":
        return lambda record: record.run_id == word
    if kind == "label":
        return lambda record: record.label == word
    if kind == "id":
        return lambda record: record.execution_id == word
    if kind == "hash":
        return (lambda record: _has_commit(record, word.lower())) if _HASH.match(word) else None
    span = _span(word)
    return (lambda record: span[0] <= record.timestamp < span[1]) if span else None


def _selector(kind: str, word: str) -> Selector:
    from perfrun.store.query import Selector

    if kind == "run":
        return Selector(run_ids=(word,))
    if kind == "label":
        return Selector(labels=(word,))
    if kind == "id":
        return Selector(execution_ids=(word,))
    if kind == "hash":
        return Selector(commits=(word,))
    begin, end = _span(word) or (0.0, 0.0)
    return Selector(since=begin, until=end)


def _has_commit(record: SummaryRecord, start: str) -> bool:
    return any(commit.startswith(start) for commit in record.commits.values())


def _span(word: str) -> tuple[float, float] | None:
    """Parse `2026-11-21`, `2026-11-21T13:00` or `FROM..TO`, local time, the last one included."""
    found = _DATES.fullmatch(word)
    if not found:
        return None
    first, last = found[1], found[2] or found[1]
    try:
        begin, end = datetime.fromisoformat(first), datetime.fromisoformat(last)
        steps = {10: timedelta(days=1), 16: timedelta(minutes=1)}
        end += steps.get(len(last), timedelta(seconds=1))
        return begin.timestamp(), end.timestamp()
    except (ValueError, OverflowError):  # no such day, or one at the end of Python's calendar
        return None


def exists(path: Path) -> bool:
    """Return True for a path that is there; False for what can be no path, too."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with a null character
        return False

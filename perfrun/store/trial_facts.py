"""Read of each trial what a page needs of thousands of them, and whole trials by their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from perfrun.store.query import Selector
from perfrun.store.reading import read_subjects, read_trials
from perfrun.store.rows import read_rows
from perfrun.store.schema import contexts, trials
from perfrun.summary.document import Status
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import Subject

_STATUSES = {status.value: status for status in Status}
_OF_CONTEXT = ("framework", "python", "image", "system")
_MOST_NUMBERS = 5000  # in one question
_COLUMNS = (
    *(trials.c.id, trials.c.subject_id, trials.c.context_id, trials.c.execution_id),
    *(trials.c.run_id, trials.c.timestamp, trials.c.status, trials.c.grade),
    *(trials.c.disturbed, trials.c.hostname),
)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The facts that trials of a run share."""

    context: Mapping[str, Any]  # framework, Python, image and machine
    commits: Mapping[str, str]
    urls: Mapping[str, str]


class TrialFacts(NamedTuple):
    """A trial without its figures, extras and documents."""

    number: int  # in the index
    subject: Subject
    shared: Shared
    execution_id: str
    run_id: str
    timestamp: float
    status: Status
    grade: str
    disturbed: bool
    hostname: str

    @property
    def ran(self) -> bool:
        """True when the method ended by itself."""
        return self.status.ran

    @property
    def context(self) -> Mapping[str, Any]:
        """Its framework, Python, image and machine, as the index keeps them."""
        return self.shared.context

    @property
    def commits(self) -> Mapping[str, str]:
        """The commits of its checkouts, by their folders."""
        return self.shared.commits

    @property
    def urls(self) -> Mapping[str, str]:
        """The repositories of its checkouts, by their folders."""
        return self.shared.urls


def read_facts(connection: Connection) -> list[TrialFacts]:
    """Return the facts of all trials, by time."""
    about, shared = read_subjects(connection), dict(_shared(connection))
    texts: dict[str, str] = {}  # labels, hosts and runs are those of many trials
    same = texts.setdefault
    found = [
        TrialFacts(
            *(number, about[subject], shared[context], execution, same(run, run), time),
            *(_STATUSES[status], same(grade, grade), bool(disturbed), same(host, host)),
        )
        for number, subject, context, execution, run, time, status, grade, disturbed, host in (
            read_rows(connection, select(*_COLUMNS))
        )
    ]
    found.sort(key=lambda one: (one.timestamp, one.execution_id))
    return found


def _shared(connection: Connection) -> Iterator[tuple[int, Shared]]:
    # Machines, frameworks and repositories are those of many runs.
    known: dict[str, Any] = {}
    all_urls: dict[str, Any] = {}
    columns = (contexts.c.id, contexts.c.document, contexts.c.commits, contexts.c.urls)
    for number, document, commits, urls in read_rows(connection, select(*columns)):
        whole = json.loads(document)
        own = {name: whole[name] for name in _OF_CONTEXT if name in whole}
        for name, value in own.items():
            own[name] = known.setdefault(json.dumps(value, sort_keys=True), value)
        if urls not in all_urls:
            all_urls[urls] = json.loads(urls)
        yield number, Shared(context=own, commits=json.loads(commits), urls=all_urls[urls])


def read_whole(
    connection: Connection, root: Path | None, numbers: Sequence[int]
) -> dict[int, SummaryRecord]:
    """Return trials by their numbers; one that has gone is left out."""
    found: dict[int, SummaryRecord] = {}
    for at in range(0, len(numbers), _MOST_NUMBERS):
        part = tuple(numbers[at : at + _MOST_NUMBERS])
        query = select(trials.c.uid, trials.c.id).where(trials.c.id.in_(part))
        by_uid = dict(read_rows(connection, query))
        for record in read_trials(connection, root, Selector(numbers=part)):
            found[by_uid[record.uid]] = record
    return found

"""The causes of a suite's confirmed incidents: bisected and explained in the time of the night.

Both are commands of their own, which a night carries out (`own_command`). What they find is kept
with the incident, so a bisection that runs out of time goes on in the next night. Whatever goes
wrong with them is told with the incident and hurts nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfrun import schema
from perfrun.changes.budget import NightBudget
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.incidents import ledger as file
from perfrun.incidents.incident import (
    Bisection,
    Culprit,
    Explanation,
    Incident,
    Ledger,
    Worsening,
    owner_of,
)
from perfrun.nightly.own_command import Carried, carry_out
from perfrun.nightly.report import NightReport
from perfrun.nightly.suite import Suite
from perfrun.nightly.suite_incidents import what_went_wrong, with_news
from perfrun.reports.figures import time_left
from perfrun.run.interruption import Interruption
from perfrun.run.progress import Screen
from perfrun.text import counted

_SHORTEST_S = 1.0  # of time left, with which it is not worth to begin
_MOST_ROWS = 3
_MOST_TRIES = 3  # of a bisection or an explanation that fails
_text = schema.text()
_REVISION = schema.table(
    {
        "name": _text,
        "author": schema.maybe(_text),
        "subject": schema.maybe(_text),
        "repository": schema.maybe(_text),
    },
    needs=("name",),
    absent={"author": None, "subject": None, "repository": None},
)
_ANSWER = schema.table(
    {
        "status": _text,
        "culprit": schema.maybe(_REVISION),
        "previous": schema.maybe(_REVISION),
        "pairs_run": schema.whole(),
        "trials_run": schema.whole(),
        "spent_s": schema.seconds,
    },
    needs=("status",),
    absent={"culprit": None, "previous": None, "pairs_run": 0, "trials_run": 0, "spent_s": 0.0},
)
_ROW = schema.table(
    {
        "name": _text,
        "where": _text,
        "change": _text,
        "named": schema.flag,
        "share": schema.maybe(schema.number(-1e9, 1e9)),
    },
    needs=("name", "named"),
    absent={"where": "", "change": "", "share": None},
)
_EXPLAINED = schema.table(
    {
        "profiles": schema.listed(
            schema.table({"rows": schema.listed(_ROW, 100_000)}, absent={"rows": []}), 100
        ),
        "record": schema.maybe(_text),
        "turns": schema.whole(),
        "stopped_by": _text,
    },
    needs=("profiles", "turns", "stopped_by"),
    absent={"record": None},
)
_WHY_NOT = {
    "not_reproduced": "the commits on both sides do not differ here and now",
    "undecided": "its pairs have not decided between the commits",
    "range": "the commits between do not run",
}


def with_causes(
    suite: Suite, report: NightReport, screen: Screen, interruption: Interruption
) -> NightReport:
    """Bisect and explain the confirmed incidents of a night, in the time that its suite gives.

    A failure becomes a note. Raises Interrupted; the same command goes on then.
    """
    if suite.bisect_budget is None and suite.explain_budget is None:
        return report
    notes: list[str] = []
    try:
        work = _Causes(suite, report, screen, interruption, notes)
        work.run()
        report = with_news(report, file.read(suite.workspace))
    except Interrupted:
        raise
    except Exception as error:  # the reports of the night are written whatever it is
        notes.append(f"causes of incidents could not be looked for: {what_went_wrong(error)}")
    return replace(report, notes=(*report.notes, *notes))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The change of an incident that is run again, and the flags for it."""

    change: Worsening
    place: tuple[str, ...]  # where its results are, and what to print
    words: tuple[str, ...]  # flags of a run, those included
    after: tuple[str, ...]  # flags of the benchmark, `--` included


class _Causes:
    """The work of one night."""

    def __init__(
        self,
        suite: Suite,
        report: NightReport,
        screen: Screen,
        interruption: Interruption,
        notes: list[str],
    ) -> None:
        self._suite, self._screen, self._interruption = suite, screen, interruption
        self._workspace, self._notes = suite.workspace, notes
        self._deadline = report.deadline
        self._trials_s = sum(one.spent_s for one in report.methods)
        self._own = [one.incident.id for one in report.incidents if one.incident.is_open]

    def run(self) -> None:
        """Bisect first: what an explanation compares is better known then."""
        if (budget := self._suite.bisect_budget) is not None:
            self._each(budget, _is_to_bisect, self._bisect)
        if (budget := self._suite.explain_budget) is not None:
            self._each(budget, self._is_to_explain, self._explain)

    def _each(
        self,
        budget: NightBudget,
        is_asked: Callable[[Incident], bool],
        work: Callable[[Incident, _Asked, float], Incident],
    ) -> None:
        """Do the work for the incidents that ask for it, the largest first, while there is time."""
        left_s = budget.seconds(self._trials_s)
        known = file.read(self._workspace)
        found = [one for number in self._own if (one := known.numbered(number)) is not None]
        for one in sorted(found, key=lambda each: -each.largest.size):
            limit_s = left_s
            if self._deadline is not None:
                limit_s = min(left_s, self._deadline - time.time())
            if limit_s < _SHORTEST_S or not is_asked(one):
                continue
            self._interruption.check()
            begun_s = time.monotonic()
            self._keep(self._worked(one, limit_s, work))
            self._interruption.check()
            left_s -= time.monotonic() - begun_s

    def _worked(
        self, one: Incident, limit_s: float, work: Callable[[Incident, _Asked, float], Incident]
    ) -> Incident:
        try:
            return work(one, self._asked(_target(one)), limit_s)
        except Interrupted:
            raise
        except (PerfrunError, OSError, ValueError) as error:
            is_passing = isinstance(error, OSError)  # a full disk, for one
            why = f"cannot be run again: {error}"
            if work == self._bisect:
                tries = _next_try(one.bisection) if is_passing else _MOST_TRIES
                return replace(one, bisection=Bisection(state="ended", why=why, tries=tries))
            tries = _next_try(one.explanation) if is_passing else _MOST_TRIES
            return replace(one, explanation=Explanation(why=why, tries=tries))

    def _keep(self, one: Incident) -> None:
        """Write down what was found of an incident; what others said meanwhile stays."""

        def changed(now: Ledger) -> Ledger:
            return replace(now, incidents=tuple(map(with_found, now.incidents)))

        def with_found(own: Incident) -> Incident:
            if own.id != one.id:
                return own
            found = replace(own, bisection=one.bisection, explanation=one.explanation)
            return replace(found, culprit=one.culprit or own.culprit, owner=one.owner or own.owner)

        file.change(self._workspace, changed)

    def _asked(self, change: Worsening | None) -> _Asked:
        """Return the flags that run a change again. Raises UsageError where that must not be."""
        from perfrun.changes.confirm import Suspect, arms_of  # all that a run needs
        from perfrun.summary.reconstruction import reconstruct

        assert change is not None
        suspect = Suspect(
            method=change.method,
            metric=change.metric,
            direction="worse",
            before=self._summary(change, change.before_execution_id),
            after=self._summary(change, change.after_execution_id),
        )
        recorded, _ = arms_of(suspect, self._workspace, 1)
        made = reconstruct(recorded["b"].document)
        place = (f"--workspace={self._workspace}", "--format=json")
        method = f"--benchmark_methods={change.method}"
        after = ("--", *made.benchmark_flags) if made.benchmark_flags else ()
        return _Asked(change=change, place=place, words=(*made.words, *place, method), after=after)

    def _summary(self, change: Worsening, execution_id: str) -> Path:
        """Return the file of a trial of the changed method. Raises UsageError."""
        from perfrun.compare.selection import Results  # all that a run needs

        results = Results(self._workspace, self._screen.note, self._suite.store)
        found = [r for r in results.select(f"id:{execution_id}") if r.method == change.method]
        if not found:
            raise UsageError(f"{execution_id}: has no trial of {change.method}")
        return max(found, key=lambda record: record.timestamp).path

    def _bisect(self, one: Incident, asked: _Asked, limit_s: float) -> Incident:
        """Search for the commit of an incident, or go on with the search."""
        change = asked.change
        ends = _ends(change.commits)
        self._screen.note(f"bisecting incident {one.id}: {change.metric} of {change.method}")
        words = ("bisect", *asked.words, *ends, f"--metric={change.metric}", "--resume")
        begun_s = time.monotonic()
        done = carry_out((*words, *asked.after), limit_s, self._interruption)
        found = _checked(_ANSWER, done)  # it may come with the interruption
        if found is None and done.late:
            spent = time_left(time.monotonic() - begun_s)
            self._notes.append(
                f"Incident {one.id}: the bisection goes on in the next night, after {spent} of "
                "this one."
            )
            return replace(one, bisection=Bisection(state="going_on"))
        if found is None:
            why = done.said or f"the bisection ended with status {done.status}"
            tries = _next_try(one.bisection)
            return replace(one, bisection=Bisection(state="ended", why=why, tries=tries))
        culprit, trials, spent_s = found["culprit"], found["trials_run"], found["spent_s"]
        if found["status"] != "found" or culprit is None:
            cost = f"{found['pairs_run']} pairs, {counted(trials, 'trial')} in {time_left(spent_s)}"
            why = f"{_WHY_NOT.get(found['status'], found['status'])}, {cost}"
            ended = Bisection(
                state="ended", why=why, tries=_MOST_TRIES, trials=trials, spent_s=spent_s
            )
            return replace(one, bisection=ended)
        named = Culprit(
            name=culprit["name"],
            author=culprit["author"] or "",
            subject=culprit["subject"] or "",
            repository=culprit["repository"] or "",
        )
        previous = found["previous"]
        return replace(
            one,
            culprit=named,
            owner=one.owner or owner_of(one.changes, {}, named.author),
            bisection=Bisection(
                state="found",
                previous=previous["name"] if previous else "",
                trials=trials,
                spent_s=spent_s,
            ),
        )

    def _is_to_explain(self, one: Incident) -> bool:
        known, target = one.explanation, _target(one)
        is_done = known is not None and (not known.why or known.tries >= _MOST_TRIES)
        is_bisecting = self._suite.bisect_budget is not None and _is_to_bisect(one)
        return target is not None and not is_done and not is_bisecting

    def _explain(self, one: Incident, asked: _Asked, limit_s: float) -> Incident:
        """Ask profiles of both sides what became slower."""
        self._screen.note(f"explaining incident {one.id}: {asked.change.method}")
        budget = f"--time_budget={max(1, int(limit_s))}"
        words = ("explain", budget, *_sides(one, asked))
        done = carry_out(words, limit_s + _SHORTEST_S, self._interruption)
        tries = _next_try(one.explanation)
        found = _checked(_EXPLAINED, done)
        if found is None:
            why = "its time was spent" if done.late else done.said or f"status {done.status}"
            return replace(one, explanation=Explanation(why=why, tries=tries))
        rows = tuple(_rows(found))
        if not rows and found["stopped_by"] != "turns":  # too few to name anything
            why = f"{found['turns']} turns ran, then {found['stopped_by'].replace('_', ' ')}"
            return replace(one, explanation=Explanation(why=why, tries=tries))
        record = found["record"] or ""
        return replace(one, explanation=Explanation(rows=rows, record=record, tries=tries))


def _is_to_bisect(one: Incident) -> bool:
    """Return True for an incident whose commit is to be searched for."""
    target = _target(one)
    known = one.bisection
    has_failed = known is not None and known.state == "ended" and known.tries < _MOST_TRIES
    is_over = known is not None and known.state != "going_on" and not has_failed
    is_of_commits = target is not None and bool(target.commits)
    return is_of_commits and one.culprit is None and not is_over


def _next_try(known: Bisection | Explanation | None) -> int:
    """Return the number of the try that has failed; a bisection that went on begins anew."""
    return known.tries + 1 if known is not None and known.why else 1


def _target(one: Incident) -> Worsening | None:
    """Return the confirmed change whose night is known best; None where none is to be run again.

    What the machine has caused, and a drift, lie in no commit.
    """
    if not one.is_open or one.is_machine or one.drift is not None:
        return None
    able = [c for c in one.changes if c.status == "confirmed" and c.returned is None]
    return max(able, key=lambda c: (bool(c.commits), c.certainty, c.size), default=None)


def _ends(commits: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the flags of a search. Raises UsageError where a commit is unknown."""
    if not all(all(pair) for pair in commits.values()):
        raise UsageError("not on record: a commit on one side")
    if len(commits) == 1:
        ((name, (good, bad)),) = commits.items()
        return f"--good={good}", f"--bad={bad}", f"--repo={name}"
    good, bad = (",".join(f"{name}={pair[at]}" for name, pair in commits.items()) for at in (0, 1))
    return f"--good={good}", f"--bad={bad}"


def _sides(one: Incident, asked: _Asked) -> tuple[str, ...]:
    """Return what is compared: the commit that was found and the one before, else both trials.

    Raises UsageError where both trials would stand for a commit, though other repositories moved.
    """
    change = asked.change
    if one.culprit is not None and len(change.commits) > 1:
        raise UsageError("several repositories moved")
    previous = "" if one.bisection is None else one.bisection.previous
    if one.culprit is not None and previous and change.commits:
        (repo,) = change.commits
        return (previous, one.culprit.name, f"--repo={repo}", *asked.words, *asked.after)
    ids = (change.before_execution_id, change.after_execution_id)
    return (*(f"id:{name}" for name in ids), *asked.place)


def _checked(of: Any, done: Carried) -> dict[str, Any] | None:
    """Return the document of a command; None where it is none, or of another form."""
    if done.document is None:
        return None
    try:
        found: dict[str, Any] = schema.checked(of, done.document, "answer", [])
    except schema.Wrong:
        return None
    return found


def _rows(found: Mapping[str, Any]) -> list[str]:
    """Return the first rows that the profiles name, of the first kind that names one, in words."""
    for profile in found["profiles"]:
        named = [row for row in profile["rows"] if row["named"]]
        if named:
            return [_row(row) for row in named[:_MOST_ROWS]]
    return []


def _row(row: Mapping[str, Any]) -> str:
    where = f" ({row['where']})" if row["where"] else ""
    change = f" {row['change']}" if row["change"] else ""
    share = "" if row["share"] is None else f", {100 * row['share']:.0f} % of the difference"
    return f"{row['name']}{where}{change}{share}"

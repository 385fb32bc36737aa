"""Confirm changes of a history: run the trials before and after each change in pairs.

Both trials are reconstructed from their summaries: with the recorded commits, image and
interpreter, not with those that a branch, a tag or a default names today. A summary that no run of
this workspace wrote is reconstructed only with the user's consent, and never with an interpreter,
an image, a repository or a setting of the environment that no run here has used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from perfrun.analysis.pairs import PairRule
from perfrun.changes.budget import INTERRUPTED, Budget
from perfrun.changes.change_report import ChangeRow
from perfrun.compare.differences import differences
from perfrun.compare.paired_runs import (
    ArmName,
    NotTogether,
    PairLimits,
    PairResult,
    arm_plan,
    comparisons,
    decider,
    run_pairs,
)
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.locks import FileLock
from perfrun.options.command_line import parse
from perfrun.options.plan import RunPlan
from perfrun.run.interruption import Interruption, taking_signals
from perfrun.run.own_results import OwnResults
from perfrun.run.progress import Screen
from perfrun.summary.reconstruction import reconstruct
from perfrun.summary.record import LARGEST_BYTES, SummaryRecord, parse_record, read_content
from perfrun.summary.result_folder import write_whole
from perfrun.untrusted import parse_json, read_file

ChangeStatus = Literal["candidate", "confirmed", "not_reproduced"]
# These kinds of difference do not change what is measured.
_IGNORED_KINDS = ("flag", "perfrun")
Recorded = Mapping[ArmName, SummaryRecord]  # the summaries before (a) and after (b)
Known = tuple[str, Path, Path]  # method and both summaries, whose pairs have been run
LEFT_OUT = "left out"
IMPORTED = "was imported"
TOO_LATE = "the deadline came first"
NOT_AS_RECORDED = "not there, but the trials could not be reconstructed as they were"
_FRESH_S = 20 * 3600.0  # what began earlier is not continued: the machine may have changed


class _HasSides(Protocol):
    """A change, or a suspect of the screening."""

    @property
    def method(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def before_summary(self) -> str: ...
    @property
    def after_summary(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A change that is to be confirmed."""

    method: str
    metric: str
    direction: str  # worse or better
    before: Path  # summary of the last trial at the level before
    after: Path  # summary of the first at the new level

    @classmethod
    def of(cls, one: _HasSides) -> Suspect:
        """Return what is to be confirmed of a change."""
        return cls(
            method=one.method,
            metric=one.metric,
            direction=one.direction,
            before=Path(one.before_summary),
            after=Path(one.after_summary),
        )


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The result of the pairs of one change."""

    status: ChangeStatus
    reason: str | None  # why it is still a candidate
    ratio: float | None = None  # after over before, in these pairs
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    # Differences from the recorded trials, such as `torch 2.12 -> 2.13`.
    not_reconstructed: tuple[str, ...] = ()


def confirm(
    suspect: Suspect,
    workspace: Path,
    budget: Budget,
    screen: Screen,
    *,
    resume: bool = False,
    known: MutableMapping[Known, PairResult] | None = None,
    interruption: Interruption | None = None,
    trusts_imported: bool = False,
) -> Confirmation:
    """Run the pairs of one change. What prevents them becomes the `reason` of a `candidate`.

    `resume` continues the pairs of this change that an interrupted call has left. Pairs in `known`
    are not run again for another metric, if they decide about that metric, too. `trusts_imported`
    is the user's consent to run what imported summaries record.
    """
    of = (suspect.method, suspect.before, suspect.after)
    own = OwnResults(workspace)
    try:
        recorded, imported = _recorded(suspect, own)
    except (OSError, ValueError) as error:
        return Confirmation(status="candidate", reason=f"a summary cannot be read: {error}")
    if imported and not trusts_imported:
        return Confirmation(
            status="candidate",
            reason=f"{IMPORTED}, not run in this workspace: {' and '.join(imported)}",
        )
    try:
        if known is not None and of in known:
            found = _judged(suspect, recorded, known[of], budget)
            if found.status != "candidate":
                return found
        plans = _plans(suspect, recorded, workspace, budget)
        _refuse_unused(plans, imported, own)
        result = _run(suspect, plans, budget, screen, interruption, resume=resume)
        if known is not None:
            known[of] = result
        return _judged(suspect, recorded, result, budget)
    except Interrupted:
        return Confirmation(status="candidate", reason=INTERRUPTED)
    except PerfrunError as error:
        return Confirmation(status="candidate", reason=f"cannot be run again: {error}")


def arms_of(
    suspect: Suspect, workspace: Path, max_pairs: int
) -> tuple[Recorded, Mapping[ArmName, RunPlan]]:
    """Return both summaries and the plans that run their trials again.

    Raises PerfrunError, with the reason, where this cannot or must not be done.
    """
    try:
        recorded, imported = _recorded(suspect, OwnResults(workspace))
    except (OSError, ValueError) as error:
        raise UsageError(f"a summary cannot be read: {error}") from None
    if imported:
        raise UsageError(f"{IMPORTED}, not run in this workspace: {' and '.join(imported)}")
    return recorded, _plans(suspect, recorded, workspace, Budget(max_pairs=max_pairs))


def _recorded(suspect: Suspect, own: OwnResults) -> tuple[Recorded, list[str]]:
    """Read both summaries; return them and the sides that no run of the workspace wrote.

    Raises OSError or BadSummary.
    """
    recorded: dict[ArmName, SummaryRecord] = {}
    imported = []
    for name, side, path in (("a", "before", suspect.before), ("b", "after", suspect.after)):
        content = read_content(path)  # once: what is checked is what is used
        record = recorded[cast("ArmName", name)] = parse_record(content, path)
        if not own.has(record.run_id, path, content):
            imported.append(side)
    return recorded, imported


def _refuse_unused(
    plans: Mapping[ArmName, RunPlan], imported: Sequence[str], own: OwnResults
) -> None:
    """Refuse imported trials that take code or data from where no run of the workspace has."""
    for name, side in (("a", "before"), ("b", "after")):
        plan = plans[cast("ArmName", name)]
        unused = own.unused(plan) if side in imported else None
        if unused:
            raise UsageError(
                f"{side}: {IMPORTED}, and no run of this workspace has used {unused} so far"
            )


def _plans(
    suspect: Suspect, recorded: Recorded, workspace: Path, budget: Budget
) -> dict[ArmName, RunPlan]:
    made = {name: reconstruct(record.document) for name, record in recorded.items()}
    lost = [
        f"{'before' if name == 'a' else 'after'}: {what}"
        for name in made
        for what in made[name].lost
    ]
    if lost:
        raise UsageError(f"not on record: {'; '.join(lost)}")
    if made["a"] == made["b"]:
        raise UsageError(
            "the summaries before and after record the same code, image, interpreter and flags: "
            "what changed was changed in place"
        )
    plans: dict[ArmName, RunPlan] = {}
    for name, trial in made.items():
        common = (f"--workspace={workspace}", f"--benchmark_methods={suspect.method}")
        label = "--execution_label=confirm"
        after = ["--", *trial.benchmark_flags] if trial.benchmark_flags else []
        plan = parse([*trial.words, *common, label, *after])
        plans[name] = arm_plan(plan, name, workspace, budget.max_pairs)
    return plans


def _run(
    suspect: Suspect,
    plans: Mapping[ArmName, RunPlan],
    budget: Budget,
    screen: Screen,
    interruption: Interruption | None,
    *,
    resume: bool,
) -> PairResult:
    limits = PairLimits(max_pairs=budget.max_pairs, time_s=budget.time_s)
    rule = PairRule(max_pairs=budget.max_pairs)
    asked = {name: replace(plan, resume=resume) for name, plan in plans.items()}

    def paired(arms: Mapping[ArmName, RunPlan]) -> PairResult:
        metric = suspect.metric
        return run_pairs(
            arms, screen, decider(rule), limits, metric=metric, interruption=interruption
        )

    try:
        result = paired(asked)
    except NotTogether:  # another call has left one of the arms
        result = paired(plans)
    if result.interrupted:
        raise Interrupted("interrupted")
    return result


def _judged(
    suspect: Suspect, recorded: Recorded, result: PairResult, budget: Budget
) -> Confirmation:
    found = comparisons(result, PairRule(max_pairs=budget.max_pairs), suspect.metric)[0]
    pairs = [pair for own in result.pairs.values() for pair in own]
    unlike = new_differences(
        recorded, {"a": [pair.a for pair in pairs], "b": [pair.b for pair in pairs]}
    )
    status, reason = _status(suspect, found.verdict, found.reason, unlike)
    return Confirmation(
        status=status,
        reason=reason,
        ratio=found.ratio,
        low=found.interval.low if found.interval else None,
        high=found.interval.high if found.interval else None,
        pairs=len(pairs),
        not_reconstructed=unlike,
    )


def _status(
    suspect: Suspect, verdict: str, why: str | None, unlike: Sequence[str]
) -> tuple[ChangeStatus, str | None]:
    if verdict == ("slower" if suspect.direction == "worse" else "faster"):
        return "confirmed", None
    if verdict == "undecided":
        return "candidate", why
    if unlike:  # the cause may be among these
        return "candidate", NOT_AS_RECORDED
    return "not_reproduced", None


def new_differences(
    recorded: Recorded, again: Mapping[ArmName, Sequence[SummaryRecord]]
) -> tuple[str, ...]:
    """Return the differences between the recorded trials and the reconstructed ones."""
    lines: dict[str, None] = {}
    for name, record in recorded.items():
        for one in differences([record], again[name]):
            if one.kind not in _IGNORED_KINDS:
                lines[f"{'before' if name == 'a' else 'after'}: {one.text}"] = None
    return tuple(lines)


def confirmation_row(found: Confirmation) -> dict[str, Any]:
    """Return the key `confirmation` of a change in `perfrun detect --format=json`."""
    row = asdict(found)
    del row["status"]
    return row


def confirm_rows(
    rows: Sequence[ChangeRow],
    workspace: Path,
    budget: Budget,
    screen: Screen,
    *,
    deadline: float | None = None,
    interruption: Interruption | None = None,
    trusts_imported: bool = False,
) -> tuple[ChangeRow, ...]:
    """Run the pairs of each change; return the rows with their results, in the given order.

    Changes for the worse are confirmed first, then the newest; those beyond `budget.most` are
    left out, with that as their reason. After an interruption the same call continues and does
    not run again what was decided. `deadline` is in seconds since the epoch. `interruption`
    belongs to a caller that handles the signals and continues afterwards. Raises UsageError when
    another perfrun confirms changes in this workspace.
    """
    order = sorted(range(len(rows)), key=lambda at: rows[at].night, reverse=True)
    order.sort(key=lambda at: rows[at].direction != "worse")
    if not rows:
        return ()
    with FileLock(workspace / ".locks" / "confirming") as lock:
        if not lock.try_own():
            raise UsageError(f"another perfrun is confirming changes in {workspace}: let it end")
        with taking_signals(interruption) as ours:
            work = _Confirmations(workspace, budget, screen, deadline, ours, trusts_imported)
            found = {at: work.row(rows[at]) for at in order}
        # A caller that a signal ends after this call repeats it, and gets what was decided.
        work.end(keep=interruption is not None and interruption.signalled)
    return tuple(found[at] for at in range(len(rows)))


class _Confirmations:
    """The results so far, in memory and on disk."""

    def __init__(
        self,
        workspace: Path,
        budget: Budget,
        screen: Screen,
        deadline: float | None,
        interruption: Interruption,
        trusts_imported: bool,
    ) -> None:
        self._trusts_imported = trusts_imported
        self._workspace, self._budget, self._screen = workspace, budget, screen
        self._deadline, self._interruption = deadline, interruption
        self._path = workspace / "confirming.json"
        self._begun = time.time()
        decided = self._before()
        self._decided = decided or {}
        self._resume = decided is not None  # only the first open change can have begun
        self._known: dict[Known, Any] = {}
        self._count = 0
        self._interrupted = False
        if decided is None:
            self._save()

    def row(self, row: ChangeRow) -> ChangeRow:
        """Confirm one change, unless there is a reason not to."""
        key = _key(row, self._budget, trusts_imported=self._trusts_imported)
        done = self._decided.get(key)
        self._count += 1
        if done is not None:
            return replace(row, status=done["status"], confirmation=done["confirmation"])
        found = self._reason() or self._confirm(row)
        result = replace(row, status=found.status, confirmation=confirmation_row(found))
        if found.reason == INTERRUPTED:
            self._interrupted = True
        elif found.reason != TOO_LATE:
            self._decided[key] = {"status": result.status, "confirmation": result.confirmation}
            self._save()
        return result

    def end(self, *, keep: bool) -> None:
        """Forget the results, unless the same call is to be continued."""
        if not (self._interrupted or keep):
            self._path.unlink(missing_ok=True)

    def _reason(self) -> Confirmation | None:
        """Return the reason for not confirming a change, as a result; None without one."""
        most = self._budget.most
        why = None
        if self._interrupted or self._interruption.signalled:
            why = INTERRUPTED
        elif most is not None and self._count > most:
            why = f"{LEFT_OUT}: beyond --max_changes={most}"
        elif self._deadline is not None and self._deadline <= time.time():
            why = TOO_LATE
        return Confirmation(status="candidate", reason=why) if why else None

    def _confirm(self, row: ChangeRow) -> Confirmation:
        budget, resume = self._budget, self._resume
        if self._deadline is not None:
            left_s = max(1.0, self._deadline - time.time())
            budget = replace(budget, time_s=min(left_s, budget.time_s or left_s))
        self._resume = False
        self._screen.note(f"confirming {row.metric} of {row.method}, {row.night}")
        return confirm(
            Suspect.of(row),
            self._workspace,
            budget,
            self._screen,
            resume=resume,
            known=self._known,
            interruption=self._interruption,
            trusts_imported=self._trusts_imported,
        )

    def _before(self) -> dict[str, dict[str, Any]] | None:
        """Return the results of an interrupted call; None without one."""
        try:
            saved = parse_json(read_file(self._path, LARGEST_BYTES))
            if self._begun - float(saved["begun"]) > _FRESH_S:
                return None
            self._begun = float(saved["begun"])
            found: dict[str, dict[str, Any]] = saved["decided"]
            return found if isinstance(found, dict) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _save(self) -> None:
        document: Mapping[str, Any] = {"begun": self._begun, "decided": self._decided}
        try:
            write_whole(self._path, json.dumps(document) + "\n")
        except OSError as error:
            self._screen.problem(f"{self._path} could not be written: {error.strerror}")


def _key(row: ChangeRow, budget: Budget, *, trusts_imported: bool) -> str:
    about = (row.method, row.metric, row.direction, row.before_summary, row.after_summary)
    return json.dumps([*about, budget.max_pairs, *(["imported"] if trusts_imported else [])])

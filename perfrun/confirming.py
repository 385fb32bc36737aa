"""Is a change that a history shows really there? The trial before it and the one after it are
reconstructed on this machine and run against each other in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from perfrun.budget import Budget
from perfrun.cli import parse
from perfrun.differences import differences
from perfrun.errors import Interrupted, PerfrunError, UsageError
from perfrun.interruption import Interruption
from perfrun.pairing import Limits, Name, NotTogether, PairResult, run_pairs, side_plan
from perfrun.pairverdicts import comparisons, decider
from perfrun.plan import RunPlan
from perfrun.reconstruction import rebuilt
from perfrun.screen import Screen
from perfrun.summary_record import SummaryRecord, read_record

Status = Literal["candidate", "confirmed", "not_reproduced"]
# How it was asked for and by which perfrun is no part of what was measured.
_NOT_TELLING = ("flag", "perfrun")


INTERRUPTED = "interrupted"
Known = tuple[str, Path, Path]  # method, summaries: whose pairs have been run


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A change to be looked into."""

    method: str
    metric: str
    direction: str  # worse or better
    before: Path  # summary of the last trial at the level before
    after: Path  # summary of the first at the new level


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What the pairs say of a change."""

    status: Status
    reason: str | None  # why it is still a candidate
    ratio: float | None = None  # after over before, here and now
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    # What is not as it was recorded, as `torch 2.12 -> 2.13`.
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
) -> Confirmation:
    """Run the A/B. What stands in its way, an interruption too, is the reason of a `candidate`.

    With `resume`, pairs of this change that an interrupted call has left are gone on with. Pairs
    in `known` are not run again for another metric, if they decide about that too.
    """
    of = (suspect.method, suspect.before, suspect.after)
    try:
        recorded = {"a": read_record(suspect.before), "b": read_record(suspect.after)}
    except (OSError, ValueError) as error:
        return Confirmation(status="candidate", reason=f"a summary cannot be read: {error}")
    try:
        if known is not None and of in known:
            found = _judged(suspect, recorded, known[of], budget)
            if found.status != "candidate":
                return found
        plans = _plans(suspect, recorded, workspace, budget)
        result = _run(suspect, plans, budget, screen, interruption, resume=resume)
        if known is not None:
            known[of] = result
        return _judged(suspect, recorded, result, budget)
    except Interrupted:
        return Confirmation(status="candidate", reason=INTERRUPTED)
    except PerfrunError as error:
        return Confirmation(status="candidate", reason=f"cannot be run again: {error}")


def _plans(
    suspect: Suspect, recorded: Mapping[str, SummaryRecord], workspace: Path, budget: Budget
) -> dict[Name, RunPlan]:
    made = {name: rebuilt(reading.document) for name, reading in recorded.items()}
    lost = [
        f"{'before' if name == 'a' else 'after'}: {what}"
        for name in made
        for what in made[name].lost
    ]
    if lost:
        raise UsageError(f"not on record: {'; '.join(lost)}")
    if made["a"] == made["b"]:
        raise UsageError(
            "code, image, interpreter and flags of before and after are the same on record: "
            "what changed was changed in place"
        )
    plans: dict[Name, RunPlan] = {}
    for name, side in made.items():
        common = (f"--workspace={workspace}", f"--benchmark_methods={suspect.method}")
        label = "--execution_label=confirm"
        after = ["--", *side.benchmark_flags] if side.benchmark_flags else []
        plan = parse([*side.words, *common, label, *after])
        side_name: Name = "a" if name == "a" else "b"
        plans[side_name] = side_plan(plan, side_name, workspace, budget.max_pairs)
    return plans


def _run(
    suspect: Suspect,
    plans: Mapping[Name, RunPlan],
    budget: Budget,
    screen: Screen,
    interruption: Interruption | None,
    *,
    resume: bool,
) -> PairResult:
    from perfrun.analysis.pairs import Rule

    limits = Limits(max_pairs=budget.max_pairs, time_s=budget.time_s)
    rule = Rule(max_pairs=budget.max_pairs)
    asked = {name: replace(plan, resume=resume) for name, plan in plans.items()}

    def paired(sides: Mapping[Name, RunPlan]) -> PairResult:
        metric = suspect.metric
        return run_pairs(
            sides, screen, decider(rule), limits, metric=metric, interruption=interruption
        )

    try:
        result = paired(asked)
    except NotTogether:  # one side was left by another call
        result = paired(plans)
    if result.interrupted:
        raise Interrupted("interrupted")
    return result


def _judged(
    suspect: Suspect, recorded: Mapping[str, SummaryRecord], result: PairResult, budget: Budget
) -> Confirmation:
    from perfrun.analysis.pairs import Rule

    found = comparisons(result, Rule(max_pairs=budget.max_pairs), suspect.metric)[0]
    pairs = [pair for own in result.pairs.values() for pair in own]
    again = {"a": [pair.a for pair in pairs], "b": [pair.b for pair in pairs]}
    otherwise = _otherwise(recorded, again)
    status, reason = _status(suspect, found.verdict, found.reason, otherwise)
    return Confirmation(
        status=status,
        reason=reason,
        ratio=found.ratio,
        low=found.interval.low if found.interval else None,
        high=found.interval.high if found.interval else None,
        pairs=len(pairs),
        not_reconstructed=otherwise,
    )


def _status(
    suspect: Suspect, verdict: str, why: str | None, otherwise: Sequence[str]
) -> tuple[Status, str | None]:
    if verdict == ("slower" if suspect.direction == "worse" else "faster"):
        return "confirmed", None
    if verdict == "undecided":
        return "candidate", why
    if otherwise:  # the cause may be in what is not as it was
        return "candidate", "not there, but the trials could not be reconstructed as they were"
    return "not_reproduced", None


def _otherwise(
    recorded: Mapping[str, SummaryRecord], again: Mapping[str, Sequence[SummaryRecord]]
) -> tuple[str, ...]:
    """What the reconstructed sides have that the recorded trials had not, and the reverse."""
    lines: dict[str, None] = {}
    for name, reading in recorded.items():
        for one in differences([reading], again[name]):
            if one.kind not in _NOT_TELLING:
                lines[f"{'before' if name == 'a' else 'after'}: {one.text}"] = None
    return tuple(lines)


def confirmation_row(found: Confirmation) -> dict[str, Any]:
    """The key `confirmation` of a change in `perfrun detect --format=json`."""
    return {
        "reason": found.reason,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "pairs": found.pairs,
        "not_reconstructed": list(found.not_reconstructed),
    }

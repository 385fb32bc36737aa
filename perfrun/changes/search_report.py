"""The text that `perfrun bisect` prints: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfrun.reports.figures import percent, time_left

_MOST_CANDIDATES = 20
_HASH = 12


def bisect_report(answer: Mapping[str, Any]) -> list[str]:
    """Return the lines that `perfrun bisect` prints."""
    lines_of = {
        "found": _found,
        "range": _range,
        "undecided": _undecided,
        "not_reproduced": _not_reproduced,
    }[answer["status"]]
    lines = ["", *lines_of(answer), *_evidence(answer)]
    if answer.get("inside"):
        lines += ["", "Inside the merge:", *bisect_report(answer["inside"])[1:]]
    return lines


def estimate_line(estimate: Mapping[str, Any]) -> str:
    """Return what a search is expected to cost, before it begins."""
    trial_s = estimate["trial_s"]

    def cost(trials: float) -> str:
        shown = f"{trials:,.0f} trials"
        return shown if trial_s is None else f"{shown} ({time_left(trials * trial_s)})"

    return (
        f"expected: {cost(estimate['trials_clear'])} where the change is clear, "
        f"{cost(estimate['trials_noisy'])} where a trial's noise is as large as the change, "
        f"at most {cost(estimate['trials_most'])}"
    )


def _found(answer: Mapping[str, Any]) -> list[str]:
    culprit, previous = answer["culprit"], answer["previous"]
    return [
        f"{name_of(culprit)} is the first {_kind(answer)} one",
        *_commit(culprit, inside=bool(answer.get("inside"))),
        f"  {answer['metric']} against {name_of(previous)} before it: {_ratio(answer)}",
    ]


def _range(answer: Mapping[str, Any]) -> list[str]:
    return [
        f"The first {_kind(answer)} one is among these; those before the last do not run:",
        *_candidates(answer["candidates"]),
        f"  {answer['metric']} from {name_of(answer['previous'])} to the last: {_ratio(answer)}",
    ]


def _undecided(answer: Mapping[str, Any]) -> list[str]:
    why = {"max_pairs": "all pairs are spent", "time_budget": "the time is spent"}.get(
        answer["stopped_by"], "the noise leaves it open"
    )
    if answer["probability"] is None:
        return [f"Undecided whether good and bad differ: {why}; {_ratio(answer)}"]
    share = percent(answer["probability"])
    return [
        f"Undecided: {why}. With a probability of {share} it is one of these:",
        *_candidates(answer["candidates"]),
    ]


def _not_reproduced(answer: Mapping[str, Any]) -> list[str]:
    verified = answer["good_against_bad"]
    return [f"Not reproduced: {answer['metric']} of bad and good is the same, {_ratio(verified)}"]


def _kind(answer: Mapping[str, Any]) -> str:
    return {"worse": "slower or worse", "better": "better"}.get(answer["direction"], "changed")


def _ratio(judged: Mapping[str, Any]) -> str:
    if judged["ratio"] is None:
        return "no pairs of these two"
    interval = ""
    if judged["low"] is not None:
        interval = f" (95 % interval {judged['low']:.3f} to {judged['high']:.3f})"
    return f"{judged['ratio']:.3f} times{interval}, {judged['pairs']} pairs"


def name_of(revision: Mapping[str, Any]) -> str:
    """Return the name of a revision; only the hash of a commit is shortened."""
    name: str = revision["name"]
    if revision["subject"] is None:
        return name
    several = len(revision.get("commits") or ()) > 1
    return f"{revision['repository']} {name[:_HASH]}" if several else name[:_HASH]


def _commit(revision: Mapping[str, Any], *, inside: bool) -> list[str]:
    if revision["subject"] is None:
        return []
    commits = revision.get("commits") or {}
    others = [
        f"{name} {git_hash[:_HASH]}"
        for name, git_hash in commits.items()
        if name != revision["repository"]
    ]
    return [
        f"  commit  {revision['name']}",
        *([f"  of      {revision['repository']}, beside {', '.join(others)}"] if others else []),
        f"  author  {revision['author']}",
        f"  date    {revision['date']}",
        f"  subject {revision['subject']}",
        *_merge(revision, inside=inside),
    ]


def _merge(revision: Mapping[str, Any], *, inside: bool) -> list[str]:
    """Return the line of the pull request or of the branch that a commit merges."""
    request, branch = revision.get("pull_request"), revision.get("branch")
    kind = "merge request" if request and "!" in request else "pull request"
    if not revision.get("is_merge"):
        return [f"  is      {kind} {request}"] if request else []
    of = [f"{kind} {request}"] if request else []
    of += [f"branch {branch}"] if branch else []
    more = "" if inside else "; --resume --into_merges searches its commits"
    return [f"  merges  {', '.join(of) or 'other commits'}{more}"]


def _candidates(revisions: Sequence[Mapping[str, Any]]) -> list[str]:
    shown = [
        f"  {name_of(one)}  {one['subject'] or ''}".rstrip() for one in revisions[:_MOST_CANDIDATES]
    ]
    more = len(revisions) - len(shown)
    return [*shown, f"  and {more} more"] if more else shown


def _evidence(answer: Mapping[str, Any]) -> list[str]:
    verified = answer["good_against_bad"]
    found = []
    if answer["status"] in ("found", "range"):
        found.append(f"Good against bad: {_ratio(verified)}")
    found.append(
        f"{answer['revisions']} revisions, {len(answer['tested'])} of them tested, "
        f"{len(answer['skipped'])} skipped; {answer['pairs_run']} pairs, "
        f"{answer['trials_run']} trials in {time_left(answer['spent_s'])}; seed {answer['seed']}"
    )
    several = len(answer["previous"].get("commits") or ()) > 1
    for one in answer["skipped"]:
        cost = f"{one['trials']} trial{'s' * (one['trials'] != 1)}, {time_left(one['spent_s'])}"
        of = f"{one['repository']} " if several else ""
        found.append(f"  skipped {of}{one['name']} ({cost}): {one['reason']}")
    if answer["status"] == "found":
        texts = [one["text"] for one in answer["environment_differences"]]
        found.append(f"What differs around the two: {'; '.join(texts) or 'nothing'}")
    found.append(f"Pairs and answer: {answer['folder']}")
    return found

"""The two sides of an explanation, as plans: commits, saved results, or flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfrun.compare.paired_runs import ARMS, ArmName
from perfrun.compare.selection import Results
from perfrun.errors import UsageError
from perfrun.explain.profile_rows import KINDS
from perfrun.options.command_line import parse
from perfrun.options.parsers import CommandParser, may_be_hash, parse_shell_words, split_at_dashes
from perfrun.options.plan import RepoSpec, RunPlan, parse_selectors, refuse_baseline
from perfrun.run.own_results import OwnResults
from perfrun.summary.reconstruction import Reconstruction, reconstruct, words_beside
from perfrun.summary.record import SummaryRecord, parse_record, read_content

_COMMON = "the common flags"


@dataclass(frozen=True, kw_only=True)
class Given:
    """The words of the command line, before anything is looked up."""

    base: str | None
    new: str | None
    a: str
    b: str
    repo: str | None
    common: tuple[str, ...]  # flags of a run
    after: tuple[str, ...]  # flags of the benchmark
    parser: CommandParser


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Both plans, and what they are called."""

    plans: Mapping[ArmName, RunPlan]
    names: Mapping[ArmName, str]
    workspace: Path
    kinds: tuple[str, ...]  # of profiles that were asked for; empty: those that suit


def sides_of(given: Given, notify: Callable[[str], None]) -> Sides:
    """Return both sides; only saved results are read. Raises UsageError."""
    if bool(given.base) != bool(given.new):
        raise UsageError("perfrun explain: BASE and NEW are both needed")
    if given.base and (given.a or given.b):
        raise UsageError("perfrun explain: name BASE and NEW, or give --a and --b, not both")
    if not given.base and not (given.a or given.b):
        raise UsageError(
            "perfrun explain: what is explained? Name BASE and NEW (commits of a repository in "
            "--git_repos, or saved results), or say how the sides differ with --a and --b"
        )
    if not given.base:
        made: dict[ArmName, RunPlan] = {name: _of_flags(given, name) for name in ARMS}
        names: dict[ArmName, str] = {"a": given.a or _COMMON, "b": given.b or _COMMON}
        return _sides(made, names)
    assert given.new is not None
    words: dict[ArmName, str] = {"a": given.base, "b": given.new}
    plan = _parsed(given, ("--allow_empty",))
    if plan.repos:
        made = {name: _at(given, plan, words[name]) for name in ARMS}
        return _sides(made, words)
    results = Results(plan.workspace, notify, plan.store)
    wanted = tuple(selector.text for selector in plan.selectors)
    records = {name: _chosen(results.select(words[name]), words[name], wanted) for name in ARMS}
    if records["a"].method != records["b"].method:
        raise UsageError(
            f"{words['a']} is of {records['a'].method} and {words['b']} of "
            f"{records['b'].method}: one method is explained at a time"
        )
    return _sides({name: _again(given, plan, records[name]) for name in ARMS}, words)


def _sides(made: Mapping[ArmName, RunPlan], names: Mapping[ArmName, str]) -> Sides:
    workspaces = {plan.workspace for plan in made.values()}
    kinds = {plan.profiles for plan in made.values()}
    if len(workspaces) > 1:
        raise UsageError("--workspace: both sides share it; each gets a folder of its own there")
    if len(kinds) > 1:
        raise UsageError("--profile: the same kinds for both sides, or they cannot be compared")
    for kind in made["a"].profiles:
        if kind not in KINDS:
            raise UsageError(
                f"--profile={kind}: its rows do not add up to the whole; perfrun explain takes "
                f"{', '.join(KINDS)}"
            )
    workspace = workspaces.pop()
    return Sides(
        plans={name: _arm(plan, name, workspace) for name, plan in made.items()},
        names=names,
        workspace=workspace,
        kinds=made["a"].profiles,
    )


def _arm(plan: RunPlan, name: ArmName, workspace: Path) -> RunPlan:
    """Return the plan with a workspace of its own, one trial a turn."""
    refuse_baseline(plan, "perfrun explain")
    if plan.repetition.precision is not None or plan.num_trials != 1:
        raise UsageError(
            "perfrun explain: --turns says how often, not --benchmark_num_trials or --precision"
        )
    if plan.repetition.max_reruns or plan.execution_id or plan.resume or plan.metrics is not None:
        raise UsageError(
            "perfrun explain: takes no --max_reruns, --execution_id, --resume or --metrics"
        )
    label = f"{plan.execution_label}/{name}" if plan.execution_label else f"explain/{name}"
    return replace(
        plan,
        workspace=workspace / "explain" / name,
        execution_label=label,
        profiles=(),
        flags={**plan.flags, "execution_label": label},
    )


def _parsed(given: Given, more: Sequence[str], after: Sequence[str] = ()) -> RunPlan:
    """Parse the common flags and more; of flags that are in both, the last one counts."""
    last = [*given.after, *after]
    words = [*given.common, *more, *(["--", *last] if last else [])]
    return parse(words, also=given.parser)


def _of_flags(given: Given, name: ArmName) -> RunPlan:
    own, after = split_at_dashes(
        parse_shell_words(given.a if name == "a" else given.b, f"--{name}")
    )
    try:
        return _parsed(given, own, after)
    except UsageError as error:
        raise UsageError(f"side {name}: {error}") from None


def _at(given: Given, plan: RunPlan, commit: str) -> RunPlan:
    """Return the plan with the searched repository at a commit."""
    if not may_be_hash(commit):
        raise UsageError(
            f"{commit!r} is not a commit hash (4 to 64 hex digits); `git rev-parse` says what a "
            "branch or tag stands for"
        )
    repo = _explained(plan, given.repo)
    pinned = (replace(own, git_hash=commit.lower()) if own is repo else own for own in plan.repos)
    text = ",".join(";".join((r.url, r.branch or "", r.git_hash or "")) for r in pinned)
    return _parsed(given, (f"--git_repos={text}",))


def _explained(plan: RunPlan, name: str | None) -> RepoSpec:
    found = [r for r in plan.repos if (r.directory == name if name else r.git_hash is None)]
    if len(found) != 1:
        there = ", ".join(repo.directory for repo in plan.repos)
        raise UsageError(
            "perfrun explain: whose commits are BASE and NEW? Leave the hash out of one item of "
            f"--git_repos and pin the others, or say --repo=NAME; --git_repos has: {there}"
        )
    return found[0]


def _chosen(records: Sequence[SummaryRecord], word: str, wanted: Sequence[str]) -> SummaryRecord:
    """Return the newest trial that ran, of the only method. Raises UsageError."""
    ran = [one for one in records if one.ran and (not wanted or one.method in wanted)]
    methods = sorted({one.method for one in ran})
    if not ran:
        of = f" of {' or '.join(wanted)}" if wanted else ""
        raise UsageError(f"{word}: has no trial{of} that ran")
    if len(methods) > 1:
        raise UsageError(
            f"{word}: has trials of {len(methods)} methods; say which: "
            f"--benchmark_methods={methods[0]}"
        )
    return max(ran, key=lambda one: (one.timestamp, one.execution_id))


def _again(given: Given, plan: RunPlan, record: SummaryRecord) -> RunPlan:
    """Return the plan that runs a saved trial again. Raises UsageError where that cannot be."""
    try:
        content = read_content(record.path)  # once: what is checked is what is used
        record = parse_record(content, record.path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{record.path}: is no summary that can be run again: {error}") from None
    if not OwnResults(plan.workspace).has(record.run_id, record.path, content):
        raise UsageError(
            f"{record.path}: was imported, not run in {plan.workspace}; perfrun explain runs "
            "nothing that a file from elsewhere names: give the sides as flags, --a and --b"
        )
    made = reconstruct(record.document)
    if made.lost:
        raise UsageError(
            f"{record.path}: cannot be run again, since it is not on record: {'; '.join(made.lost)}"
        )
    return run_again(given, plan, record.method, made)


def run_again(given: Given, plan: RunPlan, method: str, made: Reconstruction) -> RunPlan:
    """Return the plan of a recorded trial with the common flags, of which `plan` is.

    The common flags come after those on record, so that what the user gives counts.
    """
    own = replace(
        given,
        common=(*words_beside(made, plan.flags), f"--benchmark_methods={method}", *given.common),
        after=(*made.benchmark_flags, *given.after),
    )
    found = _parsed(own, ())
    return replace(
        found,
        selectors=parse_selectors([method]),
        flags={**found.flags, "benchmark_methods": [method]},
    )

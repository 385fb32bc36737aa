"""The ordered list that `perfrun bisect` searches: commits, images or interpreters, as plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perfrun.cli import parse
from perfrun.errors import UsageError
from perfrun.gitnames import may_be_hash
from perfrun.plan import RepoSpec, RunPlan, split_items
from perfrun.searching import Revision


@dataclass(frozen=True, kw_only=True)
class Ends:
    """What is to be searched, as given."""

    good: str | None
    bad: str | None
    images: str | None
    pythons: str | None
    repo: str | None  # which of several repositories


def parse_plan(words: Sequence[str], ends: Ends) -> RunPlan:
    """Parse the flags of the run, with the first image or interpreter in its place."""
    given = [name for name in ("images", "pythons") if getattr(ends, name)]
    if len(given) + bool(ends.good or ends.bad) != 1:
        raise UsageError(
            "perfrun bisect: say what is searched: --good=HASH and --bad=HASH of a repository in "
            "--git_repos, or --images=A,B,..., or --pythons=A,B,..., oldest first"
        )
    if not given and not (ends.good and ends.bad):
        raise UsageError("perfrun bisect: --good and --bad are both needed")
    for flag, text in (("--good", ends.good), ("--bad", ends.bad)):
        if text and not may_be_hash(text):
            # Names of branches move, and then --resume would go on with another search.
            raise UsageError(
                f"{flag}: {text!r} is not a commit hash (4 to 64 hex digits); "
                "`git rev-parse` says what a branch or tag stands for"
            )
    first = [f"--{kind[:-1]}={names[0]}" for kind, names in _listed(ends)]
    plan = parse([*first, *words])
    if plan.repetition.precision is not None or plan.num_trials != 1:
        raise UsageError(
            "perfrun bisect: pairs are run until it is decided; --max_pairs and --time_budget are "
            "the limits, not --benchmark_num_trials or --precision"
        )
    if plan.repetition.max_reruns or plan.execution_id or plan.profiles:
        raise UsageError("perfrun bisect: takes no --max_reruns, --execution_id or --profile")
    if ends.good:
        _searched(plan, ends.repo)  # raises
    return plan


def revisions_of(
    plan: RunPlan, words: Sequence[str], ends: Ends, notify: Callable[[str], None]
) -> tuple[Revision, ...]:
    """Return all revisions, good first. Raises PerfrunError when they cannot be had."""
    for kind, names in _listed(ends):
        return tuple(
            Revision(name=name, plan=_labelled(parse([f"--{kind[:-1]}={name}", *words]), name))
            for name in names
        )
    from perfrun.commits import commits_between

    repo = _searched(plan, ends.repo)
    assert ends.good is not None
    assert ends.bad is not None
    commits = commits_between(plan.workspace, repo, ends.good.lower(), ends.bad.lower(), notify)
    return tuple(
        Revision(
            name=commit.git_hash,
            plan=_labelled(_at(plan, repo, commit.git_hash), commit.git_hash[:12]),
            author=commit.author,
            date=commit.date,
            subject=commit.subject,
        )
        for commit in commits
    )


def _listed(ends: Ends) -> list[tuple[str, list[str]]]:
    found = []
    for kind in ("images", "pythons"):
        names = split_items(getattr(ends, kind))
        if names and len(names) < 2:
            raise UsageError(f"--{kind}: name two or more, oldest first")
        if len(set(names)) < len(names):
            raise UsageError(f"--{kind}: one of them is named twice")
        if names:
            found.append((kind, names))
    return found


def _searched(plan: RunPlan, name: str | None) -> RepoSpec:
    """The repository whose commits are searched."""
    open_ = [r for r in plan.repos if (r.directory == name if name else r.git_hash is None)]
    if len(open_) != 1:
        there = ", ".join(repo.directory for repo in plan.repos) or "none"
        raise UsageError(
            "perfrun bisect: which repository? Leave the hash out of one in --git_repos and pin "
            f"the others, or say --repo=NAME; --git_repos has: {there}"
        )
    return open_[0]


def _at(plan: RunPlan, repo: RepoSpec, git_hash: str) -> RunPlan:
    pinned = replace(repo, git_hash=git_hash)
    repos = tuple(pinned if own is repo else own for own in plan.repos)
    shown = ",".join(
        ";".join((own.shown_url, own.branch or "", own.git_hash or "")) for own in repos
    )
    return replace(plan, repos=repos, flags={**plan.flags, "git_repos": shown})


def _labelled(plan: RunPlan, name: str) -> RunPlan:
    label = f"{plan.execution_label}/{name}" if plan.execution_label else f"bisect/{name}"
    return replace(plan, execution_label=label, flags={**plan.flags, "execution_label": label})

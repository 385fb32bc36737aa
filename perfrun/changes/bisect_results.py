"""`perfrun bisect GOOD BAD`: what is searched between two results, taken from their summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfrun.compare.differences import differences
from perfrun.compare.one_result import Asked, find, refuse_without_consent
from perfrun.errors import UsageError
from perfrun.options.command_line import parse
from perfrun.options.parsers import CommandParser
from perfrun.summary.reconstruction import Reconstruction, reconstruct, words_beside
from perfrun.summary.series_identity import objects, section, text

# These differ wherever commits do, or change nothing that is measured.
_OF_COMMITS = ("git", "source", "perfrun")
_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Between:
    """A search as its flags say it."""

    words: tuple[str, ...]  # flags of a run, and those of the benchmark after `--`
    good: str  # NAME=HASH,... of the repositories that moved
    bad: str


@dataclass(frozen=True, kw_only=True)
class Given:
    """The command line, before a file is read."""

    good: str  # words that name the results
    bad: str
    common: tuple[str, ...]  # flags of a run
    after: tuple[str, ...]  # flags of the benchmark
    trust: str
    allows_differences: bool
    parser: CommandParser


def between(given: Given) -> Between:
    """Return the search between two results; nothing of them has run. Raises UsageError.

    Where the results differ in more than commits and the user allows it, all else is as in bad.
    """
    asked_for = parse([*given.common, "--allow_empty"], also=given.parser)
    if asked_for.repos:
        raise UsageError("--git_repos: GOOD and BAD, two results, say which commits are searched")
    names = (given.good, given.bad)
    results = [find(word, asked_for.workspace, asked_for.store) for word in names]
    method = results[1].record.method
    if results[0].record.method != method:
        raise UsageError(
            f"{given.good} is of {results[0].record.method} and {given.bad} of {method}: a search "
            "is about one method"
        )
    made = [_reconstructed(one) for one in results]
    unlike = _unlike(results, made)
    if unlike and not given.allows_differences:
        more = f" and {len(unlike) - _MOST_NAMED} more" if len(unlike) > _MOST_NAMED else ""
        raise UsageError(
            f"{given.good} and {given.bad} differ in more than commits: "
            f"{'; '.join(unlike[:_MOST_NAMED])}{more}; --allow_differences searches the commits "
            "all the same, with everything else as in BAD"
        )
    good, bad = _moved(names, [_commits(one) for one in results])
    after = (*made[1].benchmark_flags, *given.after)
    words = (
        *words_beside(made[1], asked_for.flags),
        f"--benchmark_methods={method}",
        *given.common,
        *(("--", *after) if after else ()),
    )
    plan = parse(words, also=given.parser)
    if [one.text for one in plan.selectors] != [method]:
        raise UsageError(f"--method: GOOD and BAD are of {method}, which is searched")
    python = str(asked_for.flags.get("python") or "")
    for one in results:
        refuse_without_consent(
            one, plan, asked_for.workspace, given.trust, "search its commits", python
        )
    return Between(words=words, good=good, bad=bad)


def _reconstructed(one: Asked) -> Reconstruction:
    made = reconstruct(one.record.document)
    if made.lost:
        raise UsageError(f"{one.record.path}: not on record: {'; '.join(made.lost)}")
    return made


def _commits(one: Asked) -> dict[str, str]:
    """Return the commit of each checkout of a trial."""
    checkouts = objects(section(one.record.document, "perfrun").get("git"))
    return {text(own.get("directory")): text(own.get("git_hash")) for own in checkouts}


def _unlike(results: Sequence[Asked], made: Sequence[Reconstruction]) -> list[str]:
    """Return what differs besides commits, in words."""
    found = differences([results[0].record], [results[1].record])
    unlike = [one.text for one in found if one.kind not in _OF_COMMITS]
    told = {one.name for one in found if one.kind == "flag"} | {"--git_repos", "--env"}
    words = set(made[0].words) ^ set(made[1].words)
    names = {word.partition("=")[0] for word in words} - told
    return [*unlike, *sorted(names)]


def _moved(names: Sequence[str], commits: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """Return the commits of the repositories that moved, as --good and --bad. Raises UsageError."""
    good, bad = commits
    if good.keys() != bad.keys():
        alone = ", ".join(sorted(good.keys() ^ bad.keys()))
        raise UsageError(f"{names[0]} and {names[1]} do not have the same repositories: {alone}")
    if not good:
        raise UsageError(
            f"{names[0]} and {names[1]} record no repository, so no commit: name "
            "what is searched by --images, --pythons or --versions"
        )
    moved = [name for name in good if good[name] != bad[name]]
    if not moved:
        same = ", ".join(f"{name} {commit[:12]}" for name, commit in good.items())
        raise UsageError(
            f"{names[0]} and {names[1]} are of the same commits ({same}): there is none to search"
        )
    ends = [",".join(f"{name}={own[name]}" for name in moved) for own in commits]
    return ends[0], ends[1]

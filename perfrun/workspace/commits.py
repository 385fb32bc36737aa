"""The commits between two commits of a repository, from the workspace's cache of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfrun.errors import UsageError, WorkspaceError
from perfrun.options.plan import RepoSpec
from perfrun.workspace.cache import GitCache
from perfrun.workspace.git import SHA256_DIGITS, GitFailed, Repository, ask, opened
from perfrun.workspace.pull_requests import branch_of, pull_request_of

if TYPE_CHECKING:
    import git

_FORMAT = "%H%x00%an <%ae>%x00%aI%x00%s%x00%ct%x00%P%x00%B"
_FIELDS = 7  # of it
_LONGEST_TIME = 20  # digits


@dataclass(frozen=True)
class Commit:
    """One commit, as its log shows it."""

    git_hash: str
    author: str
    date: str  # of the author, ISO 8601
    subject: str
    committed: float = 0.0  # seconds since the epoch: when it came to be in this history
    parents: tuple[str, ...] = ()
    pull_request: str | None = None  # that it merges or is: `#12`, `group/project!7`
    branch: str | None = None  # that a merge brings in, as its subject names it

    @property
    def is_merge(self) -> bool:
        """True for a commit of two parents or more."""
        return len(self.parents) > 1


def commits_between(
    workspace: Path, repo: RepoSpec, good: str, bad: str, notify: Callable[[str], None]
) -> tuple[Commit, ...]:
    """Return good and all commits after it up to bad, by first parents: a merge is one step.

    Raises:
        UsageError: bad does not descend from good.
        WorkspaceError: a commit cannot be fetched.
    """
    cache = GitCache(workspace, repo, notify)
    ends = [cache.find(git_hash, repo.branch).git_hash for git_hash in (good, bad)]
    if cache.shallow_file.exists():
        cache.fetch_history()  # commits that were fetched alone have no parents
    if ends[0] == ends[1]:
        raise UsageError(
            f"--good and --bad are the same commit of {repo.directory}, {ends[0][:12]}"
        )
    try:
        return _between(cache.repository, repo, ends, (good, bad))
    except GitFailed as error:
        raise WorkspaceError(f"--git_repos: history cannot be read: {error}") from None


def commits_inside(
    workspace: Path, repo: RepoSpec, merge: str, notify: Callable[[str], None]
) -> tuple[tuple[Commit, ...], ...]:
    """Return what a merge brought in: for each parent but the first the commits up to it.

    They are in order, by first parents, after the commit that they were begun from. A parent that
    brought nothing in is left out. Raises WorkspaceError.
    """
    cache = GitCache(workspace, repo, notify)
    found = cache.find(merge, repo.branch).git_hash
    try:
        (own,) = _log(cache.repository, "--max-count=1", found)
        chains = []
        for parent in own.parents[1:]:
            inside = _log(cache.repository, f"{own.parents[0]}..{parent}")
            if inside and inside[0].parents:  # else it has a history of its own
                begun = _log(cache.repository, "--max-count=1", inside[0].parents[0])
                chains.append((*begun, *inside))
    except GitFailed as error:
        raise WorkspaceError(f"--git_repos: history cannot be read: {error}") from None
    return tuple(chains)


def _between(
    cache: Repository, repo: RepoSpec, ends: list[str], given: tuple[str, str]
) -> tuple[Commit, ...]:
    first, last = ends
    with opened(cache) as repository:
        if not repository.is_ancestor(first, last):
            swapped = "; the two are swapped" if repository.is_ancestor(last, first) else ""
            raise UsageError(
                f"--bad={given[1]}: does not descend from --good={given[0]} in "
                f"{repo.shown_url}{swapped}"
            )
        if len(first) == SHA256_DIGITS:
            return (*_log(cache, "--max-count=1", first), *_log(cache, f"{first}..{last}"))
        after = repository.iter_commits(f"{first}..{last}", first_parent=True, reverse=True)
        return (_commit(repository.commit(first)), *map(_commit, after))


def _commit(commit: git.Commit) -> Commit:
    message = commit.message
    text = message if isinstance(message, str) else message.decode("utf-8", "backslashreplace")
    lines = text.strip().splitlines()
    # Git's subject: the first paragraph as one line.
    subject = " ".join(itertools.takewhile(bool, (line.rstrip() for line in lines)))
    return Commit(
        git_hash=commit.hexsha,
        author=f"{commit.author.name} <{commit.author.email}>",
        date=commit.authored_datetime.isoformat(),
        subject=subject,
        committed=float(commit.committed_date),
        parents=tuple(parent.hexsha for parent in commit.parents),
        pull_request=pull_request_of(subject, text),
        branch=branch_of(subject),
    )


def _log(cache: Repository, *arguments: str) -> tuple[Commit, ...]:
    """Return commits by `git log`: GitPython reads no repository whose hashes are SHA-256."""
    words = ("log", "-z", f"--format={_FORMAT}", "--first-parent", "--reverse")
    return parse_log(ask(cache, *words, *arguments, "--"))


def parse_log(answer: bytes) -> tuple[Commit, ...]:
    """Return the commits of a log: seven fields each, of which any may be empty."""
    fields = answer.decode("utf-8", "backslashreplace").split("\0")
    return tuple(
        _parsed(*fields[at : at + _FIELDS]) for at in range(0, len(fields) - _FIELDS, _FIELDS)
    )


def _parsed(
    git_hash: str, author: str, date: str, subject: str, committed: str, parents: str, message: str
) -> Commit:
    is_time = committed.isascii() and committed.isdecimal() and len(committed) < _LONGEST_TIME
    return Commit(
        git_hash=git_hash,
        author=author,
        date=date,
        subject=subject,
        committed=float(committed) if is_time else 0.0,
        parents=tuple(parents.split()),
        pull_request=pull_request_of(subject, message),
        branch=branch_of(subject),
    )

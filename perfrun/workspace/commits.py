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

if TYPE_CHECKING:
    import git

_FORMAT = "%H%x00%an <%ae>%x00%aI%x00%s"


@dataclass(frozen=True)
class Commit:
    """One commit, as its log shows it."""

    git_hash: str
    author: str
    date: str  # of the author, ISO 8601
    subject: str


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
        raise UsageError(f"--good and --bad are the same commit, {ends[0][:12]}")
    try:
        return _between(cache.repository, repo, ends, (good, bad))
    except GitFailed as error:
        raise WorkspaceError(f"--git_repos: history cannot be read: {error}") from None


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
    subject = itertools.takewhile(bool, (line.rstrip() for line in lines))
    return Commit(
        git_hash=commit.hexsha,
        author=f"{commit.author.name} <{commit.author.email}>",
        date=commit.authored_datetime.isoformat(),
        subject=" ".join(subject),
    )


def _log(cache: Repository, *arguments: str) -> tuple[Commit, ...]:
    """Return commits by `git log`: GitPython reads no repository whose hashes are SHA-256."""
    words = ("log", "-z", f"--format={_FORMAT}", "--first-parent", "--reverse")
    return parse_log(ask(cache, *words, *arguments, "--"))


def parse_log(answer: bytes) -> tuple[Commit, ...]:
    """Return the commits of a log: four fields each, of which any may be empty."""
    lines = answer.decode("utf-8", "backslashreplace").split("\0")
    return tuple(Commit(*lines[at : at + 4]) for at in range(0, len(lines) - 4, 4))

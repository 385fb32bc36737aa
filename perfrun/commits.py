"""The commits between two of a repository, from the workspace's cache of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfrun.errors import UsageError, WorkspaceError
from perfrun.gitcache import GitCache
from perfrun.gitcommand import GitFailed, ask
from perfrun.plan import RepoSpec

_FORMAT = "%H%x00%an <%ae>%x00%aI%x00%s"


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit, as its log shows it."""

    git_hash: str
    author: str
    date: str  # of the author, ISO 8601
    subject: str


def commits_between(
    workspace: Path, repo: RepoSpec, good: str, bad: str, notify: Callable[[str], None]
) -> tuple[Commit, ...]:
    """Return good, and what came after it up to bad, by first parents: a merge is one step.

    Raises:
        UsageError: bad does not descend from good.
        WorkspaceError: a commit cannot be had.
    """
    cache = GitCache(workspace, repo, notify)
    ends = [cache.find(git_hash, repo.branch).git_hash for git_hash in (good, bad)]
    if cache.shallow_file.exists():
        cache.fetch_history()  # commits that were fetched alone know no parents
    if ends[0] == ends[1]:
        raise UsageError(f"--good and --bad are the same commit, {ends[0][:12]}")
    if not _descends(cache, ends[0], ends[1]):
        swapped = "; the two are swapped" if _descends(cache, ends[1], ends[0]) else ""
        raise UsageError(
            f"--bad={bad}: does not descend from --good={good} in {repo.shown_url}{swapped}"
        )
    after = _log(cache, "--first-parent", "--reverse", f"{ends[0]}..{ends[1]}")
    return (*_log(cache, "--max-count=1", ends[0]), *after)


def _descends(cache: GitCache, ancestor: str, commit: str) -> bool:
    try:
        ask(cache.repository, "merge-base", "--is-ancestor", ancestor, commit)
    except GitFailed as error:
        if error.status == 1:
            return False
        raise WorkspaceError(f"--git_repos: history cannot be read: {error}") from None
    return True


def _log(cache: GitCache, *arguments: str) -> tuple[Commit, ...]:
    try:
        text = ask(cache.repository, "log", "-z", f"--format={_FORMAT}", *arguments, "--")
    except GitFailed as error:
        raise WorkspaceError(f"--git_repos: history cannot be read: {error}") from None
    words = text.decode("utf-8", "backslashreplace").rstrip("\0").split("\0")
    return tuple(
        Commit(git_hash=words[at], author=words[at + 1], date=words[at + 2], subject=words[at + 3])
        for at in range(0, len(words) - 3, 4)
    )

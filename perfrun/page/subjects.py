"""The subjects of commits, from clones that the user names or that perfrun made in a workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from perfrun.errors import WorkspaceError
from perfrun.options.parsers import is_full
from perfrun.workspace.cache import made_for
from perfrun.workspace.git import SHA256_DIGITS, GitFailed, ask, objects_alone

_AT_ONCE = 500  # commits of a command line
_MOST = 20_000


def subjects_of(
    commits: Iterable[tuple[str, str]],
    urls: Mapping[str, str],
    clones: Mapping[str, Path],
    workspace: Path,
) -> dict[tuple[str, str], str]:
    """Return the subjects that are at hand of (folder of the checkout, commit)."""
    wanted: dict[str, list[str]] = {}
    for name, commit in list(commits)[:_MOST]:
        if is_full(commit):
            wanted.setdefault(name, []).append(commit)
    found: dict[tuple[str, str], str] = {}
    for name, own in wanted.items():
        folders = (
            [clones[name]] if name in clones else made_for(workspace, name, urls.get(name, ""))
        )
        for folder in folders:
            lacking = [commit for commit in own if (name, commit) not in found]
            for at in range(0, len(lacking), _AT_ONCE):
                read = _read(folder, lacking[at : at + _AT_ONCE])
                found |= {(name, commit): subject for commit, subject in read.items()}
    return found


def _read(folder: Path, commits: list[str]) -> dict[str, str]:
    git_dir = folder / ".git" if (folder / ".git").is_dir() else folder
    words = ("log", "-z", "--no-walk=unsorted", "--ignore-missing", "--format=%H%x00%s")
    try:
        if not (git_dir / "objects").is_dir():
            return {}
        with objects_alone(git_dir, is_sha256=len(commits[0]) == SHA256_DIGITS) as repository:
            answer = ask(repository, *words, "--end-of-options", *commits)
    except (GitFailed, WorkspaceError, OSError):
        return {}
    parts = answer.decode("utf-8", "backslashreplace").split("\0")
    return dict(zip(parts[::2], parts[1::2], strict=False))

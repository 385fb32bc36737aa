"""A commit with its files as a git bundle, and back into the workspace's cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perfrun.errors import UsageError, WorkspaceError
from perfrun.options.plan import RepoSpec
from perfrun.untrusted import remove_tree
from perfrun.workspace.cache import GitCache
from perfrun.workspace.git import SHA256_DIGITS, GitFailed, Repository, ask, command, objects_alone

_REF = "refs/heads/capsule"
Notify = Callable[[str], None]


def write_bundle(repo: RepoSpec, workspace: Path, target: Path, notify: Notify) -> None:
    """Write the repository's commit, without its history, into a bundle.

    The commit is taken from the workspace's cache, and fetched where that lacks it. Raises
    WorkspaceError.
    """
    commit = repo.git_hash or ""
    cache = GitCache(workspace, repo, notify)
    cache.find(commit, repo.branch)
    is_sha256 = len(commit) == SHA256_DIGITS
    try:
        with objects_alone(cache.repository.git_dir, is_sha256=is_sha256) as alone:
            # So git takes the commit for the first one: its parents are not looked for.
            (alone.git_dir / "shallow").write_text(f"{commit}\n", encoding="ascii")
            command(alone, "update-ref", _REF, commit)
            # One thread, or the same objects would be packed in another order each time.
            command(alone, "-c", "pack.threads=1", "bundle", "create", "-q", str(target), _REF)
    except (GitFailed, OSError) as error:
        raise WorkspaceError(f"{repo.shown_url}: {commit[:12]} cannot be packed: {error}") from None


def read_bundle(repo: RepoSpec, workspace: Path, bundle: Path, notify: Notify) -> None:
    """Put the commit of a bundle into the cache of a workspace, where a run finds it.

    Git computes the hash of each object, so what has the commit's hash is the commit. Raises
    UsageError.
    """
    commit = repo.git_hash or ""
    cache = GitCache(workspace, repo, notify)
    git_dir = cache.repository.git_dir
    if (git_dir / "HEAD").is_file() and cache.has(commit):
        return
    aside = Repository(git_dir=git_dir.with_suffix(".new"))
    digits = "sha256" if len(commit) == SHA256_DIGITS else "sha1"
    try:
        remove_tree(aside.git_dir)
        aside.git_dir.mkdir(parents=True)
        command(
            aside,
            *("init", "--quiet", "--bare", "--template=", "--initial-branch=none"),
            f"--object-format={digits}",
        )
        (aside.git_dir / "shallow").write_text(f"{commit}\n", encoding="ascii")
        command(aside, "bundle", "unbundle", str(bundle))
        ask(aside, "rev-list", "--objects", "--quiet", commit, "--")
        command(aside, "update-ref", f"refs/perfrun/commits/{commit}", commit)
        remove_tree(git_dir)
        aside.git_dir.rename(git_dir)
    except (GitFailed, OSError) as error:
        raise UsageError(
            f"{bundle.name}: does not hold commit {commit[:12]} with all its files: {error}"
        ) from None

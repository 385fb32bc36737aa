"""Ask a remote whether a repository and a branch are there, without fetching anything."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from perfrun.errors import WorkspaceError
from perfrun.options.parsers import may_be_hash
from perfrun.options.plan import RepoSpec
from perfrun.workspace.git import GitFailed, Repository, command

_LIMIT_S = 120.0
_FULL = 40  # digits of a hash, at least


def why_unreachable(repo: RepoSpec) -> str | None:
    """Return why a repository, or its branch or tag, cannot be fetched; None when it can.

    A commit is not looked up: remotes tell only the tips of branches and tags.
    """
    with TemporaryDirectory(prefix="perfrun-git-") as made:
        here = _empty(Path(made))
        ask = ("ls-remote", "--end-of-options", repo.url, *_wanted(repo))
        try:
            answer = command(here, *ask, timeout_s=_LIMIT_S)
        except (GitFailed, WorkspaceError) as error:
            return str(error)
    return why_not_among(answer, repo)


def tip_of(repo: RepoSpec) -> str:
    """Return the commit that a repository's branch or tag has now. Raises WorkspaceError."""
    names = _wanted(repo)
    with TemporaryDirectory(prefix="perfrun-git-") as made:
        # An annotated tag is an object of its own; what it names is listed with `^{}`.
        peeled = [f"{name}^{{}}" for name in names]
        ask = ("ls-remote", "--end-of-options", repo.url, *names, *peeled)
        try:
            answer = command(_empty(Path(made)), *ask, timeout_s=_LIMIT_S)
        except GitFailed as error:
            raise WorkspaceError(f"{repo.shown_url}: {error}") from None
    why = why_not_among(answer, repo)
    if why:
        raise WorkspaceError(f"{repo.shown_url}: {why}")
    found = {name: tip for tip, _, name in (one.partition("\t") for one in answer.split("\n"))}
    tip = next(found[name] for name in (*peeled, *names) if name in found)
    if not may_be_hash(tip) or len(tip) < _FULL:
        raise WorkspaceError(f"{repo.shown_url}: the remote names {tip[:80]!r}, which is no commit")
    return tip.lower()


def why_not_among(answer: str, repo: RepoSpec) -> str | None:
    """Return why what a remote has does not do, as `git ls-remote` lists it; None when it does."""
    names = {line.partition("\t")[2] for line in answer.split("\n")}
    if names & set(_wanted(repo)):
        return None
    if repo.branch:
        return f"branch or tag {repo.branch!r} is not there"
    return "it has no commit" if not repo.git_hash else None


def _wanted(repo: RepoSpec) -> list[str]:
    if repo.branch and not repo.branch.startswith("refs/"):
        return [f"refs/heads/{repo.branch}", f"refs/tags/{repo.branch}"]
    return [repo.branch or "HEAD"]


def _empty(folder: Path) -> Repository:
    """Return a repository without anything in it, so that no setting of another one counts."""
    (folder / "refs").mkdir()
    (folder / "objects").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    config = "[core]\n\tbare = true\n\trepositoryformatversion = 0\n"
    (folder / "config").write_text(config, encoding="ascii")
    return Repository(git_dir=folder)

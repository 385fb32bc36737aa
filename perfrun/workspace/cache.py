"""The cache of one remote repository: a bare repository in the workspace with the fetched commits.

Each commit is fetched alone where the server allows it.

    <workspace>/git-cache/<name>-<12 hex of sha256 of the redacted url>.git
        refs/perfrun/commits/<hash>   a commit that was fetched whole
        refs/perfrun/short/<prefix>   the commit that a short hash stands for
        refs/perfrun/all/             all branches and tags, once they had to be fetched
        perfrun-default-branch        the branch that the remote's HEAD pointed at
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perfrun.errors import UsageError, WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.parsers import is_full, local_branch, looks_hex
from perfrun.options.plan import RepoSpec, parse_repos
from perfrun.untrusted import remove_tree
from perfrun.worker.folders import places
from perfrun.workspace.git import GitFailed, Repository, ask, command

_TIP = "refs/perfrun/tip"
_ALL_COMMITS = 2**31 - 1  # git's own number for an infinite depth
_SOME_COMMITS = 64
_ASK_TIMEOUT_S = 120.0
_SHARED = ("git-cache", ".locks/git-cache")  # of a workspace: the cache, and its locks
# Failures of the server or of this machine: another way of fetching would fail as well.
_FINAL_FAILURE = re.compile(
    r"Could not read from remote|unable to access|[Cc]ould not resolve host|Authentication failed"
    r"|could not read (Username|Password)|does not appear to be a git repository|not allowed"
    r"|repository .* not found|unable to connect|Permission denied|dubious ownership"
    r"|No space left|Read-only file system|no answer within|mismatched algorithms"
)


@dataclass(frozen=True, kw_only=True)
class CachedCommit:
    """A commit in the cache, and the branch that a checkout of it is to be on."""

    git_hash: str
    branch: str | None  # local branch to be on; None = detached
    any_branch: bool = False  # none was asked for, and the default branch is not known
    fetched: bool  # the remote was asked


def _entry(repo: RepoSpec) -> str:
    """Return the name of a repository's cache, which follows from its url alone."""
    key = hashlib.sha256(repo.shown_url.encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', repo.directory)[:80]}-{key}"


def made_for(workspace: Path, directory: str, url: str) -> list[Path]:
    """Return the repositories that may hold the history of a url which perfrun has fetched here.

    None for any other url, whatever lies at its place: the cache, and the repository itself if it
    is of this machine, for somebody named it to a run.
    """
    try:
        (repo,) = parse_repos(url)
    except (UsageError, ValueError):
        return []
    cache = workspace / "git-cache" / f"{_entry(repo)}.git"
    if repo.directory != directory or not (cache / "HEAD").is_file():
        return []
    local = local_path(repo.url)
    return [cache, *([local] if local else [])]


def share_cache(workspace: Path, owner: Path) -> None:
    """Have a workspace use the cache of another folder, with its locks, unless it has its own.

    A checkout stays the workspace's own. Raises OSError.
    """
    for name in _SHARED:
        target, link = owner / name, workspace / name
        target.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() and not link.exists():
            link.symlink_to(target)


def local_path(url: str) -> Path | None:
    """Return the folder that a url of this machine names; None for one of another machine."""
    parts = urlsplit(url) if "://" in url else None
    if parts is None:
        return Path(url) if url.startswith("/") else None
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
        return None
    return Path(unquote(parts.path))


class GitCache:
    """Finds commits of one repository, first in the cache, then at the remote."""

    def __init__(self, workspace: Path, repo: RepoSpec, notify: Callable[[str], None]) -> None:
        name = _entry(repo)
        self.repository = Repository(git_dir=workspace / "git-cache" / f"{name}.git")
        self._repo = repo
        self._notify = notify
        self._lock = FileLock(workspace / ".locks" / "git-cache" / f"{name}.lock")
        self._fetched = False

    @property
    def objects(self) -> Path:
        """The object directory, for a checkout to borrow from."""
        return self.repository.git_dir / "objects"

    @property
    def shallow_file(self) -> Path:
        """Git's list of commits whose parents were not fetched; may be absent."""
        return self.repository.git_dir / "shallow"

    def has(self, git_hash: str) -> bool:
        """Return True when a commit is here with all its files."""
        return self._commit_of(git_hash) is not None

    def find(self, git_hash: str | None, branch: str | None) -> CachedCommit:
        """Return the commit that was asked for; fetch it when it is not here.

        Raises:
            WorkspaceError: the commit cannot be fetched.
        """
        self._fetched = False
        try:
            with self._lock:
                self._lock.own(self._on_wait)
                self._make()
                if git_hash is None:
                    return self._find_tip(branch)
                full = (
                    self._ensure(git_hash, branch)
                    if is_full(git_hash)
                    else self._expand(git_hash, branch)
                )
                on = local_branch(branch) if branch else self._default_branch()
                return CachedCommit(
                    git_hash=full,
                    branch=on,
                    any_branch=not branch and on is None,
                    fetched=self._fetched,
                )
        except GitFailed as error:
            raise self._error(f"cannot be fetched: {error}") from None

    def fetch_history(self) -> None:
        """Fetch all branches and tags with all their commits. Raises WorkspaceError."""
        self._notify(f"fetching the history of {self._repo.shown_url}")
        try:
            with self._lock:
                self._lock.own(self._on_wait)
                self._make()
                self._fetch_all()
        except GitFailed as error:
            raise self._error(f"its history cannot be fetched: {error}") from None

    # What is in the cache

    def _commit_of(self, name: str) -> str | None:
        try:
            answer = ask(self.repository, "rev-parse", "--verify", f"{name}^{{commit}}")
        except GitFailed as error:
            if "ambiguous" in error.stderr:
                raise self._error(f"{name} is the beginning of more than one commit") from None
            return None
        return answer.decode().strip()

    def _on_wait(self) -> None:
        self._notify(
            f"waiting for another run that fetches {self._repo.shown_url}{self._lock.holder}"
        )

    def _make(self) -> None:
        """Make the bare repository, or remove the files that a killed fetch left in it."""
        git_dir = self.repository.git_dir
        if (git_dir / "HEAD").is_file():
            halves = (git_dir.glob(f"objects/{pattern}") for pattern in ("pack/tmp_*", "tmp_*"))
            for left in chain(lock_files(git_dir), *halves):
                left.unlink(missing_ok=True)
            return
        aside = git_dir.with_suffix(".new")
        wanted = self._repo.git_hash or ""
        try:
            remove_tree(aside)
            aside.mkdir(parents=True)
            command(
                Repository(git_dir=aside),
                *("init", "--quiet", "--bare", "--template=", "--initial-branch=none"),
                f"--object-format={'sha256' if len(wanted) == 64 else 'sha1'}",
            )
            remove_tree(git_dir)
            aside.rename(git_dir)
        except OSError as error:
            raise WorkspaceError(f"cannot make {git_dir}: {error.strerror}") from None

    # Tips

    def _find_tip(self, branch: str | None) -> CachedCommit:
        if branch is None:
            name = self._ask_default_branch()
            ref, on = (f"refs/heads/{name}", name) if name else ("HEAD", None)
        else:
            ref, on = branch, local_branch(branch)
        self._notify(f"fetching {branch or on or 'HEAD'} of {self._repo.shown_url}")
        if ref.startswith("refs/") or ref == "HEAD":
            found = self._fetch_tip(ref)
        else:
            found = self._fetch_tip(f"refs/heads/{ref}")
            if found is None:
                found, on = self._fetch_tip(f"refs/tags/{ref}"), None
        if found is None:
            hint = "; a commit hash goes into the third field" if looks_hex(ref) else ""
            what = f"branch or tag {branch!r} is not there" if branch else "it has no commit"
            raise self._error(f"{what}{hint}")
        return CachedCommit(git_hash=found, branch=on, fetched=True)

    def _fetch_tip(self, ref: str, depth: int = 1) -> str | None:
        """Fetch one ref; None when the remote has no such ref."""
        try:
            self._fetch(f"+{ref}:{_TIP}", depth=depth)
        except GitFailed as error:
            if "couldn't find remote ref" in error.stderr:
                return None
            raise
        found = self._commit_of(_TIP)
        if found is None:
            raise self._error(f"{ref} is not a commit")
        self._keep(f"commits/{found}", found)
        return found

    def _default_branch(self) -> str | None:
        """Return the remote's default branch. The remote is asked once, and only during a fetch."""
        kept = self.repository.git_dir / "perfrun-default-branch"
        if kept.is_file():
            return kept.read_text(encoding="utf-8").strip() or None
        return self._ask_default_branch() if self._fetched else None

    def _ask_default_branch(self) -> str | None:
        self._refuse_foreign()
        self._fetched = True
        answer = command(
            self.repository,
            *("ls-remote", "--symref", "--end-of-options", self._repo.url, "HEAD"),
            keep_open=[self._lock.descriptor],
            timeout_s=_ASK_TIMEOUT_S,
        )
        found = re.search(r"^ref: refs/heads/(\S+)\tHEAD$", answer, re.MULTILINE)
        name = found[1] if found else ""
        kept = self.repository.git_dir / "perfrun-default-branch"
        aside = kept.with_suffix(".new")
        aside.write_text(name + "\n", encoding="utf-8")
        aside.replace(kept)
        return name or None

    # Commits

    def _ensure(self, git_hash: str, branch: str | None) -> str:
        """Fetch a commit by its full hash: alone, else with its branch, else with everything.

        The hash of an annotated tag stands for the tag's commit, which is returned.
        """
        known = self._commit_of(git_hash)
        if known is not None:
            return known
        self._notify(f"fetching {git_hash[:12]} of {self._repo.shown_url}")
        tried = []
        for what, fetch in self._ways(git_hash, branch):
            tried.append(what)
            try:
                fetch()
            except GitFailed as error:
                if _FINAL_FAILURE.search(error.stderr):
                    raise
                self._notify(f"{self._repo.shown_url}: {what} did not help: {error}")
            found = self._commit_of(git_hash)
            if found is not None:
                self._keep(f"commits/{git_hash}", git_hash)
                return found
        raise self._error(
            f"commit {git_hash} is not there (tried {', then '.join(tried)}); "
            "was it pushed, and not removed by a forced push?"
        )

    def _ways(self, git_hash: str, branch: str | None) -> list[tuple[str, Callable[[], object]]]:
        ways: list[tuple[str, Callable[[], object]]] = [
            ("the commit alone", lambda: self._fetch(f"+{git_hash}:{_TIP}", depth=1))
        ]
        if branch:
            ref = branch if branch.startswith("refs/") else f"refs/heads/{branch}"
            ways += [
                (
                    f"{_SOME_COMMITS} commits of {branch}",
                    lambda: self._fetch_tip(ref, _SOME_COMMITS),
                ),
                (f"all of {branch}", lambda: self._fetch_tip(ref, _ALL_COMMITS)),
            ]
        return [*ways, ("all branches and tags", self._fetch_all)]

    def _expand(self, prefix: str, branch: str | None) -> str:
        """Return the full hash that a short one stands for, and remember it.

        Only in a repository with all branches and tags is a short hash certain to be unique, so all
        of them are fetched.
        """
        known = self._commit_of(f"refs/perfrun/short/{prefix}")
        if known is not None:
            return known
        self._notify(
            f"fetching all of {self._repo.shown_url} to find what {prefix} stands for; "
            "a full hash would be fetched alone"
        )
        self._fetch_all()
        if branch and branch.startswith("refs/"):
            self._fetch_tip(branch, _ALL_COMMITS)
        found = self._commit_of(prefix)
        if found is None:
            raise self._error(f"no commit on any branch or tag begins with {prefix}")
        self._keep(f"short/{prefix}", found)
        return found

    def _fetch_all(self) -> None:
        self._fetch(
            "+refs/heads/*:refs/perfrun/all/heads/*",
            "+refs/tags/*:refs/perfrun/all/tags/*",
            depth=_ALL_COMMITS if self.shallow_file.exists() else None,
        )

    def _fetch(self, *refspecs: str, depth: int | None) -> None:
        self._refuse_foreign()
        self._fetched = True
        command(
            self.repository,
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--force"),
            *((f"--depth={depth}",) if depth else ()),
            *("--end-of-options", self._repo.url, *refspecs),
            keep_open=[self._lock.descriptor],
        )

    def _refuse_foreign(self) -> None:
        """Refuse a folder of another user, whose configuration git would obey (older ones do).

        As git does: the owner must be this user or root, or `safe.directory` must name the folder.
        """
        folder = local_path(self._repo.url)
        if folder is None:
            return
        trusted = {0, os.geteuid()}
        if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
            trusted.add(int(os.environ["SUDO_UID"]))
        for place in (folder, folder / ".git"):
            try:
                is_foreign = place.stat().st_uid not in trusted
            except OSError:
                continue  # git says what is wrong
            if is_foreign and not {"*", str(folder), str(place)} & self._safe_folders():
                raise self._error(
                    f"{place} belongs to another user; if you trust it: "
                    f"git config --global --add safe.directory {place}"
                )

    def _safe_folders(self) -> set[str]:
        try:
            listed = ask(self.repository, "config", "--get-all", "safe.directory")
        except GitFailed:
            return set()
        return set(os.fsdecode(listed).splitlines())

    def _keep(self, name: str, git_hash: str) -> None:
        command(self.repository, "update-ref", f"refs/perfrun/{name}", git_hash)

    def _error(self, what: str) -> WorkspaceError:
        return WorkspaceError(f"--git_repos: {self._repo.shown_url}: {what}")


def lock_files(git_dir: Path) -> list[Path]:
    """Return the lock files of a repository and of its branches: a killed git leaves them."""
    refs = places(str(git_dir / "refs"))
    inner = (Path(place, name) for place, names in refs for name in names)
    return [*git_dir.glob("*.lock"), *(path for path in inner if path.name.endswith(".lock"))]

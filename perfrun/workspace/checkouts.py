"""Git checkouts at pinned commits (docs/reference/workspace.md).

    <workspace>/site-packages/<directory>/   a checkout
    <workspace>/git-cache/<name>-<key>.git   its objects (`perfrun.workspace.cache`)
    <workspace>/.locks/<directory>.lock      held shared while a run uses the checkout

A run that is killed at any moment is repaired by the next one, and no edit is lost. A checkout has
its own `.git` and borrows its objects from the cache by a relative path, so that the workspace can
be moved or mounted elsewhere (a `git worktree` would break).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from perfrun.errors import WorkspaceError
from perfrun.locks import FileLock
from perfrun.options.plan import RepoSpec
from perfrun.text import redact
from perfrun.untrusted import Folder, Refused, read_file, remove_tree
from perfrun.worker.folders import places
from perfrun.workspace.cache import CachedCommit, GitCache, lock_files
from perfrun.workspace.git import GitFailed, Repository, ask, checkout_at, command
from perfrun.workspace.worktree import (
    ALL_FILES,
    CheckoutState,
    Note,
    diff_digest,
    occupied,
    origin_url,
    read_note,
    read_state,
    write_note,
)

USE_CACHED = "--use_cached_site_packages"
_STALE_AFTER_S = 2.0
_LINES_BYTES = 16 * 1024 * 1024  # of git's own lists of commits and folders


def _shown(folder: Path) -> str:
    """Return the name of a checkout for messages."""
    return f"site-packages/{folder.name}"


def _shown_paths(paths: list[str]) -> str:
    """Return up to three paths and how many more there are."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(repr(path) for path in paths[:3]) + more


def _make(
    folder: Path, cache: GitCache, target: CachedCommit, note: Note, keep_open: list[int]
) -> None:
    """Make a checkout aside and rename it into place. The caller holds the folder's lock alone."""
    aside = folder.with_name(f".{folder.name}.new")
    remove_tree(aside)
    aside.mkdir(parents=True)
    command(checkout_at(aside), "init", "--quiet", "--template=", _object_format(target))
    with (aside / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(_own_config(note.url))
    _borrow_objects(aside, cache)
    _switch(aside, target, keep_open, force=False)
    write_note(aside, note)
    aside.rename(folder)  # an empty folder there is replaced


def _update(
    folder: Path,
    cache: GitCache,
    target: CachedCommit,
    note: Note,
    state: CheckoutState,
    keep_open: list[int],
) -> None:
    """Change a checkout without edits to another commit. The caller holds its lock alone."""
    if (state.git_hash, state.branch) != (target.git_hash, target.branch or "HEAD"):
        _borrow_objects(folder, cache)
        under_way = replace(note, git_hash=state.git_hash, updating_to=target.git_hash)
        write_note(folder, under_way)
        _switch(folder, target, keep_open, force=state.seeming_changes)
        _forget_bytecode(folder)
    write_note(folder, note)


def _finish_update(folder: Path, note: Note, keep_open: list[int]) -> None:
    """Complete the change of commit that a kill interrupted.

    Raises:
        WorkspaceError: a file is neither of the old commit nor of the new one, nor the beginning
            of the new one's, so somebody edited it since.
    """
    assert note.updating_to is not None
    edited = _edited_since(folder, note.updating_to)
    if edited:
        raise WorkspaceError(
            f"{_shown(folder)}: an update was interrupted, and these files were edited since: "
            f"{_shown_paths(edited)}; move them away and run again"
        )
    target = CachedCommit(git_hash=note.updating_to, branch=note.branch, fetched=False)
    _switch(folder, target, keep_open, force=True)
    _forget_bytecode(folder)
    write_note(folder, replace(note, git_hash=note.updating_to, updating_to=None))


def _edited_since(folder: Path, to: str) -> list[str]:
    """Return the changed paths that the interrupted update did not change."""
    changed = {change.path for change in read_state(folder).changes}
    index = folder / ".git" / "perfrun-index"
    index.unlink(missing_ok=True)
    # Compared with the new commit, too: a file that differs from both may be an edit.
    ask(checkout_at(folder), "read-tree", to, index=index)
    try:
        listed = ask(
            checkout_at(folder),
            *("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"),
            index=index,
        )
    finally:
        index.unlink(missing_ok=True)
    suspicious = changed & set(os.fsdecode(listed).split("\0"))
    return sorted(path for path in suspicious if not _half_written(folder, path, to))


def _half_written(folder: Path, path: str, to: str) -> bool:
    """Return True when a file is absent, or the beginning of the new commit's file."""
    file = folder / path
    if not os.path.lexists(file):
        return True
    try:
        whole = ask(checkout_at(folder), "cat-file", "blob", f"{to}:{path}")
        return whole.startswith(read_file(file, len(whole)))
    except (GitFailed, OSError, Refused):
        return False


def _remove_stale_locks(folder: Path) -> None:
    """Remove the lock files that a killed git left in a checkout.

    perfrun's own git processes hold the folder's lock. The caller holds it alone, so a lock file is
    stale unless a git process of the user runs there.

    Raises:
        WorkspaceError: a git process of the user runs there.
    """
    git_dir = folder / ".git"
    for lock in lock_files(git_dir):
        while (age_s := _age_s(lock)) is not None:
            if age_s >= _STALE_AFTER_S:
                _refuse_if_git_runs_in(folder)
                lock.unlink(missing_ok=True)
                break
            time.sleep(0.1)


def _age_s(path: Path) -> float | None:
    try:
        return abs(time.time() - path.lstat().st_mtime)
    except FileNotFoundError:
        return None


def _refuse_if_git_runs_in(folder: Path) -> None:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            place = (process / "cwd").readlink()
        except OSError:
            continue  # gone, or of another user
        if name.startswith("git") and place.is_relative_to(folder.resolve()):
            raise WorkspaceError(
                f"{_shown(folder)}: another git process ({process.name}) is at work there; "
                "let it end and run again"
            )


def _switch(folder: Path, target: CachedCommit, keep_open: list[int], *, force: bool) -> None:
    on = ("-B", target.branch) if target.branch else ("--detach",)
    command(
        checkout_at(folder),
        *("-c", "advice.detachedHead=false", "checkout", "--quiet", "--no-overwrite-ignore"),
        *(("--force",) if force else ()),
        *(*on, target.git_hash, "--"),
        keep_open=keep_open,
    )


def _forget_bytecode(folder: Path) -> None:
    """Remove what Python compiled from the old commit, except for files of a commit.

    Python takes a compiled file for current when its source has the same size and the same second
    of change: two commits that are checked out within a second would both run the first one's code.
    """
    answer = ask(checkout_at(folder), "ls-files", "-z", "--", "*.pyc")
    tracked = {folder / os.fsdecode(name) for name in answer.split(b"\0") if name}
    for place, names in places(str(folder), besides=(".git",)):
        here = Path(place)
        for path in (here / name for name in names if here.name == "__pycache__"):
            if path.suffix == ".pyc" and path not in tracked:
                with contextlib.suppress(OSError):
                    path.unlink()


def _borrow_objects(folder: Path, cache: GitCache) -> None:
    """Point the checkout to the cache's objects, and to the commits that have no parents there."""
    objects = (folder / ".git" / "objects").resolve()
    (objects / "info").mkdir(parents=True, exist_ok=True)
    borrowed = os.path.relpath(cache.objects.resolve(), objects)
    with Folder(objects, "info") as info:
        kept = _lines(info, "alternates")
        if borrowed not in kept:
            info.write("alternates", _joined([*kept, borrowed]))
    with Folder(folder, ".git") as git_dir, Folder(cache.shallow_file.parent) as other:
        cut = {*_lines(git_dir, "shallow"), *_lines(other, cache.shallow_file.name)}
        if cut:
            git_dir.write("shallow", _joined(sorted(cut)))


def _lines(folder: Folder, name: str) -> list[str]:
    return (folder.text(name, _LINES_BYTES) or "").splitlines()


def _joined(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _own_config(url: str) -> str:
    quoted = redact(url).replace("\\", "\\\\").replace('"', '\\"')
    return (
        # The same bytes for everybody, whatever a user's configuration says.
        "[core]\n\tautocrlf = false\n\teol = lf\n"
        f'[remote "origin"]\n\turl = "{quoted}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
    )


def _object_format(target: CachedCommit) -> str:
    return f"--object-format={'sha256' if len(target.git_hash) == 64 else 'sha1'}"


def _unpublished(folder: Path, cache: GitCache, note: Note | None, branch: str | None) -> bool:
    """Return True when a move of HEAD and `branch` would lose commits that exist only here."""
    here = checkout_at(folder)
    known = {note.git_hash, note.updating_to} if note else set()
    return any(
        commit not in known and not cache.has(commit) and not _on_a_remote(here, commit)
        for commit in _tips(here, branch)
    )


def _tips(here: Repository, branch: str | None) -> Iterator[str]:
    for name in ("HEAD", f"refs/heads/{branch}") if branch else ("HEAD",):
        try:
            yield ask(here, "rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()
        except GitFailed:
            continue


def _on_a_remote(here: Repository, commit: str) -> bool:
    try:
        return not ask(here, "rev-list", "--max-count=1", commit, "--not", "--remotes")
    except GitFailed:
        return False


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """One folder of site-packages as a run uses it."""

    directory: str
    path: Path
    url: str  # redacted; empty for a folder that is not a git checkout
    branch: str  # as `git rev-parse --abbrev-ref HEAD`: 'HEAD' if detached; empty if no checkout
    git_hash: str  # full, of what is checked out; empty for a folder that is not a checkout
    asked_ref: str | None
    asked_hash: str | None
    dirty: bool  # local edits, or new files that are not ignored
    diff_sha256: str | None  # over the edits (`worktree.diff_digest`); None when clean
    fetched: bool  # the remote was asked


def _ignore(_: str) -> None:
    pass


@contextmanager
def checked_out(
    repos: Sequence[RepoSpec],
    *,
    workspace: Path,
    use_cached: bool,
    pinned: Mapping[str, str] | None = None,
    notify: Callable[[str], None] = _ignore,
) -> Iterator[tuple[Checkout, ...]]:
    """Put every repository at its commit, and keep other runs from changing it until the end.

    `pinned` maps directories to full hashes, which count instead of a branch's newest commit.
    `notify` gets one line before each step that can take long.

    Raises:
        WorkspaceError: a commit cannot be fetched, or a checkout holds work that would be lost.
    """
    workspace = workspace.absolute()
    done: dict[str, Checkout] = {}
    with ExitStack() as locks:
        # All runs lock in the same order, so that two runs never wait for each other.
        for repo in sorted(repos, key=lambda repo: repo.directory):
            lock = locks.enter_context(FileLock(workspace / ".locks" / f"{repo.directory}.lock"))
            place = _CheckoutFolder(
                repo=repo,
                folder=workspace / "site-packages" / repo.directory,
                want=(pinned or {}).get(repo.directory) or repo.git_hash,
                ref=None if repo.branch == "HEAD" else repo.branch,
                use_cached=use_cached,
                lock=lock,
                cache=GitCache(workspace, repo, notify),
                notify=notify,
            )
            done[repo.directory] = place.provide()
        yield tuple(done[repo.directory] for repo in repos)


@dataclass(frozen=True, kw_only=True)
class _CheckoutFolder:
    """One folder of site-packages, and the request for it."""

    repo: RepoSpec
    folder: Path
    want: str | None  # hash, full or short
    ref: str | None
    use_cached: bool
    lock: FileLock
    cache: GitCache
    notify: Callable[[str], None]

    def provide(self) -> Checkout:
        """Bring the folder to the commit that was asked for; its lock is held shared at the end."""
        self.lock.share(self._on_wait)
        try:
            found = self._as_it_is()
            return found if found is not None else self._bring_about()
        except GitFailed as error:
            raise WorkspaceError(f"{_shown(self.folder)}: {error}") from None
        except OSError as error:
            raise WorkspaceError(
                f"{_shown(self.folder)}: cannot be written: {error.strerror} ({error.filename})"
            ) from None

    def _refuse_edits(self, state: CheckoutState) -> None:
        if not state.changes:
            return
        advice = f"use them as they are with {USE_CACHED}"
        if self.use_cached:
            advice = f"leave the hash out, for it is at {state.git_hash[:12]} now"
        raise WorkspaceError(
            f"{_shown(self.folder)} has local edits "
            f"({_shown_paths([change.path for change in state.changes])}); commit and push them, "
            f"move them away, or {advice}"
        )

    def _refuse_other_url(self, note: Note | None) -> None:
        url = self.repo.shown_url
        there = note.url if note is not None else origin_url(self.folder)
        if there is None and self.use_cached:
            return
        if there is None or there.rstrip("/") != url.rstrip("/"):
            raise WorkspaceError(
                f"{_shown(self.folder)} is a checkout of {there or 'no remote'}, not of {url}; "
                "move it away"
            )

    def _on_wait(self) -> None:
        self.notify(f"waiting for another run that uses {_shown(self.folder)}{self.lock.holder}")

    def _as_it_is(self) -> Checkout | None:
        """Return the checkout if it needs neither the remote nor a change; None if it does."""
        if not occupied(self.folder):
            return None
        if not (self.folder / ".git").exists():
            return self._hand_made()
        note = read_note(self.folder)
        self._refuse_other_url(note)
        if note is not None and note.updating_to:
            return None
        try:
            state = read_state(self.folder)
        except GitFailed:
            return None  # broken: perhaps its cache was removed
        if self.use_cached and (self.want is None or state.git_hash.startswith(self.want)):
            if self.ref and state.branch not in (self.ref, "HEAD"):
                self.notify(
                    f"{_shown(self.folder)} is on branch {state.branch}, not {self.ref}: "
                    "used as it is"
                )
            return self._checkout(state, fetched=False)
        self._refuse_edits(state)
        return self._checkout(state, fetched=False) if self._is_noted(note, state) else None

    def _is_noted(self, note: Note | None, state: CheckoutState) -> bool:
        """Return True when perfrun made exactly this state for exactly this request."""
        return (
            note is not None
            and self.want is not None
            and note.asked_ref == self.ref
            and (note.git_hash if note.asked_hash == self.want else self.want) == state.git_hash
            and (note.branch or "HEAD") == state.branch
        )

    def _hand_made(self) -> Checkout:
        if not self.use_cached:
            raise WorkspaceError(
                f"{_shown(self.folder)} is in the way of {self.repo.shown_url} and is not a git "
                f"checkout; move it away, or use it as it is with {USE_CACHED}"
            )
        if self.want:
            raise WorkspaceError(
                f"{_shown(self.folder)} is not a git checkout, so it cannot be at {self.want}; "
                "move it away, or leave the hash out"
            )
        return self._checkout(None, fetched=False)

    def _bring_about(self) -> Checkout:
        target = self.cache.find(self.want, self.ref)
        while True:
            state = self._settled()
            if state is not None and _fits(state, target):
                return self._checkout(state, fetched=target.fetched)
            self.lock.own(self._on_wait)
            self._change(target)
            self._verify(target)
            # Between the two locks another run may have changed the folder: hence the loop.
            self.lock.share(self._on_wait)

    def _verify(self, target: CachedCommit) -> None:
        """Check the commit after a change; the lock is held alone."""
        state = read_state(self.folder)
        if not _fits(state, target):
            raise WorkspaceError(
                f"{_shown(self.folder)} is at {state.git_hash} ({state.branch}) after a checkout "
                f"of {target.git_hash} ({target.branch or 'HEAD'}); move it away and run again"
            )

    def _settled(self) -> CheckoutState | None:
        """Return the state of the checkout; None if it is absent, broken or half updated."""
        note = read_note(self.folder)
        if note is not None and note.updating_to:
            return None
        try:
            state = read_state(self.folder)
        except GitFailed:
            return None
        self._refuse_edits(state)
        return state

    def _change(self, target: CachedCommit) -> None:
        """Make or update the checkout; the lock is held alone."""
        keep_open = [self.lock.descriptor]
        note = Note(
            url=self.repo.shown_url,
            asked_ref=self.ref,
            asked_hash=self.want,
            git_hash=target.git_hash,
            branch=target.branch,
        )
        if not occupied(self.folder):
            _make(self.folder, self.cache, target, note, keep_open)
            return
        if self.folder.is_symlink() or not (self.folder / ".git").is_dir():
            raise WorkspaceError(
                f"{_shown(self.folder)} is a link or a linked work tree, which perfrun does not "
                f"change; move it away, or use it as it is with {USE_CACHED}"
            )
        before = read_note(self.folder)
        self._refuse_other_url(before)
        _remove_stale_locks(self.folder)
        state = self._repaired(before, keep_open)
        self._refuse_edits(state)
        if _unpublished(self.folder, self.cache, before, target.branch):
            raise WorkspaceError(
                f"{_shown(self.folder)} has commits that are only there; push or move them away"
                + ("" if self.want else f", or use them as they are with {USE_CACHED}")
            )
        _update(self.folder, self.cache, target, note, state, keep_open)

    def _repaired(self, note: Note | None, keep_open: list[int]) -> CheckoutState:
        """Repair the checkout as far as possible and return its state."""
        if note is not None:
            # The objects are in the cache: if that was removed, they must be fetched again.
            for git_hash in filter(None, (note.updating_to, note.git_hash)):
                if not self.cache.has(git_hash):
                    self.cache.find(git_hash, note.asked_ref)
            if note.updating_to:
                _finish_update(self.folder, note, keep_open)
        try:
            return read_state(self.folder)
        except GitFailed as error:
            raise WorkspaceError(
                f"{_shown(self.folder)} is damaged ({error}); move it away and run again"
            ) from None

    def _checkout(self, state: CheckoutState | None, *, fetched: bool) -> Checkout:
        """Describe the folder; its state is None when it is not a git checkout."""
        note = read_note(self.folder)
        url = note.url if note is not None else origin_url(self.folder) if state else ""
        return Checkout(
            directory=self.repo.directory,
            path=self.folder,
            url=url or "",
            branch=state.branch if state else "",
            git_hash=state.git_hash if state else "",
            asked_ref=self.repo.branch,
            asked_hash=self.repo.git_hash,
            dirty=state is None or bool(state.changes),
            diff_sha256=diff_digest(self.folder, state.changes if state else ALL_FILES),
            fetched=fetched,
        )


def _fits(state: CheckoutState, target: CachedCommit) -> bool:
    fits = target.any_branch or state.branch == (target.branch or "HEAD")
    return fits and state.git_hash == target.git_hash

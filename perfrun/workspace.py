"""Git checkouts at pinned commits, and the git state of the harness itself.

    <workspace>/site-packages/<directory>/   a checkout
    <workspace>/git-cache/<name>-<key>.git   its objects (`perfrun.gitcache`)
    <workspace>/.locks/<directory>.lock      held shared while a run uses the checkout

Docs: docs/workspace.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from perfrun import checkouts
from perfrun.checkouts import USE_CACHED, shown
from perfrun.errors import WorkspaceError
from perfrun.gitcache import GitCache, Target
from perfrun.gitcommand import GitFailed
from perfrun.locks import FileLock
from perfrun.plan import RepoSpec
from perfrun.worktree import (
    Note,
    State,
    diff_digest,
    folder_digest,
    look,
    occupied,
    origin_url,
    read_note,
)


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """What a run finds in one folder of site-packages."""

    directory: str
    path: Path
    url: str  # redacted; empty for a folder that is not a git checkout
    branch: str  # as `git rev-parse --abbrev-ref HEAD`: 'HEAD' if detached; empty if no checkout
    git_hash: str  # full, of what is checked out; empty for a folder that is not a checkout
    asked_ref: str | None
    asked_hash: str | None
    dirty: bool  # local edits, or new files that are not ignored
    diff_sha256: str | None  # over the edits (`perfrun.worktree.diff_digest`); None when clean
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

    `pinned` maps directories to full hashes that override what a branch says now. `notify` gets
    one line before anything that can take long.

    Raises:
        WorkspaceError: a commit cannot be had, or a checkout holds work that would be lost.
    """
    workspace = workspace.absolute()
    done: dict[str, Checkout] = {}
    with ExitStack() as locks:
        # In one order for all runs, so that two runs never wait for each other.
        for repo in sorted(repos, key=lambda repo: repo.directory):
            lock = locks.enter_context(FileLock(workspace / ".locks" / f"{repo.directory}.lock"))
            place = _Place(
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
class _Place:
    """One folder of site-packages and what is asked of it."""

    repo: RepoSpec
    folder: Path
    want: str | None  # hash, full or short
    ref: str | None
    use_cached: bool
    lock: FileLock
    cache: GitCache
    notify: Callable[[str], None]

    def provide(self) -> Checkout:
        """Return with the folder as asked and its lock shared."""
        self.lock.share(self._on_wait)
        try:
            found = self._as_it_is()
            return found if found is not None else self._bring_about()
        except GitFailed as error:
            raise WorkspaceError(f"{shown(self.folder)}: {error}") from None
        except OSError as error:
            raise WorkspaceError(
                f"{shown(self.folder)}: cannot be written: {error.strerror} ({error.filename})"
            ) from None

    def _refuse_edits(self, state: State) -> None:
        checkouts.refuse_edits(self.folder, state, use_cached=self.use_cached)

    def _refuse_other_url(self, note: Note | None) -> None:
        checkouts.refuse_other_url(
            self.folder, note, self.repo.shown_url, use_cached=self.use_cached
        )

    def _on_wait(self) -> None:
        self.notify(f"waiting for another run that uses {shown(self.folder)}")

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
            state = look(self.folder)
        except GitFailed:
            return None  # broken: perhaps its cache was removed
        if self.use_cached and (self.want is None or state.git_hash.startswith(self.want)):
            if self.ref and state.branch not in (self.ref, "HEAD"):
                self.notify(
                    f"{shown(self.folder)} is on branch {state.branch}, not {self.ref}: "
                    "used as it is"
                )
            return self._checkout(state, fetched=False)
        self._refuse_edits(state)
        return self._checkout(state, fetched=False) if self._is_noted(note, state) else None

    def _is_noted(self, note: Note | None, state: State) -> bool:
        """Say whether perfrun made exactly this state for exactly this request."""
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
                f"{shown(self.folder)} is in the way of {self.repo.shown_url} and is not a git "
                f"checkout; move it away, or use it as it is with {USE_CACHED}"
            )
        if self.want:
            raise WorkspaceError(
                f"{shown(self.folder)} is not a git checkout, so it cannot be at {self.want}; "
                "move it away, or leave the hash out"
            )
        return Checkout(
            **self._asked(),
            url="",
            branch="",
            git_hash="",
            dirty=True,
            diff_sha256=folder_digest(self.folder),
            fetched=False,
        )

    def _bring_about(self) -> Checkout:
        target = self.cache.find(self.want, self.ref)
        while True:
            state = self._settled()
            if state is not None and _fits(state, target):
                return self._checkout(state, fetched=target.fetched)
            self.lock.own(self._on_wait)
            self._change(target)
            self._verify(target)
            # Between the two locks another run may have had its turn: hence the loop.
            self.lock.share(self._on_wait)

    def _verify(self, target: Target) -> None:
        """Ask git whether a change did what it was to do; the lock is held alone."""
        state = look(self.folder)
        if not _fits(state, target):
            raise WorkspaceError(
                f"{shown(self.folder)} is at {state.git_hash} ({state.branch}) after a checkout of "
                f"{target.git_hash} ({target.branch or 'HEAD'}); move it away and run again"
            )

    def _settled(self) -> State | None:
        """Return the state of the checkout; None if it is absent, broken or half updated."""
        note = read_note(self.folder)
        if note is not None and note.updating_to:
            return None
        try:
            state = look(self.folder)
        except GitFailed:
            return None
        self._refuse_edits(state)
        return state

    def _change(self, target: Target) -> None:
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
            checkouts.make(self.folder, self.cache, target, note, keep_open)
            return
        if self.folder.is_symlink() or not (self.folder / ".git").is_dir():
            raise WorkspaceError(
                f"{shown(self.folder)} is a link or a linked work tree, which perfrun does not "
                f"change; move it away, or use it as it is with {USE_CACHED}"
            )
        before = read_note(self.folder)
        self._refuse_other_url(before)
        checkouts.remove_stale_locks(self.folder)
        state = self._repaired(before, keep_open)
        self._refuse_edits(state)
        if checkouts.unpublished(self.folder, self.cache, before, target.branch):
            raise WorkspaceError(
                f"{shown(self.folder)} has commits that are only there; push or move them away"
                + ("" if self.want else f", or use them as they are with {USE_CACHED}")
            )
        checkouts.update(self.folder, self.cache, target, note, state, keep_open)

    def _repaired(self, note: Note | None, keep_open: list[int]) -> State:
        """Return the state of the checkout after mending what can be mended."""
        if note is not None:
            # Objects are borrowed: without the cache that had them, they must be fetched again.
            for git_hash in filter(None, (note.updating_to, note.git_hash)):
                if not self.cache.has(git_hash):
                    self.cache.find(git_hash, note.asked_ref)
            if note.updating_to:
                checkouts.finish_update(self.folder, note, keep_open)
        try:
            return look(self.folder)
        except GitFailed as error:
            raise WorkspaceError(
                f"{shown(self.folder)} is damaged ({error}); move it away and run again"
            ) from None

    def _checkout(self, state: State, *, fetched: bool) -> Checkout:
        note = read_note(self.folder)
        return Checkout(
            **self._asked(),
            url=(note.url if note is not None else origin_url(self.folder)) or "",
            branch=state.branch,
            git_hash=state.git_hash,
            dirty=bool(state.changes),
            diff_sha256=diff_digest(self.folder, state.changes),
            fetched=fetched,
        )

    def _asked(self) -> _Asked:
        return _Asked(
            directory=self.repo.directory,
            path=self.folder,
            asked_ref=self.repo.branch,
            asked_hash=self.repo.git_hash,
        )


class _Asked(TypedDict):
    directory: str
    path: Path
    asked_ref: str | None
    asked_hash: str | None


def _fits(state: State, target: Target) -> bool:
    fits = target.any_branch or state.branch == (target.branch or "HEAD")
    return fits and state.git_hash == target.git_hash

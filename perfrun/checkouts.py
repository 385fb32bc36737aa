"""Make a checkout folder, or change the commit of one, so that a kill at any moment is repaired
by the next run and no edit is lost.

A checkout has its own `.git` and borrows its objects from the cache by a relative path, so that
the workspace can be moved or mounted elsewhere (a `git worktree` would break).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from perfrun.errors import WorkspaceError
from perfrun.gitcache import GitCache, Target
from perfrun.gitcommand import GitFailed, Repository, ask, checkout_at, command
from perfrun.redaction import redact
from perfrun.worktree import Note, State, look, origin_url, write_note

USE_CACHED = "--use_cached_site_packages"
_STALE_AFTER_S = 2.0


def shown(folder: Path) -> str:
    """Return the name of a checkout as messages show it."""
    return f"site-packages/{folder.name}"


def _shown_paths(paths: list[str]) -> str:
    """Return up to three paths and how many more there are."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(repr(path) for path in paths[:3]) + more


def refuse_other_url(folder: Path, note: Note | None, url: str, *, use_cached: bool) -> None:
    """Raise a WorkspaceError if a checkout is of another repository than `url` (redacted)."""
    there = note.url if note is not None else origin_url(folder)
    if there is None and use_cached:
        return
    if there is None or there.rstrip("/") != url.rstrip("/"):
        raise WorkspaceError(
            f"{shown(folder)} is a checkout of {there or 'no remote'}, not of {url}; move it away"
        )


def refuse_edits(folder: Path, state: State, *, use_cached: bool) -> None:
    """Raise a WorkspaceError if there are local edits, naming up to three files."""
    if not state.changes:
        return
    advice = f"use them as they are with {USE_CACHED}"
    if use_cached:
        advice = f"leave the hash out, for it is at {state.git_hash[:12]} now"
    raise WorkspaceError(
        f"{shown(folder)} has local edits "
        f"({_shown_paths([change.path for change in state.changes])}); commit and push them, "
        f"move them away, or {advice}"
    )


def make(folder: Path, cache: GitCache, target: Target, note: Note, keep_open: list[int]) -> None:
    """Make a checkout aside and rename it into place.

    To be called with the folder's lock held alone.
    """
    aside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    command(checkout_at(aside), "init", "--quiet", "--template=", _object_format(target))
    with (aside / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(_own_config(note.url))
    _borrow_objects(aside, cache)
    _switch(aside, target, keep_open, force=False)
    write_note(aside, note)
    aside.rename(folder)  # an empty folder there is replaced


def update(
    folder: Path,
    cache: GitCache,
    target: Target,
    note: Note,
    state: State,
    keep_open: list[int],
) -> None:
    """Change a checkout without edits to another commit.

    To be called with the folder's lock held alone.
    """
    if (state.git_hash, state.branch) != (target.git_hash, target.branch or "HEAD"):
        _borrow_objects(folder, cache)
        under_way = replace(note, git_hash=state.git_hash, updating_to=target.git_hash)
        write_note(folder, under_way)
        _switch(folder, target, keep_open, force=state.seeming_changes)
        _forget_bytecode(folder)
    write_note(folder, note)


def finish_update(folder: Path, note: Note, keep_open: list[int]) -> None:
    """Complete the change of commit that a kill interrupted.

    Raises:
        WorkspaceError: a file is neither of the old commit nor of the new one, nor the beginning
            of the new one's, so somebody edited it since.
    """
    assert note.updating_to is not None
    edited = _edited_since(folder, note.updating_to)
    if edited:
        raise WorkspaceError(
            f"{shown(folder)}: an update was interrupted, and these files were edited since: "
            f"{_shown_paths(edited)}; move them away and run again"
        )
    target = Target(git_hash=note.updating_to, branch=note.branch, fetched=False)
    _switch(folder, target, keep_open, force=True)
    _forget_bytecode(folder)
    write_note(folder, replace(note, git_hash=note.updating_to, updating_to=None))


def _edited_since(folder: Path, to: str) -> list[str]:
    """Return the changed paths that the interrupted update did not change."""
    changed = {change.path for change in look(folder).changes}
    index = folder / ".git" / "perfrun-index"
    index.unlink(missing_ok=True)
    # The same files seen as a checkout of the new commit: what differs from both is suspicious.
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
    """Say whether a file is absent, or the beginning of what the new commit has there."""
    file = folder / path
    if not os.path.lexists(file):
        return True
    try:
        whole = ask(checkout_at(folder), "cat-file", "blob", f"{to}:{path}")
        return not file.is_symlink() and whole.startswith(file.read_bytes())
    except (GitFailed, OSError):
        return False


def remove_stale_locks(folder: Path) -> None:
    """Take away the lock files that a killed git left in a checkout.

    perfrun's own git processes hold the folder's lock, so with that lock held alone, a lock file
    is stale unless the user is at work there.

    Raises:
        WorkspaceError: a git process of the user's seems to be at work.
    """
    git_dir = folder / ".git"
    for lock in [*git_dir.glob("*.lock"), *git_dir.glob("refs/**/*.lock")]:
        while (age_s := _age_s(lock)) is not None:
            if age_s >= _STALE_AFTER_S:
                _refuse_if_git_runs_in(folder)
                lock.unlink(missing_ok=True)
                break
            time.sleep(0.1)


def _age_s(path: Path) -> float | None:
    try:
        return abs(time.time() - path.stat().st_mtime)
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
                f"{shown(folder)}: another git process ({process.name}) is at work there; "
                "let it end and run again"
            )


def _switch(folder: Path, target: Target, keep_open: list[int], *, force: bool) -> None:
    on = ("-B", target.branch) if target.branch else ("--detach",)
    command(
        checkout_at(folder),
        *("-c", "advice.detachedHead=false", "checkout", "--quiet", "--no-overwrite-ignore"),
        *(("--force",) if force else ()),
        *(*on, target.git_hash, "--"),
        keep_open=keep_open,
    )


def _forget_bytecode(folder: Path) -> None:
    """Remove what Python compiled from the old commit, except for what a commit holds.

    Python takes a compiled file for current when its source has the same size and the same second
    of change: two commits that are checked out within a second would both run the first one's code.
    """
    answer = ask(checkout_at(folder), "ls-files", "-z", "--", "*.pyc")
    tracked = {folder / os.fsdecode(name) for name in answer.split(b"\0") if name}
    for where, folders, names in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        here = Path(where)
        compiled = [name for name in names if name.endswith(".pyc")]
        for path in (here / name for name in compiled if here.name == "__pycache__"):
            if path not in tracked:
                path.unlink()


def _borrow_objects(folder: Path, cache: GitCache) -> None:
    """Let the checkout read the cache's objects, and know where their history was cut."""
    objects = (folder / ".git" / "objects").resolve()
    (objects / "info").mkdir(parents=True, exist_ok=True)
    alternates = objects / "info" / "alternates"
    borrowed = os.path.relpath(cache.objects.resolve(), objects)
    kept = _lines(alternates)
    if borrowed not in kept:
        alternates.write_text("".join(f"{line}\n" for line in [*kept, borrowed]))
    shallow = folder / ".git" / "shallow"
    cut = sorted({*_lines(shallow), *_lines(cache.shallow_file)})
    if cut:
        shallow.write_text("".join(f"{line}\n" for line in cut))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _own_config(url: str) -> str:
    quoted = redact(url).replace("\\", "\\\\").replace('"', '\\"')
    return (
        # The same bytes for everybody, whatever a user's configuration says.
        "[core]\n\tautocrlf = false\n\teol = lf\n"
        f'[remote "origin"]\n\turl = "{quoted}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
    )


def _object_format(target: Target) -> str:
    return f"--object-format={'sha256' if len(target.git_hash) == 64 else 'sha1'}"


def unpublished(folder: Path, cache: GitCache, note: Note | None, branch: str | None) -> bool:
    """Say whether moving HEAD and `branch` would leave commits behind that exist only here."""
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

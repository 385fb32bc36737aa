"""What is in a checkout folder: commit, branch, local edits, and perfrun's own note about it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from perfrun.dataclass import asdict, dataclass
from perfrun.errors import WorkspaceError
from perfrun.text import redact
from perfrun.workspace.git import GitFailed, ask, checkout_at

_NOTE = "perfrun.json"
# Python writes these next to what it runs; they are nobody's edits.
_BYTECODE = re.compile(r"(^|/)__pycache__(/$|/[^/]*\.pyc(\.\d+)?$)")


@dataclass(frozen=True, kw_only=True)
class Note:
    """What perfrun last did in a checkout, kept in its `.git/perfrun.json`."""

    url: str  # redacted
    asked_ref: str | None
    asked_hash: str | None
    git_hash: str
    branch: str | None  # None: detached
    updating_to: str | None = None  # set while the files are being changed to another commit


@dataclass(frozen=True, kw_only=True)
class EditedPath:
    """One path that differs from HEAD."""

    path: str  # relative to the checkout; ends in / for an untracked repository
    head_object: str  # what HEAD has there; empty if nothing


@dataclass(frozen=True, kw_only=True)
class State:
    """What git says about a checkout now."""

    git_hash: str  # empty before the first commit
    branch: str  # 'HEAD' if detached
    changes: tuple[EditedPath, ...]  # local edits and new files that are not ignored
    seeming_changes: bool  # paths that git calls changed, but that are nobody's edits


def read_note(folder: Path) -> Note | None:
    """Return perfrun's note about a checkout; None if perfrun did not make it."""
    try:
        return Note(**json.loads((folder / ".git" / _NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_note(folder: Path, note: Note) -> None:
    """Write the note aside and put it in place."""
    path = folder / ".git" / _NOTE
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(asdict(note), indent=1) + "\n", encoding="utf-8")
    aside.replace(path)


def look(folder: Path, index: Path | None = None) -> State:
    """Ask git what is checked out and edited, in one process and changing nothing.

    Raises:
        GitFailed: it is not a checkout, or a broken one.
    """
    answer = ask(
        checkout_at(folder),
        *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames"),
        index=index,
    )
    git_hash = branch = ""
    changes: list[EditedPath] = []
    seeming_changes = False
    for entry in filter(None, os.fsdecode(answer).split("\0")):
        kind, _, rest = entry.partition(" ")
        if kind == "#":
            key, _, value = rest.partition(" ")
            git_hash = value if key == "branch.oid" and value != "(initial)" else git_hash
            branch = value if key == "branch.head" else branch
            continue
        change = _change(kind, rest)
        if _BYTECODE.search(change.path) or _is_as_in_head(folder, kind, rest, change):
            seeming_changes = True
        else:
            changes.append(change)
    return State(
        git_hash=git_hash,
        branch="HEAD" if branch == "(detached)" else branch,
        changes=tuple(changes),
        seeming_changes=seeming_changes,
    )


def _change(kind: str, rest: str) -> EditedPath:
    """Parse one entry; see "Porcelain Format Version 2" in git-status(1)."""
    if kind == "1":
        fields = rest.split(" ", 7)
        return EditedPath(path=fields[7], head_object="" if set(fields[5]) == {"0"} else fields[5])
    if kind == "u":
        fields = rest.split(" ", 9)
        return EditedPath(path=fields[9], head_object=fields[6])
    return EditedPath(path=rest, head_object="")


def _is_as_in_head(folder: Path, kind: str, rest: str, change: EditedPath) -> bool:
    """Say whether a path that git calls modified has the very bytes and mode that HEAD has.

    Git does so when .gitattributes wants line ends that the committed file has not: right after
    the checkout, and with nothing to be lost.
    """
    if kind != "1":
        return False
    _, _, head_mode, index_mode, mode, head_object, index_object, _ = rest.split(" ", 7)
    if not (head_mode == index_mode == mode and head_object == index_object):
        return False
    path = folder / change.path
    if path.is_symlink() or not path.is_file():
        return False
    import hashlib  # OpenSSL, 5 ms that a run without checkouts does not pay

    content = path.read_bytes()
    algorithm = "sha256" if len(head_object) == 64 else "sha1"
    blob = hashlib.new(algorithm, b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return blob.hexdigest() == head_object


def origin_url(folder: Path) -> str | None:
    """Return the redacted url of the remote `origin`; None if there is none."""
    try:
        answer = ask(checkout_at(folder), "config", "--get", "remote.origin.url")
    except GitFailed:
        return None
    return redact(os.fsdecode(answer).strip())


def commit_info(folder: Path) -> dict[str, str]:
    """Return PerfZero's url, branch and hash of a checkout; empty if git cannot tell them."""
    try:
        answer = ask(checkout_at(folder), "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
        git_hash, branch = answer.decode().split()
        return {"url": origin_url(folder) or "", "branch": branch, "hash": git_hash}
    except (GitFailed, WorkspaceError, OSError, ValueError):
        return {}


def harness_git_info(folder: Path) -> dict[str, str]:
    """Return url (redacted), branch and hash of the checkout whose root is `folder` or its parent.

    Not searched further up: an installed perfrun may lie somewhere inside a checkout of something
    else. Empty when there is no checkout or no git; never raises.
    """
    for root in (folder, folder.parent):
        if (root / ".git").exists():
            return commit_info(root)
    return {}


def diff_digest(folder: Path, changes: tuple[EditedPath, ...]) -> str | None:
    """Return a SHA-256 that two checkouts of one commit share if their edits are the same.

    Taken over what is on disk and not over the text of `git diff`, which depends on the version
    and the configuration of git. For each changed path, sorted: path, NUL, HEAD's object id, NUL,
    kind (file, exec, link, absent), NUL, SHA-256 of the content, newline.
    """
    if not changes:
        return None
    import hashlib

    digest = hashlib.sha256()
    for change in sorted(changes, key=lambda change: os.fsencode(change.path)):
        for path in _files(folder, change.path):
            kind, content = _content(folder / path)
            line = f"{path}\0{change.head_object}\0{kind}\0{content}\n"
            digest.update(os.fsencode(line))
    return digest.hexdigest()


def folder_digest(folder: Path) -> str | None:
    """Return the digest of a folder that is no checkout, as if every file in it were new."""
    return diff_digest(folder, (EditedPath(path="", head_object=""),))


def _files(folder: Path, path: str) -> Iterator[str]:
    """Yield the path itself, or all files in it if it is a folder (an untracked repository)."""
    start = folder / path
    if start.is_symlink() or not start.is_dir():
        yield path
        return
    for entry in sorted(start.iterdir(), key=os.fsencode):
        if entry.name not in (".git", "__pycache__"):
            yield from _files(folder, str(entry.relative_to(folder)))


def _content(path: Path) -> tuple[str, str]:
    import hashlib

    if path.is_symlink():
        return "link", hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    if not path.is_file():
        return "absent", ""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return "exec" if os.access(path, os.X_OK) else "file", digest.hexdigest()


def occupied(folder: Path) -> bool:
    """Say whether something is there; an empty folder counts as nothing."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return True
    return folder.is_dir() and any(folder.iterdir())

"""The state of a checkout folder: commit, branch, local edits, and perfrun's own note about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from perfrun.dataclass import asdict, dataclass
from perfrun.errors import WorkspaceError
from perfrun.text import redact
from perfrun.untrusted import parse_json, read_file
from perfrun.worker.outcome_file import write_json
from perfrun.workspace.git import GitFailed, ask, checkout_at

_NOTE = "perfrun.json"
_NOTE_BYTES = 64 * 1024
# Python writes these beside the code that it runs; they are no edits.
_BYTECODE = r"(^|/)__pycache__(/$|/[^/]*\.pyc(\.\d+)?$)"


@dataclass(frozen=True, kw_only=True)
class Note:
    """perfrun's last change of a checkout, kept in its `.git/perfrun.json`."""

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
    head_object: str  # its object in HEAD; empty if there is none


@dataclass(frozen=True, kw_only=True)
class CheckoutState:
    """Commit, branch and edits of a checkout, as git reports them."""

    git_hash: str  # empty before the first commit
    branch: str  # 'HEAD' if detached
    changes: tuple[EditedPath, ...]  # local edits and new files that are not ignored
    seeming_changes: bool  # git calls some paths changed that nobody has edited


# The edits of a folder that is no checkout: every file in it is new.
ALL_FILES = (EditedPath(path="", head_object=""),)


def read_note(folder: Path) -> Note | None:
    """Return perfrun's note about a checkout; None when perfrun did not make it."""
    try:
        note = Note(**parse_json(read_file(folder / ".git" / _NOTE, _NOTE_BYTES)))
    except (OSError, ValueError, TypeError):
        return None
    facts = asdict(note)
    needed = (note.url, note.git_hash)
    sound = all(isinstance(fact, str) for fact in needed) and all(
        fact is None or isinstance(fact, str) for fact in facts.values()
    )
    return note if sound else None


def write_note(folder: Path, note: Note) -> None:
    """Write perfrun's note about a checkout."""
    write_json(str(folder / ".git" / _NOTE), asdict(note))


def read_state(folder: Path) -> CheckoutState:
    """Ask git for commit, branch and edits of a checkout, in one process and changing nothing.

    Raises:
        GitFailed: it is not a checkout, or a broken one.
    """
    answer = ask(
        checkout_at(folder),
        *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames"),
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
        if re.search(_BYTECODE, change.path) or _is_as_in_head(folder, kind, rest, change):
            seeming_changes = True
        else:
            changes.append(change)
    return CheckoutState(
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
    """Return True when a path that git calls modified has the bytes and the mode of HEAD.

    Git calls it so when .gitattributes wants other line ends than the committed file has: right
    after the checkout, when there is no edit to lose.
    """
    if kind != "1":
        return False
    _, _, head_mode, index_mode, mode, head_object, index_object, _ = rest.split(" ", 7)
    if not (head_mode == index_mode == mode and head_object == index_object):
        return False
    path = folder / change.path
    if path.is_symlink() or not path.is_file():
        return False
    import hashlib  # OpenSSL: 5 ms that a run without checkouts saves

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
    """Return PerfZero's url, branch and hash of a checkout; empty when git cannot tell them."""
    try:
        answer = ask(checkout_at(folder), "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
        git_hash, branch = answer.decode().split()
        return {"url": origin_url(folder) or "", "branch": branch, "hash": git_hash}
    except (GitFailed, WorkspaceError, OSError, ValueError):
        return {}


def harness_git_info(folder: Path) -> dict[str, str]:
    """Return url (redacted), branch and hash of the checkout whose root is `folder` or its parent.

    Folders further up do not count: an installed perfrun may lie inside a checkout of something
    else. Returns {} without a checkout or without git; never raises.
    """
    for root in (folder, folder.parent):
        if (root / ".git").exists():
            return commit_info(root)
    return {}


def diff_digest(folder: Path, changes: tuple[EditedPath, ...]) -> str | None:
    """Return a SHA-256 that two checkouts of one commit share when their edits are the same.

    It is computed from the files on disk and not from the text of `git diff`, which depends on the
    version and the configuration of git. For each changed path, sorted: path, NUL, HEAD's object
    id, NUL, kind (file, exec, link, absent), NUL, SHA-256 of the content, newline.
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


def _files(folder: Path, path: str) -> Iterator[str]:
    """Yield the path itself, or all files in it if it is a folder (an untracked repository)."""
    waiting = [path]  # no recursion: folders can be deeper in each other than that goes
    while waiting:
        path = waiting.pop()
        names = _names(folder / path)
        if names is None:
            yield path
            continue
        before = f"{path.rstrip('/')}/" if path else ""
        inner = [name for name in names if name not in (".git", "__pycache__")]
        waiting += [before + name for name in reversed(inner)]


def _names(path: Path) -> list[str] | None:
    """Return the names in a folder, sorted; None for what is none, or a link to one."""
    try:
        names = None if path.is_symlink() else [entry.name for entry in path.iterdir()]
    except OSError:
        return None
    return sorted(names, key=os.fsencode) if names is not None else None


def _content(path: Path) -> tuple[str, str]:
    import hashlib

    try:
        if path.is_symlink():
            return "link", hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
        if not path.is_file():
            return "absent", ""
    except OSError:  # a path that is longer than the system takes
        return "absent", ""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return "exec" if os.access(path, os.X_OK) else "file", digest.hexdigest()


def occupied(folder: Path) -> bool:
    """Return True when there is anything but an empty folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return True
    return folder.is_dir() and any(folder.iterdir())

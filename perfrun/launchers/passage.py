"""The way of the trials' user to its folder: on it lie folders that only their owner may enter.

A workspace of mode 0700 keeps other users of the machine out, and would keep the trials' user out,
who has only its own folder in there. An entry of an access control list lets that user alone pass,
which is not to say read, and is taken away at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from perfrun.trial_user import TrialUser

_ACL = "system.posix_acl_access"
# Of linux/posix_acl_xattr.h: a version, then entries of tag, rights and number, in this order.
_VERSION, _HEAD, _ENTRY = 2, struct.Struct("<I"), struct.Struct("<HHI")
_OWNER, _USER, _OWN_GROUP, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY = 0xFFFFFFFF
_PASS = 1
Entries = dict[tuple[int, int], int]
"""Rights by tag and number."""


def why_not(user: TrialUser, enters: Path, reads: Iterable[Path]) -> str | None:
    """Let the user pass to a folder; return why it cannot, or cannot read what it needs."""
    try:
        for folder in (*reversed(enters.parents), enters):
            if folder.is_dir() and not _can_pass(user, folder):
                _let_pass(folder, user.uid)
                if not _can_pass(user, folder):
                    return f"{folder}: Permission denied"
    except OSError as error:
        return f"{error.filename or enters}: {error.strerror}"
    for path in reads:
        try:
            with user.eyes():
                os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileNotFoundError:
            continue  # whoever needs it says so
        except OSError as error:
            return f"{path}: {error.strerror}"
    return None


def _can_pass(user: TrialUser, folder: Path) -> bool:
    with user.eyes():
        try:
            os.stat(f"{folder}/.")  # noqa: PTH116 - Path would drop the dot, which is the question
        except PermissionError:
            return False
    return True


def _let_pass(folder: Path, uid: int) -> None:
    """Add the entry until this process ends. Raises OSError."""
    entries = _entries(folder)
    entries[_USER, uid] = _PASS
    entries[_MASK, _NOBODY] = entries.get((_MASK, _NOBODY), 0) | _PASS
    if len(entries) == 5:  # there was no list: the mask has to hold for the group, too
        entries[_MASK, _NOBODY] |= entries[_OWN_GROUP, _NOBODY]
    os.setxattr(folder, _ACL, _packed(entries))
    atexit.register(_let_pass_no_more, folder, uid)


def _let_pass_no_more(folder: Path, uid: int) -> None:
    with contextlib.suppress(OSError):
        entries = _entries(folder)
        if entries.pop((_USER, uid), None) is None:
            return
        if any(tag in (_USER, _GROUP) for tag, _ in entries):
            os.setxattr(folder, _ACL, _packed(entries))
            return
        os.removexattr(folder, _ACL)
        mode = stat.S_IMODE(folder.stat().st_mode) & ~stat.S_IRWXG
        folder.chmod(mode | entries[_OWN_GROUP, _NOBODY] << 3)


def _entries(folder: Path) -> Entries:
    """Return the list of a folder, or the one that its mode stands for."""
    try:
        data = os.getxattr(folder, _ACL)
    except OSError:
        mode = folder.stat().st_mode
        return {
            (_OWNER, _NOBODY): mode >> 6 & 7,
            (_OWN_GROUP, _NOBODY): mode >> 3 & 7,
            (_OTHERS, _NOBODY): mode & 7,
        }
    return {(tag, number): rights for tag, rights, number in _ENTRY.iter_unpack(data[_HEAD.size :])}


def _packed(entries: Entries) -> bytes:
    listed = (_ENTRY.pack(tag, rights, number) for (tag, number), rights in sorted(entries.items()))
    return _HEAD.pack(_VERSION) + b"".join(listed)

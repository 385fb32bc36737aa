"""The user of the trials in perfrun's own images, who is another than perfrun's.

The entry point of an image starts as root, becomes the owner of the results, and leaves perfrun
four capabilities: to start processes as the trials' user, to signal them, and to take back what
they leave. So a trial can write nothing but its own folder, and can neither signal nor trace
perfrun. Elsewhere there is no such user, and a worker has the user of perfrun.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from perfrun.dataclass import dataclass

VARIABLE = "PERFRUN_TRIAL_USER"  # UID:HOME, from the entry point
# Of linux/capability.h and linux/prctl.h. Words: effective, permitted, inheritable, of the first
# 32 capabilities; then the same of the others.
_CAPABILITY_VERSION_3, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 0x20080522, 4, 38
_CAPABILITIES = struct.Struct("=6I")
_CHOWN, _KILL, _SETGID, _SETUID = 0, 5, 6, 7
NEEDED = 1 << _CHOWN | 1 << _KILL | 1 << _SETGID | 1 << _SETUID
_GROUP_MAY = stat.S_IRWXG


@dataclass(frozen=True, kw_only=True)
class TrialUser:
    """A user of the trials alone, who owns nothing but what they leave."""

    uid: int
    gid: int
    groups: tuple[int, ...]  # those of perfrun besides its own, which open devices
    home: str

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables that follow from who it is."""
        return {"HOME": self.home, "USER": "trial", "LOGNAME": "trial"}

    def lend(self, file: int, rights: int = _GROUP_MAY) -> None:
        """Let it use a folder or file of perfrun's, held open, which stays perfrun's own.

        Raises OSError.
        """
        mode = stat.S_IMODE(os.fstat(file).st_mode)
        os.fchown(file, -1, self.gid)
        os.fchmod(file, mode | rights)

    @contextlib.contextmanager
    def eyes(self) -> Iterator[None]:
        """Open files as this user, in this thread alone: /proc shows some only to their own user.

        Rights of perfrun over processes stay as they are, and it cannot be traced any more than
        before. Python's `os.access` asks for another identity.
        """
        libc = _libc()
        own = os.geteuid(), os.getegid()
        try:
            libc.setfsgid(self.gid)
            libc.setfsuid(self.uid)
            yield
        finally:
            libc.setfsuid(own[0])
            libc.setfsgid(own[1])
            # The kernel drops it with every change, and the guard could not take our files then.
            libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


class NoRightsError(Exception):
    """There should be another user for the trials, and perfrun has no rights to become it."""


_found: dict[int, TrialUser | None] = {}  # once it has been looked for
_watched: dict[int, TrialUser | None] = {}  # whose processes are watched now


def trial_user() -> TrialUser | None:
    """Return the user of the trials; None when they have perfrun's own. Raises NoRightsError.

    What perfrun starts for itself, such as git, gets nothing of its rights unless it is root.
    """
    if 0 not in _found:
        text = os.environ.pop(VARIABLE, "")
        _found[0] = _parsed(text) if text else None
    return _found[0]


def watch_as(user: TrialUser | None) -> None:
    """Say whose processes perfrun starts from now on; None: its own user's."""
    _watched[0] = user


def eyes_of_trials() -> contextlib.AbstractContextManager[None]:
    """Open files as the user whose processes are watched."""
    user = _watched.get(0)
    return contextlib.nullcontext() if user is None else user.eyes()


def identity(user: TrialUser | None) -> dict[str, Any]:
    """Return the arguments with which `subprocess` starts a worker as this user.

    None: as perfrun's own, without any of its rights.
    """
    if user is not None:
        return {"user": user.uid, "group": user.gid, "extra_groups": list(user.groups)}
    has_rights = _found.get(0) is not None or VARIABLE in os.environ
    if has_rights and os.geteuid() == 0:  # which would keep them in a new program
        return {"preexec_fn": _give_up}
    return {}


def _parsed(text: str) -> TrialUser:
    number, _, home = text.partition(":")
    if not (number.isascii() and number.isdecimal()) or not home.startswith("/"):
        raise NoRightsError(f"{VARIABLE} is set by the entry point of an image only")
    uid = int(number)
    effective, permitted, *_ = _capabilities()
    if uid in (0, os.geteuid()) or effective & permitted & NEEDED != NEEDED:
        raise NoRightsError(f"{VARIABLE} is set, but this process may not become user {uid}")
    _keep_to_itself()
    groups = tuple(sorted({*os.getgroups()} - {0, os.getegid()}))
    return TrialUser(uid=uid, gid=uid, groups=groups, home=home)


def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _capabilities() -> tuple[int, ...]:
    import ctypes

    held = ctypes.create_string_buffer(_CAPABILITIES.size)
    if _libc().capget(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), held) != 0:
        raise NoRightsError("the capabilities of this process cannot be read")
    return _CAPABILITIES.unpack(held.raw)


def _set_capabilities(words: tuple[int, ...]) -> None:
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _libc().capset(header, _CAPABILITIES.pack(*words)) != 0:
        raise NoRightsError("the capabilities of this process cannot be set")


def _keep_to_itself() -> None:
    """Hand no capability on to a program: none is inheritable, hence none is ambient."""
    words = _capabilities()
    _set_capabilities((*words[:2], 0, *words[3:5], 0))


def _give_up() -> None:
    """Give up what lets perfrun be another user, for good: the next program may not regain it."""
    words = _capabilities()
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _set_capabilities((words[0] & ~NEEDED, words[1] & ~NEEDED, 0, *words[3:5], 0))

#!/opt/perfrun/bin/python -I
"""The image's entry point: become the user who is to own the results, then run perfrun.

A container starts as root. With a rootful engine, files that root writes into a mounted folder
belong to the host's root, and not to the user who typed the command. So the entry point becomes
the owner of the mounted /workspace, or the user who ran setup.py, or the owner of the checkout,
which Compose mounts. With a rootless engine that owner is root in the container, because root
*is* the user there, and nothing changes but that the capabilities to become another are given up.

    PERFRUN_UID, PERFRUN_GID      the user and group to become, if not that owner
    PERFRUN_HOST_UID, .._GID      who ran setup.py, as the host numbers users (.env has it)
    docker run --user 1234:1234   works, too: then nothing changes
"""

from __future__ import annotations

import ctypes
import os
import pwd
import struct
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

WORKSPACE = Path("/workspace")
# A file of the checkout, mounted by docker-compose.yml for its owner alone.
CHECKOUT = Path("/run/perfrun/checkout")
PERFRUN = "/opt/perfrun/bin/perfrun"
ROOT = 0

# Of linux/capability.h and linux/prctl.h. Words: effective, permitted, inheritable, of the first
# 32 capabilities; then the same of the others.
_CAPABILITY_VERSION_3, _PR_SET_NO_NEW_PRIVS = 0x20080522, 38
_CAPABILITIES = struct.Struct("=6I")
_CHOWN, _KILL, _SETGID, _SETUID = 0, 5, 6, 7
_GIVEN_UP = (*(1 << _CHOWN | 1 << _KILL | 1 << _SETGID | 1 << _SETUID,) * 3, 0, 0, 0)

Identity = tuple[int, int]
"""A user's and a group's number."""


class RefusalError(Exception):
    """The container cannot be run as asked; the text is one line for the user."""


def requested_identity(environment: Mapping[str, str], prefix: str = "PERFRUN") -> Identity | None:
    """Return PERFRUN_UID and PERFRUN_GID; None when they are not set or empty."""
    uid = environment.get(f"{prefix}_UID", "")
    gid = environment.get(f"{prefix}_GID", "") or uid
    if not uid:
        return None
    if not (uid.isdecimal() and gid.isdecimal()):
        raise RefusalError(
            f"{prefix}_UID and {prefix}_GID must be numbers, as `id -u` and `id -g` print them"
        )
    return int(uid), int(gid)


def translate(number: int, id_map: str) -> int | None:
    """Return the container's number of a user or group of the host; None when it has none.

    A line of the map has the first number inside, the first outside, and a count; see
    user_namespaces(7).
    """
    for line in id_map.splitlines():
        inside, outside, count = (int(word) for word in line.split())
        if outside <= number < outside + count:
            return inside + number - outside
    return None


def find_caller(environment: Mapping[str, str], uid_map: str, gid_map: str) -> Identity | None:
    """Return the user who ran setup.py, by the container's numbers; None when not known."""
    host = requested_identity(environment, "PERFRUN_HOST")
    if host is None:
        return None
    uid, gid = translate(host[0], uid_map), translate(host[1], gid_map)
    return None if uid is None or gid is None else (uid, gid)


def is_mapped(uid: int, uid_map: str) -> bool:
    """Return True when a user exists in the user namespace of this uid_map."""
    ranges = ([int(word) for word in line.split()] for line in uid_map.splitlines())
    return any(first <= uid < first + count for first, _, count in ranges)


def is_remapped(uid_map: str) -> bool:
    """Return True when root in here is another user outside, as in a rootless engine."""
    return any(line.split()[:2] != ["0", "0"] for line in uid_map.splitlines())


def choose_identity(
    workspace: Identity | None,
    caller: Identity | None,
    checkout: Identity | None,
    uid_map: str,
    overflow_uid: int,
) -> Identity:
    """Return the user to run as: the owner of the workspace unless that is root, else the caller
    of setup.py, else the owner of the checkout, else root.

    None stands for one that is not there. A caller who is root in here is the user of a rootless
    engine.
    """
    for owner in (workspace, caller, checkout):
        if owner is None or (owner[0] == ROOT and owner is not caller):
            continue
        # An owner from outside this namespace is shown as the overflow user, which is nobody.
        is_stranger = is_remapped(uid_map) and owner[0] == overflow_uid
        if not is_stranger and is_mapped(owner[0], uid_map):
            return owner
    return ROOT, ROOT


def find_owner(path: Path) -> Identity | None:
    """Return the owner of a path; None when it is not there. The image's folders are root's."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_uid, found.st_gid


def find_identity() -> Identity:
    """Return the user to run as, by the environment and the mounts of this container."""
    uid_map = Path("/proc/self/uid_map").read_text(encoding="ascii")
    gid_map = Path("/proc/self/gid_map").read_text(encoding="ascii")
    return requested_identity(os.environ) or choose_identity(
        find_owner(WORKSPACE),
        find_caller(os.environ, uid_map, gid_map),
        find_owner(CHECKOUT),
        uid_map,
        int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii")),
    )


def hand_over_fresh_workspace(identity: Identity) -> None:
    """Give the workspace to the user if the engine has just made it: owned by root, and empty.

    A workspace of root's with files in it is refused: somebody has put them there.
    """
    owner = find_owner(WORKSPACE)
    if owner is None or owner[0] != ROOT:
        return
    if any(WORKSPACE.iterdir()):
        uid, gid = identity
        raise RefusalError(
            f"./workspace belongs to root and is not empty, so user {uid} cannot write results "
            f"there; run `sudo chown -R {uid}:{gid} workspace` once, or set PERFRUN_UID=0"
        )
    os.chown(WORKSPACE, *identity)


def become(identity: Identity) -> None:
    """Become the user for good. Groups of the engine (`group_add`) are kept, root's is not."""
    uid, gid = identity
    os.setgroups([group for group in os.getgroups() if group != ROOT])
    os.setgid(gid)
    os.setuid(uid)


def give_up_capabilities() -> None:
    """Give up what only the change of the user needs, for good; any other right stays as given.

    A root process would have all of them again in the next program, but not without new privileges.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(_CAPABILITIES.size)
    if libc.capget(header, held) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    kept = [word & ~mask for word, mask in zip(_CAPABILITIES.unpack(held), _GIVEN_UP, strict=True)]
    for failed in (
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        libc.capset(header, _CAPABILITIES.pack(*kept)),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), "the capabilities of root cannot be given up")


def settle_in(environment: MutableMapping[str, str]) -> None:
    """Set a writable home and a user name, also for a user that the image does not know."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        name, home = entry.pw_name, Path(entry.pw_dir)
    except KeyError:
        name, home = "perfrun", Path("/nonexistent")
    if not os.access(home, os.W_OK):
        home = Path(f"/tmp/perfrun-home-{uid}")  # noqa: S108 - in a container of one user
        home.mkdir(mode=0o700, exist_ok=True)
    environment.update(HOME=str(home), USER=name, LOGNAME=name)


def main() -> None:
    """Become the user and replace this process by perfrun."""
    if os.getuid() == ROOT:
        identity = find_identity()
        if identity[0] != ROOT:
            hand_over_fresh_workspace(identity)
            become(identity)
        else:
            give_up_capabilities()
    settle_in(os.environ)
    os.execv(PERFRUN, [PERFRUN, *sys.argv[1:]])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    try:
        main()
    except (RefusalError, OSError) as error:
        sys.stderr.write(f"perfrun: {error}\n")
        sys.exit(2 if isinstance(error, RefusalError) else 3)

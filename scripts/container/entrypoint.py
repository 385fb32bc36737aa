#!/opt/perfrun/bin/python -I
"""The image's entry point: become the user who is to own the results, then run perfrun.

A container starts as root. With a rootful engine, files that root writes into a mounted folder
belong to the host's root, and not to the user who typed the command. So the entry point becomes
the owner of the mounted /workspace, or the user who ran setup.py, or the owner of the checkout,
which Compose mounts. With a rootless engine that owner is root in the container, because root
*is* the user there.

The trials are another user, drawn anew for each container, so that they can write nothing but their
own folders. perfrun keeps the capabilities that it needs for that; see perfrun/trial_user.py.

    PERFRUN_UID, PERFRUN_GID      the user and group to become, if not that owner
    PERFRUN_HOST_UID, .._GID      who ran setup.py, as the host numbers users (.env has it)
    PERFRUN_TRIAL_UID             the user of the trials; `same`: perfrun's own
    docker run --user 1234:1234   works, too: then nothing changes, and there is one user
"""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import stat
import struct
import sys
from collections.abc import Container, Mapping, MutableMapping
from itertools import chain
from pathlib import Path

WORKSPACE = Path("/workspace")
# A file of the checkout, mounted by docker-compose.yml for its owner alone.
CHECKOUT = Path("/run/perfrun/checkout")
PERFRUN = "/opt/perfrun/bin/perfrun"
ROOT = 0

# UID:HOME of the trials' user, for perfrun.
TRIAL_USER = "PERFRUN_TRIAL_USER"
SAME = "same"
# Numbers that systemd keeps for users who come and go: no person and no service has them.
PASSING_USERS = range(61184, 65520)
# Of linux/capability.h and linux/prctl.h. Words: effective, permitted, inheritable, of the first
# 32 capabilities; then the same of the others.
_CAPABILITY_VERSION_3 = 0x20080522
_PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _RAISE = 8, 38, 47, 2
_CAPABILITIES = struct.Struct("=6I")
_FOUR = _CHOWN, _KILL, _SETGID, _SETUID = 0, 5, 6, 7
_NEEDED = sum(1 << number for number in _FOUR)
_GIVEN_UP = (*(_NEEDED,) * 3, 0, 0, 0)

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


def choose_trial_user(
    asked: str, own: Identity, taken: Container[int], uid_map: str, gid_map: str, start: int
) -> int | None:
    """Return the number of the trials' user and group; None when they are to have perfrun's.

    `start` is where to begin among the numbers that nobody has.
    """
    if asked in (SAME, str(own[0])):
        return None
    if asked:
        if not (asked.isascii() and asked.isdecimal()) or int(asked) == ROOT:
            raise RefusalError(f"PERFRUN_TRIAL_UID must be a number above 0, or `{SAME}`")
        if not is_mapped(int(asked), uid_map) or not is_mapped(int(asked), gid_map):
            raise RefusalError(f"PERFRUN_TRIAL_UID={asked}: this engine has no such user")
        if int(asked) == own[1]:
            raise RefusalError(f"PERFRUN_TRIAL_UID={asked} is the group of the results")
        return int(asked)
    count = len(PASSING_USERS)
    drawn = (PASSING_USERS[(start + step) % count] for step in range(count))
    # An engine may have few users; those of the system come first there.
    for number in chain(drawn, range(PASSING_USERS.start - 1, 999, -1)):
        if number not in taken and is_mapped(number, uid_map) and is_mapped(number, gid_map):
            return number
    return None


def find_trial_user(identity: Identity) -> int | None:
    """Return the trials' user of this container; None when there can be none."""
    known = (*(user.pw_uid for user in pwd.getpwall()), *(group.gr_gid for group in grp.getgrall()))
    owners = (find_owner(path) or identity for path in (WORKSPACE, CHECKOUT))
    taken = {ROOT, *identity, *os.getgroups(), *known, *(n for owner in owners for n in owner)}
    found = choose_trial_user(
        os.environ.pop("PERFRUN_TRIAL_UID", ""),
        identity,
        taken,
        Path("/proc/self/uid_map").read_text(encoding="ascii"),
        Path("/proc/self/gid_map").read_text(encoding="ascii"),
        start=int.from_bytes(os.urandom(4), "big"),
    )
    if found is not None and not all(word & _NEEDED == _NEEDED for word in capabilities()[:2]):
        sys.stderr.write(
            "perfrun: the trials run as perfrun's own user, who can write all results: this "
            "container has not the capabilities CHOWN, KILL, SETGID and SETUID\n"
        )
        return None
    return found


def make_trial_home(uid: int) -> Path:
    """Make the folder that is the trials' HOME. It may be there: a container can start again."""
    home = Path(f"/tmp/perfrun-trial-{uid}")  # noqa: S108 - whoever made it must be that user
    try:
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
    except FileExistsError:
        found = home.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            raise RefusalError(f"{home} belongs to somebody else") from None
    return home


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


def become(identity: Identity, *, keeps: bool) -> None:
    """Become the user for good. Groups of the engine (`group_add`) are kept, root's is not.

    `keeps`: with the four capabilities by which perfrun starts processes as another user.
    """
    uid, gid = identity
    if keeps:
        control(_PR_SET_KEEPCAPS, 1)
    os.setgroups([group for group in os.getgroups() if group != ROOT])
    os.setgid(gid)
    os.setuid(uid)
    if keeps:
        set_capabilities((*(_NEEDED,) * 3, 0, 0, 0))
        for number in _FOUR:
            control(_PR_CAP_AMBIENT, _RAISE, number)


def give_up_capabilities() -> None:
    """Give up what only the change of the user needs, for good; any other right stays as given.

    A root process would have all of them again in the next program, but not without new privileges.
    """
    control(_PR_SET_NO_NEW_PRIVS, 1)
    set_capabilities(
        tuple(word & ~mask for word, mask in zip(capabilities(), _GIVEN_UP, strict=True))
    )


def control(option: int, *values: int) -> None:
    """Call prctl(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(*values, 0, 0, 0, 0)[:4]) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def capabilities() -> tuple[int, ...]:
    """Return the capabilities of this process, as the kernel's words."""
    held = ctypes.create_string_buffer(_CAPABILITIES.size)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), held) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    return _CAPABILITIES.unpack(held.raw)


def set_capabilities(words: tuple[int, ...]) -> None:
    """Set the capabilities of this process. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if libc.capset(header, _CAPABILITIES.pack(*words)) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities of this process cannot be set")


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
    os.environ.pop(TRIAL_USER, None)
    if os.getuid() == ROOT:
        control(_PR_SET_NO_NEW_PRIVS, 1)
        identity = find_identity()
        trial_uid = find_trial_user(identity)
        if trial_uid is not None:
            os.environ[TRIAL_USER] = f"{trial_uid}:{make_trial_home(trial_uid)}"
        if identity[0] != ROOT:
            hand_over_fresh_workspace(identity)
            become(identity, keeps=trial_uid is not None)
        elif trial_uid is None:
            give_up_capabilities()
    settle_in(os.environ)
    os.execv(PERFRUN, [PERFRUN, *sys.argv[1:]])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    try:
        main()
    except (RefusalError, OSError) as error:
        sys.stderr.write(f"perfrun: {error}\n")
        sys.exit(2 if isinstance(error, RefusalError) else 3)

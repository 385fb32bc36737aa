"""Who called setup.py, and files that are to be theirs: with sudo, root only lends its rights.

Standard library only, Python >= 3.8.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Mapping


def find_caller(environment: Mapping[str, str], uid: int, gid: int) -> tuple[int, int]:
    """User and group of the caller: those that sudo names, else the process's own."""
    sudo_uid, sudo_gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if uid == 0 and sudo_uid.isdecimal() and sudo_gid.isdecimal():
        return int(sudo_uid), int(sudo_gid)
    return uid, gid


def this_caller() -> tuple[int, int]:
    """The caller of this process."""
    return find_caller(os.environ, os.getuid(), os.getgid())


def give_to_caller(path: Path) -> None:
    """A file or folder, with all in it, becomes the caller's; nothing to do without sudo."""
    uid, gid = this_caller()
    if uid == os.getuid():
        return
    os.chown(path, uid, gid, follow_symlinks=False)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), uid, gid, follow_symlinks=False)

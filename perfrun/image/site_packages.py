"""PerfZero's --site_package_downloads: folders of this machine, copied into the workspace."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Mapping

from perfrun.errors import UsageError


def copy_site_packages(pairs: tuple[tuple[Path, str], ...], workspace: Path) -> list[str]:
    """Copy each folder to <workspace>/site-packages/<name>; return a line for each.

    A folder of that name is replaced, as PerfZero does, but only once the copy is complete.
    """
    target = workspace / "site-packages"
    for source, name in pairs:
        check_apart(source, target / name)
    fresh = [folder for folder in (workspace, target) if not folder.exists()]
    target.mkdir(parents=True, exist_ok=True)
    for folder in fresh:
        give_to_caller(folder)
    return [_copy(source, target / name) for source, name in pairs]


def check_apart(source: Path, target: Path) -> None:
    """Refuse folders of which one contains the other: the copy could delete its source."""
    here, there = source.resolve(), target.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UsageError(f"--site_package_downloads={source}:{target.name}: {target} is in the way")


def _copy(source: Path, target: Path) -> str:
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=str(target.parent)))
    try:
        copy = aside / "new"
        try:
            shutil.copytree(source, copy, ignore_dangling_symlinks=True)
        except (OSError, shutil.Error) as error:
            raise UsageError(
                f"--site_package_downloads={source}:{target.name}: cannot be copied ({error})"
            ) from None
        give_to_caller(copy)
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif target.exists():
            os.replace(target, aside / "old")
        os.replace(copy, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return f"copied {source} to {target}"


def find_caller(environment: Mapping[str, str], uid: int, gid: int) -> tuple[int, int]:
    """Return user and group of the caller: those that sudo names, else the process's own."""
    sudo_uid, sudo_gid = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if uid == 0 and sudo_uid.isdecimal() and sudo_gid.isdecimal():
        return int(sudo_uid), int(sudo_gid)
    return uid, gid


def this_caller() -> tuple[int, int]:
    """Return user and group of the caller of this process."""
    return find_caller(os.environ, os.getuid(), os.getgid())


def give_to_caller(path: Path) -> None:
    """Give a file or folder, with all in it, to the caller; does nothing without sudo."""
    uid, gid = this_caller()
    if uid == os.getuid():
        return
    os.chown(path, uid, gid, follow_symlinks=False)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), uid, gid, follow_symlinks=False)

"""Take a trial's folder back: what is in it belongs to this user, and gives nobody any rights.

A trial, above all one that is root in its container, can leave programs with setuid bits or file
capabilities, devices, folders that cannot be entered, and files of other users. So after the end of
its processes all that lies in its folder is looked at, by descriptors and without following links.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perfrun.dataclass import replace
from perfrun.trial_user import trial_user
from perfrun.untrusted import MOST_ENTRIES, Entry, Folder

_RIGHTS = stat.S_ISUID | stat.S_ISGID
_EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
_DEVICES = (stat.S_IFCHR, stat.S_IFBLK)
_CAPABILITIES = "security.capability"
_SHOWN = 3  # names in a note
_NAME = 100  # characters of one


def take_back(path: Path, *, from_container: bool) -> tuple[str, ...]:
    """Mend owner and mode of all in the folder; return notes on what was found. Never raises."""
    try:
        with Folder(path) as folder:
            return _Taking(folder, from_container).all_of(folder)
    except OSError:
        return ()  # removed, or a link: `read_leftovers` says so


class _Taking:
    """The names of what was found, by what was done about it."""

    def __init__(self, folder: Folder, from_container: bool) -> None:
        top = os.fstat(folder.descriptor)
        self._from_container = from_container
        # Folders may hand their group on where this one does: a team's workspace is made so.
        self._group_handed_on = top.st_mode & stat.S_ISGID
        self._group = folder.path.parent.stat().st_gid if self._group_handed_on else os.getegid()
        # A folder of perfrun's was lent to the group of the trial's user, who has the same number;
        # where perfrun was killed, that is another than the user of the trials of today.
        user, gid = trial_user(), top.st_gid
        is_lent = gid != self._group and top.st_uid == os.geteuid()
        self._lent_to = replace(user, uid=gid, gid=gid) if user and is_lent else None
        self._found: dict[str, list[str]] = {}

    def all_of(self, folder: Folder) -> tuple[str, ...]:
        count = 0
        if self._lent_to is not None:
            os.fchown(folder.descriptor, -1, self._group)
            mode = stat.S_IMODE(os.fstat(folder.descriptor).st_mode)
            os.fchmod(folder.descriptor, mode & ~stat.S_IWGRP)
        for entry in folder.entries(taken_from=self._lent_to):
            count += 1
            try:
                self._mend(entry)
            except OSError:
                self._note("cannot be taken back", entry)
        if count >= MOST_ENTRIES:
            os.fchmod(folder.descriptor, stat.S_IRWXU)
            self._found[f"more than {count} files, so only this user can enter its folder"] = []
        return tuple(map(_text, self._found.items()))

    def _is_lent(self, entry: Entry) -> bool:
        return self._lent_to is not None and entry.status.st_gid == self._lent_to.gid

    def _note(self, what: str, entry: Entry) -> None:
        self._found.setdefault(what, []).append(entry.name)

    def _mend(self, entry: Entry) -> None:
        if entry.kind == stat.S_IFLNK:
            self._give(entry, is_link=True)
            return
        if entry.kind in _DEVICES:
            entry.remove()
            self._note("devices, removed", entry)
            return
        mode = stat.S_IMODE(entry.status.st_mode)
        wanted = self._wanted(entry, mode)
        is_program = entry.kind == stat.S_IFREG and bool(mode & _EXECUTABLE)
        if mode & _RIGHTS and not wanted & _RIGHTS and entry.kind == stat.S_IFREG:
            if entry.status.st_nlink > 1 and not self._from_container:
                entry.remove()  # its other name may be that of the system's own program
                self._note("second names of files with setuid or setgid bits, removed", entry)
                return
            self._note("files with setuid or setgid bits, taken from them", entry)
        self._give(entry)
        if wanted != mode:
            with entry.named() as path:
                path.chmod(wanted)
        if is_program and _drop_capabilities(entry):
            self._note("files with capabilities, taken from them", entry)

    def _wanted(self, entry: Entry, mode: int) -> int:
        """Return the mode that it should have."""
        if self._is_lent(entry):
            mode &= ~stat.S_IWGRP
        if entry.kind == stat.S_IFDIR:
            return (
                (mode & ~(_RIGHTS | stat.S_ISVTX)) | stat.S_IRWXU | (mode & self._group_handed_on)
            )
        return mode & ~(_RIGHTS | stat.S_ISVTX)

    def _give(self, entry: Entry, *, is_link: bool = False) -> None:
        """Give what a container left to this user. Raises OSError where only root may."""
        if self._is_lent(entry):  # of another user it is taken already
            os.chown(entry.name, -1, self._group, dir_fd=entry.folder, follow_symlinks=False)
        if self._from_container and entry.status.st_uid != os.geteuid():
            if is_link and os.geteuid() != 0:
                return  # a link has no rights, and can be removed by its folder's owner
            os.chown(
                entry.name, os.geteuid(), os.getegid(), dir_fd=entry.folder, follow_symlinks=False
            )


def _drop_capabilities(entry: Entry) -> bool:
    """Take the capabilities from a file; False when it has none."""
    try:
        with entry.named() as path:
            os.removexattr(path, _CAPABILITIES)
    except (OSError, AttributeError):
        return False
    return True


def _text(found: tuple[str, list[str]]) -> str:
    what, names = found
    if not names:
        return f"the trial left {what}"
    shown = ", ".join(ascii(name)[1:-1][:_NAME] for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"the trial left {what}: {shown}{more}"

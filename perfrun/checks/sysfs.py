"""Read what the kernel shows as files. Whatever cannot be read is None, and nothing raises."""

from __future__ import annotations

import fnmatch
import os

from perfrun.dataclass import dataclass


@dataclass(frozen=True)
class Sysfs:
    """The tree of /proc, /sys and /etc, or one that a test has made.

    Paths are given as they are on a real machine, from `/` on.
    """

    root: str = ""

    def text(self, path: str) -> str | None:
        """The contents of a file without blanks around them."""
        try:
            with open(self.root + path, "rb") as file:
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The whole number that a file begins with."""
        words = (self.text(path) or "").split()
        try:
            return int(words[0]) if words else None
        except ValueError:
            return None

    def exists(self, path: str) -> bool | None:
        """Whether a file or folder is there; None where this user may not look."""
        try:
            os.stat(self.root + path)
        except PermissionError:
            return None
        except (OSError, ValueError):
            return False
        return True

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """Names in a folder that match, `cpu2` before `cpu10`; empty when there is no folder."""
        try:
            found = os.listdir(self.root + folder)
        except OSError:
            return []
        return sorted(fnmatch.filter(found, pattern), key=lambda name: (len(name), name))

    def table(self, path: str) -> dict[str, str]:
        """A file of `name value` or `name: value` lines."""
        lines = (line.split(None, 1) for line in (self.text(path) or "").splitlines())
        return {words[0].rstrip(":"): words[1] for words in lines if len(words) == 2}

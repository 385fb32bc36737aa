"""Define a check of `perfrun doctor`, its table, and the commands that install what is missing."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from enum import Enum

from perfrun.dataclass import dataclass
from perfrun.probes.sysfs import Sysfs
from perfrun.reports.table import Column, Table, TableCell, coloured

_INSTALL = {
    "debian": "sudo apt-get install",
    "ubuntu": "sudo apt-get install",
    "fedora": "sudo dnf install",
    "rhel": "sudo dnf install",
    "suse": "sudo zypper install",
    "arch": "sudo pacman -S",
    "alpine": "sudo apk add",
}
_COLUMNS = (
    Column(heading="wanted"),
    Column(heading="state"),
    Column(heading="what there is", prose=True),
    Column(heading="why it matters", prose=True),
)


class Presence(str, Enum):
    """The result of a check."""

    FOUND = "found"
    MISSING = "missing"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """The text for people."""
        return "cannot tell" if self is Presence.UNKNOWN else self.value


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of `perfrun doctor`."""

    name: str  # stable; a key for programs
    wanted: str  # what a benchmark needs, in a few words: "governor performance"
    presence: Presence
    value: str | None = None  # what was found; None when nothing is known
    why: str = ""  # why it matters to a benchmark
    mend: str | None = None  # the command that provides what is missing, if there is one


def presence(answer: bool | None) -> Presence:
    """Convert True to found, False to missing, None to unknown."""
    if answer is None:
        return Presence.UNKNOWN
    return Presence.FOUND if answer else Presence.MISSING


def install_command(sysfs: Sysfs, packages: dict[str, str]) -> str | None:
    """Return the command that installs a package; `packages` maps distributions to its name.

    The key `*` is for all other distributions. None is returned on an unknown distribution, or when
    it has no such package.
    """
    for family in _families(sysfs):
        if family in _INSTALL:
            package = packages.get(family, packages.get("*"))
            return f"{_INSTALL[family]} {package}" if package else None
    return None


def kernel_argument_command(sysfs: Sysfs, argument: str) -> str:
    """Return the command that adds a kernel argument permanently and restarts the machine."""
    if sysfs.exists("/usr/sbin/grubby") or sysfs.exists("/sbin/grubby"):
        return f"sudo grubby --update-kernel=ALL --args={argument} && sudo reboot"
    if sysfs.exists("/etc/default/grub"):
        edit = f's/^GRUB_CMDLINE_LINUX="/&{argument} /'
        return f"sudo sed -i '{edit}' /etc/default/grub && sudo update-grub && sudo reboot"
    return f"on the host: add {argument} to the kernel's command line and restart"


def _families(sysfs: Sysfs) -> list[str]:
    """Name the distribution and those it derives from, nearest first: os-release(5)."""
    text = sysfs.text("/etc/os-release") or sysfs.text("/usr/lib/os-release") or ""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        try:
            values[name.strip()] = " ".join(shlex.split(value))
        except ValueError:  # an open quote
            continue
    return [*values.get("ID", "").split(), *values.get("ID_LIKE", "").split()]


_COLOURS = {Presence.FOUND: "green", Presence.MISSING: "yellow", Presence.UNKNOWN: "dim"}


def checks_table(checks: Sequence[Check], needed: Collection[str]) -> Table:
    """Return the table of checks, one row each."""
    return Table(
        columns=_COLUMNS,
        rows=tuple((c.wanted, _state(c, needed), c.value or "-", c.why) for c in checks),
    )


def _state(check: Check, needed: Collection[str]) -> TableCell:
    """Return the coloured result of a check, marked if the run needs what is missing."""
    words = check.presence.words
    if check.presence is Presence.MISSING and check.name in needed:
        return coloured(f"{words}, needed", "red")
    return coloured(words, _COLOURS[check.presence])


def remedies(checks: Sequence[Check]) -> list[str]:
    """Return the commands for what is missing, each whole on one line; empty without any."""
    mends = [(check.wanted, check.mend) for check in checks if check.mend]
    width = max((len(wanted) for wanted, _ in mends), default=0)
    lines = [f"  {wanted:<{width}}  {mend}" for wanted, mend in mends]
    return ["", "To mend what is missing:", *lines] if lines else []

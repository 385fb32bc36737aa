"""Read the energy of processors and memory from the kernel's RAPL counters.

A counter covers a whole package and all that runs on it, not one process. Source:
Documentation/power/powercap/powercap.rst of the kernel.
"""

from __future__ import annotations

import time
from pathlib import Path

from perfrun.dataclass import dataclass

ROOT = Path("/sys/class/powercap")
NO_ZONES = "no RAPL counters in /sys/class/powercap: not an x86 processor, or a virtual machine"
ENABLE = "sudo chmod a+r /sys/class/powercap/*/energy_uj"
# A counter of 262 kJ wraps around after eleven minutes at 400 W; it must not do so twice unseen.
PERIOD_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Meter:
    """The energy that one counter measured during a trial."""

    name: str  # package-0, package-0/dram, psys, nvidia0, ...
    source: str
    scope: str  # what drew it: never the trial alone
    energy_j: float
    seconds: float  # between the two readings


@dataclass
class _Zone:
    name: str
    folder: Path
    range_uj: int  # where the counter wraps around
    last_uj: int
    total_uj: int = 0


class Rapl:
    """The RAPL counters since its creation.

    `reason` says why a counter is missing, `enable` is the command that helps.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.reason: str | None = None
        self.enable: str | None = None
        self._zones: list[_Zone] = []
        self._begin_s = self._last_s = time.perf_counter()
        folders = _zone_folders(root)
        for folder in folders:
            try:
                now_uj = int((folder / "energy_uj").read_text(encoding="ascii"))
                range_uj = int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
            except PermissionError:
                self.reason = f"{folder / 'energy_uj'} is for root only (CVE-2020-8694)"
                self.enable = ENABLE
            except (OSError, ValueError) as error:
                self.reason = f"{folder / 'energy_uj'} cannot be read: {error}"
            else:
                self._zones.append(_Zone(_name(folder), folder, range_uj, now_uj))
        if not folders:
            self.reason = NO_ZONES

    @property
    def works(self) -> bool:
        """Return True when there is a counter to read."""
        return bool(self._zones)

    def read(self) -> None:
        """Add the energy since the last reading; to be called once a minute or more often."""
        for zone in self._zones:
            try:
                now_uj = int((zone.folder / "energy_uj").read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue  # the next reading has it
            zone.total_uj += (now_uj - zone.last_uj) % (zone.range_uj + 1)
            zone.last_uj = now_uj
        self._last_s = time.perf_counter()

    def meters(self) -> tuple[Meter, ...]:
        """Read once more and return the energy of each zone."""
        self.read()
        return tuple(
            Meter(
                name=zone.name,
                source="RAPL",
                scope="all that ran on the machine",
                energy_j=zone.total_uj / 1e6,
                seconds=self._last_s - self._begin_s,
            )
            for zone in self._zones
        )


def _zone_folders(root: Path) -> list[Path]:
    """List packages and their parts. The mmio zones repeat the same packages."""
    try:
        found = sorted(root.glob("*/energy_uj"))
    except OSError:
        return []
    return [file.parent for file in found if not file.parent.name.startswith("intel-rapl-mmio")]


def _name(folder: Path) -> str:
    """Return `package-0`, or `package-0/dram` for a part of it (folder intel-rapl:0:1)."""
    own = _read_name(folder)
    parent, _, _ = folder.name.rpartition(":")
    if parent.count(":"):
        return f"{_read_name(folder.with_name(parent))}/{own}"
    return own


def _read_name(folder: Path) -> str:
    try:
        return (folder / "name").read_text(encoding="ascii").strip()
    except OSError:
        return folder.name

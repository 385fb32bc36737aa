"""Energy that processors and memory drew, by the counters of RAPL, as the kernel shows them.

Source: Documentation/power/powercap/powercap.rst of the kernel. The counters are those of whole
packages: of all that runs on the machine, not of one process.
"""

from __future__ import annotations

import time
from pathlib import Path

from perfrun.dataclass import dataclass

ROOT = Path("/sys/class/powercap")
NO_ZONES = "no RAPL counters in /sys/class/powercap: not an x86 processor, or a virtual machine"
ENABLE = "sudo chmod a+r /sys/class/powercap/*/energy_uj"
# A counter of 262 kJ at 400 W is full after eleven minutes; it must not go round twice unseen.
PERIOD_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Meter:
    """Energy drawn during a trial, by something whose counter can be read."""

    name: str  # package-0, package-0/dram, psys, nvidia0, ...
    source: str
    scope: str  # what drew it: never the trial alone
    energy_j: float
    seconds: float  # between the two readings


@dataclass
class _Zone:
    name: str
    folder: Path
    range_uj: int  # where the counter starts again
    last_uj: int
    total_uj: int = 0


class Rapl:
    """Counts from when it is made. `reason` says why there is nothing, `enable` what mends it."""

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
        """True when there is a counter to read."""
        return bool(self._zones)

    def read(self) -> None:
        """Add what was drawn since the last reading; to be called once a minute or more often."""
        for zone in self._zones:
            try:
                now_uj = int((zone.folder / "energy_uj").read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue  # the next reading has it
            zone.total_uj += (now_uj - zone.last_uj) % (zone.range_uj + 1)
            zone.last_uj = now_uj
        self._last_s = time.perf_counter()

    def meters(self) -> tuple[Meter, ...]:
        """Read once more and return what each zone drew."""
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
    """Packages and their parts. The mmio zones show the same packages once more."""
    try:
        found = sorted(root.glob("*/energy_uj"))
    except OSError:
        return []
    return [file.parent for file in found if not file.parent.name.startswith("intel-rapl-mmio")]


def _name(folder: Path) -> str:
    """`package-0`, and `package-0/dram` for a part of it (folder intel-rapl:0:1)."""
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

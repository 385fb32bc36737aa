"""The state of the machine before and after a trial, to see what disturbed it.

Linux; elsewhere most of it is None. A state costs about a millisecond, is taken by the harness and
not by the worker. Sources: clock_gettime(2), getrusage(2); see `probes.system` for the counters.
"""

from __future__ import annotations

import os
import resource
import time
from functools import lru_cache
from pathlib import Path

from perfrun.checks import readings
from perfrun.checks.storage import free_disk_bytes
from perfrun.checks.sysfs import Sysfs
from perfrun.dataclass import dataclass
from perfrun.probes.system import Snapshot, take_snapshot
from perfrun.worker.cgroups import Cgroup, find_cgroup

_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
_MOST = 16  # frequency policies: reading hundreds would take milliseconds


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """The machine at one moment. None is what this machine does not say."""

    snapshot: Snapshot
    cpus: int
    cores: int | None = None  # physical
    smt: bool | None = None
    own_cpu_s: float = 0.0  # of this process, since it began
    children_cpu_s: float = 0.0  # of all children that it has waited for
    wall_offset_s: float | None = None  # time of day less the monotonic clock
    suspended_s: float | None = None  # since boot
    governors: tuple[str, ...] = ()
    frequency_khz: int | None = None
    top_frequencies_khz: tuple[int, ...] = ()
    memory_bytes: int | None = None
    free_disk_bytes: int | None = None  # of the workspace


def machine_state(
    folder: Path, sysfs: Sysfs | None = None, *, cgroup: Cgroup | None = None
) -> MachineState:
    """Look at the machine now; `folder` is where results go, `cgroup` the trial's if not ours."""
    tree = sysfs or Sysfs()
    wall_offset_s, suspended_s = _clock_offsets()
    own, children = (resource.getrusage(who) for who in _WHO)
    return MachineState(
        snapshot=take_snapshot(cgroup or own_cgroup()),
        cpus=os.cpu_count() or 1,
        cores=readings.core_count(tree),
        smt=readings.smt_active(tree),
        own_cpu_s=own.ru_utime + own.ru_stime,
        children_cpu_s=children.ru_utime + children.ru_stime,
        wall_offset_s=wall_offset_s,
        suspended_s=suspended_s,
        governors=readings.governors(tree, _MOST),
        frequency_khz=readings.frequency_khz(tree),
        top_frequencies_khz=readings.top_frequencies_khz(tree, _MOST),
        memory_bytes=_memory_bytes(),
        free_disk_bytes=free_disk_bytes(folder),
    )


@lru_cache(maxsize=1)
def own_cgroup() -> Cgroup | None:
    """The control group that perfrun and its local trials are in. Nobody moves it meanwhile."""
    return find_cgroup()


def _clock_offsets() -> tuple[float | None, float | None]:
    """Time of day less monotonic clock, and boot time less monotonic clock, in seconds.

    Of three readings the one that was not interrupted: between two clocks of one reading a busy
    machine may run somebody else for milliseconds.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    best: tuple[int, float, float | None] | None = None
    for _ in range(3):
        before = time.monotonic_ns()
        wall = time.time_ns()
        booted = None if boot is None else time.clock_gettime_ns(boot)
        after = time.monotonic_ns()
        middle = (before + after) // 2
        offsets = ((wall - middle) / 1e9, None if booted is None else (booted - middle) / 1e9)
        if best is None or after - before < best[0]:
            best = (after - before, *offsets)
    assert best is not None
    return best[1], best[2]


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None

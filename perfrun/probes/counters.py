"""Read the counters of the whole machine before and after a trial, and subtract them.

The `cpu` section of a summary and the quality findings use them. A snapshot takes half a
millisecond; a figure that the kernel does not have is None. Sources: proc(5);
Documentation/accounting/psi.rst of the kernel.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import dataclass, field
from perfrun.worker.cgroups import Cgroup, read_pressure, whole_number

_TICKS_HZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_NOTHING: dict[str, list[int]] = {}
_SLOW_S = 0.01  # one tick of the counters; reading them takes a tenth of a millisecond
# /proc/stat: user nice system idle iowait irq softirq steal (guest time is in user already).
_BUSY, _IDLE, _IOWAIT, _STEAL = (0, 1, 2, 5, 6), 3, 4, 7


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Totals that only grow; seconds are summed over all cores, so 2 cores have 2 s in a second.

    In a snapshot they count from boot; `counters_between` returns those of an interval.
    """

    elapsed_s: float  # on the monotonic clock, which nobody sets
    wall_clock_s: float  # time of day: it differs from elapsed_s when the clock was set
    busy_s: float | None = None  # user, nice, system and interrupts; steps of 10 ms per core
    idle_s: float | None = None
    iowait_s: float | None = None
    steal_s: float | None = None  # the hypervisor ran something else on this machine's CPUs
    context_switches: int | None = None
    forks: int | None = None
    swapped_in_bytes: int | None = None
    swapped_out_bytes: int | None = None
    oom_kills: int | None = None
    thermal_throttles: int | None = None  # events, over all cores (x86)
    cpu_pressure_s: float | None = None  # PSI "some": at least one task waited
    memory_pressure_s: float | None = None
    io_pressure_s: float | None = None
    cpu_pressure_full_s: float | None = None  # PSI "full": all tasks waited
    memory_pressure_full_s: float | None = None
    io_pressure_full_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The counters and loads of the machine at one moment."""

    counters: Counters
    load_1min: float | None = None
    running: int | None = None  # tasks that run or could run, perfrun's included
    available_bytes: int | None = None  # MemAvailable
    swap_used_bytes: int | None = None
    cgroup: Mapping[str, Any] = field(default_factory=dict)  # see `worker.cgroups.Cgroup.read`


def take_snapshot(cgroup: Cgroup | None = None) -> Snapshot:
    """Read all counters, and those of a control group if one is given."""
    stat, elapsed_s, wall_clock_s = _stat_and_times()
    memory, events = _table("/proc/meminfo"), _table("/proc/vmstat")
    pressures = {name: read_pressure(f"/proc/pressure/{name}") for name in ("cpu", "memory", "io")}
    swap_total, swap_free = memory.get("SwapTotal:"), memory.get("SwapFree:")
    return Snapshot(
        counters=Counters(
            elapsed_s=elapsed_s,
            wall_clock_s=wall_clock_s,
            **_processor_seconds(stat.get("cpu", [])),
            context_switches=_first(stat.get("ctxt")),
            forks=_first(stat.get("processes")),
            swapped_in_bytes=_times(events.get("pswpin"), _PAGE),
            swapped_out_bytes=_times(events.get("pswpout"), _PAGE),
            oom_kills=events.get("oom_kill"),
            thermal_throttles=_thermal_throttles(),
            cpu_pressure_s=pressures["cpu"][0],
            memory_pressure_s=pressures["memory"][0],
            io_pressure_s=pressures["io"][0],
            cpu_pressure_full_s=pressures["cpu"][1],
            memory_pressure_full_s=pressures["memory"][1],
            io_pressure_full_s=pressures["io"][1],
        ),
        load_1min=_load(),
        running=_first(stat.get("procs_running")),
        available_bytes=_times(memory.get("MemAvailable:"), 1024),
        swap_used_bytes=None
        if swap_total is None or swap_free is None
        else (swap_total - swap_free) * 1024,
        cgroup=cgroup.read() if cgroup else {},
    )


def counters_between(before: Snapshot, after: Snapshot) -> Counters:
    """Return the differences of two snapshots; None where either has no figure.

    A counter that fell (a core was removed, a counter wrapped around) is None, too.
    """
    added = {
        name: increase(getattr(before.counters, name), value)
        for name, value in vars(after.counters).items()
        if name not in ("elapsed_s", "wall_clock_s")
    }
    return Counters(
        elapsed_s=after.counters.elapsed_s - before.counters.elapsed_s,
        wall_clock_s=after.counters.wall_clock_s - before.counters.wall_clock_s,
        **added,
    )


def change(before: Any, after: Any) -> Any:
    """Return `after - before`; None when one is missing."""
    return None if before is None or after is None else after - before


def increase(before: Any, after: Any) -> Any:
    """Return the change of a counter; None when a figure is missing or the counter fell."""
    return None if before is None or after is None or after < before else after - before


def _processor_seconds(ticks: list[int]) -> dict[str, float | None]:
    """Convert the line `cpu` of /proc/stat to seconds."""
    if len(ticks) <= _STEAL:
        return {}
    return {
        "busy_s": sum(ticks[index] for index in _BUSY) / _TICKS_HZ,
        "idle_s": ticks[_IDLE] / _TICKS_HZ,
        "iowait_s": ticks[_IOWAIT] / _TICKS_HZ,
        "steal_s": ticks[_STEAL] / _TICKS_HZ,
    }


def _stat_and_times() -> tuple[dict[str, list[int]], float, float]:
    """Return /proc/stat and the time at which it was read, on the monotonic and the wall clock.

    Of up to three readings the quickest counts: if this thread is preempted between file and
    clock, the counters do not belong to the time.
    """
    best = (math.inf, _NOTHING, 0.0, 0.0)
    for _ in range(3):
        before = time.monotonic()
        stat, after, wall = _stat(), time.monotonic(), time.time()
        took = time.monotonic() - before
        if took < best[0]:
            best = (took, stat, after, wall)
        if took < _SLOW_S:
            break
    return best[1:]


def _stat() -> dict[str, list[int]]:
    """Return the lines of /proc/stat, except those of interrupts, which are long and unused."""
    lines = (line.split() for line in _text("/proc/stat").splitlines() if line[:4] != "intr")
    return {words[0]: [int(word) for word in words[1:]] for words in lines if words}


def _table(path: str) -> dict[str, int]:
    """Parse a file of lines `name number [unit]`."""
    pairs = [line.split(None, 2) for line in _text(path).splitlines()]
    counts = {pair[0]: whole_number(pair[1]) for pair in pairs if len(pair) > 1}
    return {name: count for name, count in counts.items() if count is not None}


def _thermal_throttles() -> int | None:
    """Return how often heat slowed cores since boot; only x86 with a driver counts it."""
    folder = Path("/sys/devices/system/cpu")
    if not (folder / "cpu0/thermal_throttle").is_dir():  # saves a glob on virtual machines
        return None
    counts = [_text(str(path)) for path in folder.glob("cpu*/thermal_throttle/core_throttle_count")]
    return sum(whole_number(count.strip()) or 0 for count in counts) if counts else None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _first(values: list[int] | None) -> int | None:
    return values[0] if values else None


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""

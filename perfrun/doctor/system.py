"""Check what the kernel gives a benchmark: cgroups, counters, clocks, address layout."""

from __future__ import annotations

import ctypes
import os

from perfrun.doctor.check import Check, Presence, kernel_argument_command, presence
from perfrun.probes.sysfs import Sysfs

_PARANOID = "/proc/sys/kernel/perf_event_paranoid"
_CLOCK = "/sys/devices/system/clocksource/clocksource0"
# These are read in user space in tens of nanoseconds; others take a system call or a slow device.
_FAST_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase")
_STA_UNSYNC = 0x40  # adjtimex(2)


def system_checks(sysfs: Sysfs) -> list[Check]:
    """Make all checks of this module."""
    return [
        cgroups(sysfs),
        perf(sysfs),
        energy(sysfs),
        aslr(sysfs),
        clock_source(sysfs),
        synchronised(clock_is_synchronised()),
        container(sysfs),
    ]


def cgroup_version(sysfs: Sysfs) -> int | None:
    """Return 2 for the unified hierarchy, 1 for the old ones, or None; see cgroups(7)."""
    if sysfs.exists("/sys/fs/cgroup/cgroup.controllers"):
        return 2
    return (
        1 if sysfs.exists("/sys/fs/cgroup/memory") or sysfs.exists("/sys/fs/cgroup/cpu") else None
    )


def cgroups(sysfs: Sysfs) -> Check:
    """Check for cgroups, in which the kernel counts exactly, and for their version 2."""
    version = cgroup_version(sysfs)
    return Check(
        name="cgroup",
        wanted="cgroup version 2",
        presence=presence(None if version is None else version == 2),
        value=f"version {version}" if version else None,
        why="exact peaks of whole process trees; rootless engines get limits with version 2 only",
        mend=kernel_argument_command(sysfs, "systemd.unified_cgroup_hierarchy=1")
        if version == 1
        else None,
    )


def perf(sysfs: Sysfs, user: int | None = None) -> Check:
    """Check for hardware counters that this user may read for own processes."""
    level = sysfs.number(_PARANOID)
    is_root = (os.geteuid() if user is None else user) == 0
    counters = any(
        sysfs.exists(f"/sys/bus/event_source/devices/{name}")
        for name in ("cpu", "cpu_core", "armv8_pmuv3_0")
    )
    if level is None:
        answer, value = None, None
    elif not counters:
        answer, value = False, f"no hardware counters here (perf_event_paranoid {level})"
    else:
        answer, value = is_root or level <= 2, f"perf_event_paranoid {level}"
    return Check(
        name="perf",
        wanted="perf counters",
        presence=presence(answer),
        value=value,
        why="instructions and cache misses tell a slower program from a slower machine",
        mend="sudo sysctl kernel.perf_event_paranoid=1" if answer is False and counters else None,
    )


def energy(sysfs: Sysfs) -> Check:
    """Check that the processor's energy counters can be read."""
    zones = sysfs.names("/sys/class/powercap", "*-rapl:*")
    read = [sysfs.number(f"/sys/class/powercap/{zone}/energy_uj") for zone in zones]
    answer = any(value is not None for value in read)
    return Check(
        name="rapl",
        wanted="energy counters (RAPL)",
        presence=presence(answer),
        value="readable" if answer else "not readable by this user" if zones else "none here",
        why="energy of the processor per trial; as a side channel it is for root only by default",
        mend="sudo chmod a+r /sys/class/powercap/*-rapl:*/energy_uj"
        if zones and not answer
        else None,
    )


def aslr(sysfs: Sysfs) -> Check:
    """Check that addresses differ from trial to trial, as they do for users."""
    level = sysfs.number("/proc/sys/kernel/randomize_va_space")
    return Check(
        name="aslr",
        wanted="address layout random",
        presence=presence(None if level is None else level == 2),
        value=None if level is None else f"randomize_va_space {level}",
        why="a fixed layout can be fast or slow by luck; trials with random layouts average it",
        mend="sudo sysctl kernel.randomize_va_space=2" if level in (0, 1) else None,
    )


def clock_source(sysfs: Sysfs) -> Check:
    """Check that the clock can be read without a system call."""
    current = sysfs.text(f"{_CLOCK}/current_clocksource")
    others = (sysfs.text(f"{_CLOCK}/available_clocksource") or "").split()
    fits = None if current is None else current in _FAST_CLOCKS
    better = next((name for name in others if name in _FAST_CLOCKS), None)
    return Check(
        name="clock_source",
        wanted="quick clock",
        presence=presence(fits),
        value=current,
        why="a slow clock (hpet, acpi_pm) takes microseconds a reading, which are timed, too",
        mend=f"echo {better} | sudo tee {_CLOCK}/current_clocksource"
        if fits is False and better
        else None,
    )


class _Timex(ctypes.Structure):
    """The beginning of `struct timex`, and space for the rest (208 bytes where long has 8)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock_is_synchronised() -> bool | None:
    """Return True when the kernel's clock is synchronised; None when unknown: adjtimex(2)."""
    clock = _Timex()  # modes 0: nothing is set
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(clock))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else not clock.status & _STA_UNSYNC


def synchronised(answer: bool | None) -> Check:
    """Check that the time of day is synchronised."""
    return Check(
        name="clock_synchronised",
        wanted="time of day synchronised",
        presence=presence(answer),
        value=None if answer is None else "by the kernel's word" if answer else "not synchronised",
        why="results are ordered by it; durations use another clock",
        mend="sudo timedatectl set-ntp true" if answer is False else None,
    )


def container(sysfs: Sysfs) -> Check:
    """Report a container around perfrun, which may hide figures of the host."""
    marks = {
        "/.dockerenv": "Docker",
        "/run/.containerenv": "Podman",
        "/var/run/secrets/kubernetes.io": "Kubernetes",
    }
    inside = next((kind for path, kind in marks.items() if sysfs.exists(path)), None)
    if inside is None and (sysfs.text("/proc/1/environ") or "").find("container=") >= 0:
        inside = "a container"
    return Check(
        name="in_container",
        wanted="container or host",
        presence=Presence.FOUND,
        value=f"in {inside}" if inside else "not in a container",
        why="a container hides parts of the machine; check and set those on the host",
    )

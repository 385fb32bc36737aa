"""Check what makes the processor's speed vary: frequency, shared cores, other load."""

from __future__ import annotations

import re

from perfrun.doctor.check import Check, presence
from perfrun.probes.sysfs import Sysfs, cpu_times, governors, load_1min, smt_active, turbo_active
from perfrun.summary.quality_machine import load_limit

_CPUS = "/sys/devices/system/cpu"
STEAL_LIMIT = 0.005  # of the CPU time that was wanted since boot


def processor_checks(sysfs: Sysfs) -> list[Check]:
    """Make all checks of this module."""
    return [
        governor(sysfs),
        turbo(sysfs),
        smt(sysfs),
        idle(sysfs),
        steal(sysfs),
        bare_metal(sysfs),
    ]


def governor(sysfs: Sysfs) -> Check:
    """Check that the frequency governor of every CPU is `performance`."""
    found = governors(sysfs)
    fits = set(found) == {"performance"} if found else None
    return Check(
        name="governor",
        wanted="governor performance",
        presence=presence(fits),
        value=", ".join(found) or _no_frequencies(sysfs),
        why="other governors change the frequency with the load, and so every figure",
        mend=f"echo performance | sudo tee {_CPUS}/cpufreq/policy*/scaling_governor"
        if fits is False
        else None,
    )


def _no_frequencies(sysfs: Sysfs) -> str:
    where = "the host of this virtual machine decides" if _is_virtual(sysfs) else "no cpufreq here"
    return f"not to be seen: {where}"


def turbo(sysfs: Sysfs) -> Check:
    """Check that the processor stays at its nominal frequency."""
    active = turbo_active(sysfs)
    mend = None
    if active and sysfs.exists(f"{_CPUS}/intel_pstate/no_turbo"):
        mend = f"echo 1 | sudo tee {_CPUS}/intel_pstate/no_turbo"
    elif active:
        one = sysfs.exists(f"{_CPUS}/cpufreq/boost")
        mend = f"echo 0 | sudo tee {_CPUS}/cpufreq/{'' if one else 'policy*/'}boost"
    return Check(
        name="turbo",
        wanted="turbo off",
        presence=presence(None if active is None else not active),
        value=_no_frequencies(sysfs) if active is None else "on" if active else "off",
        why="its gain depends on heat and on the load of the other cores; "
        "off is slower and steadier",
        mend=mend,
    )


def smt(sysfs: Sysfs) -> Check:
    """Check that no two hardware threads share a core."""
    active = smt_active(sysfs)
    return Check(
        name="smt",
        wanted="SMT off",
        presence=presence(None if active is None else not active),
        value=None if active is None else "on" if active else "off",
        why="two threads on one core slow each other down when more threads run than there "
        "are cores",
        mend=f"echo off | sudo tee {_CPUS}/smt/control" if active else None,
    )


def idle(sysfs: Sysfs) -> Check:
    """Check that there was little load in the last minute."""
    load, times = load_1min(sysfs), cpu_times(sysfs)
    fits = None
    if load is not None and times is not None:
        fits = load <= load_limit(times.cpus)
    return Check(
        name="load",
        wanted="idle machine",
        presence=presence(fits),
        value=None
        if load is None or times is None
        else f"load {load:g} on {times.cpus} CPUs (limit {load_limit(times.cpus):g})",
        why="other work takes CPU time, caches, memory bandwidth and power from the benchmark",
        mend="ps -eo pcpu,pid,user,args --sort=-pcpu | head" if fits is False else None,
    )


def steal(sysfs: Sysfs) -> Check:
    """Check that the machine had little steal time since boot."""
    times = cpu_times(sysfs)
    share = None
    if times is not None and times.busy_s + times.steal_s > 0:
        share = times.steal_s / (times.busy_s + times.steal_s)
    return Check(
        name="steal",
        wanted="no stolen CPU time",
        presence=presence(None if share is None else share <= STEAL_LIMIT),
        value=None if share is None else f"{share:.2%} since boot (limit {STEAL_LIMIT:.1%})",
        why="wall times contain the time that the hypervisor gave to other guests",
    )


def _is_virtual(sysfs: Sysfs) -> bool | None:
    text = sysfs.text("/proc/cpuinfo")
    if text is None:
        return None
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    if flags and "hypervisor" in flags[1].split():
        return True
    if sysfs.exists("/sys/hypervisor/type"):
        return True
    vendor = _hardware(sysfs)
    if vendor is None:
        return None if flags is None or "Features" in flags[0] else False
    return bool(re.search(r"QEMU|KVM|VMware|Virtual|Xen|Amazon EC2|Google Compute", vendor))


def _hardware(sysfs: Sysfs) -> str | None:
    names = ("sys_vendor", "product_name")
    found = [sysfs.text(f"/sys/class/dmi/id/{name}") for name in names]
    return " ".join(filter(None, found)) or None


def bare_metal(sysfs: Sysfs) -> Check:
    """Check that no hypervisor is between the benchmark and the processor."""
    virtual = _is_virtual(sysfs)
    hardware = _hardware(sysfs)
    kind = {True: "virtual machine", False: "no hypervisor", None: None}[virtual]
    return Check(
        name="bare_metal",
        wanted="bare metal",
        presence=presence(None if virtual is None else not virtual),
        value=f"{kind}: {hardware}" if kind and hardware else kind,
        why="load of other guests on the host cannot be seen from here, only its steal time",
    )

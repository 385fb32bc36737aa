"""Check memory, swap, huge pages, the workspace and its disk."""

from __future__ import annotations

import os
from pathlib import Path

from perfrun.doctor.check import Check, presence
from perfrun.probes.machine import free_disk_bytes, nearest_folder
from perfrun.probes.sysfs import Sysfs, read_meminfo
from perfrun.summary.quality_machine import DISK_LIMIT_BYTES, MEMORY_SHARE_LIMIT, SWAP_LIMIT_BYTES

_MIB = 1 << 20


def storage_checks(sysfs: Sysfs, workspace: Path) -> list[Check]:
    """Make all checks of this module."""
    return [
        free_memory(sysfs),
        no_swap(sysfs),
        huge_pages(sysfs),
        writable(workspace),
        free_disk(workspace),
    ]


def free_memory(sysfs: Sysfs) -> Check:
    """Check that enough memory is available."""
    found = read_meminfo(sysfs)
    fits, value = None, None
    if found is not None and found.available_bytes is not None:
        fits = found.available_bytes >= MEMORY_SHARE_LIMIT * found.total_bytes
        value = f"{found.available_bytes / _MIB:,.0f} of {found.total_bytes / _MIB:,.0f} MiB"
    return Check(
        name="memory",
        wanted="free memory",
        presence=presence(fits),
        value=value,
        why="when memory is short, the kernel drops caches, swaps, and finally kills processes",
        mend="ps -eo rss,pid,user,args --sort=-rss | head" if fits is False else None,
    )


def no_swap(sysfs: Sysfs) -> Check:
    """Check that little memory is in swap."""
    found = read_meminfo(sysfs)
    used = found.swap_used_bytes if found else None
    fits = None if used is None else used <= SWAP_LIMIT_BYTES
    value = None
    if found is not None and used is not None:
        total = found.swap_total_bytes or 0
        value = f"{used / _MIB:,.0f} of {total / _MIB:,.0f} MiB used" if total else "no swap"
    return Check(
        name="swap",
        wanted="swap not in use",
        presence=presence(fits),
        value=value,
        why="reading a page back from disk takes a thousand times as long",
        mend="sudo swapoff -a" if fits is False else None,
    )


def huge_pages(sysfs: Sysfs) -> Check:
    """Report the mode of transparent huge pages; each mode has its uses."""
    text = sysfs.text("/sys/kernel/mm/transparent_hugepage/enabled") or ""
    mode = text.partition("[")[2].partition("]")[0] or None
    return Check(
        name="transparent_huge_pages",
        wanted="transparent huge pages",
        presence=presence(True if mode else None),
        value=mode,
        why="`always` makes peaks larger and big arrays faster: compare only figures of one mode",
    )


def writable(workspace: Path) -> Check:
    """Check that results can be written, without writing anything."""
    place = nearest_folder(workspace)
    fits = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return Check(
        name="workspace",
        wanted="workspace writable",
        presence=presence(fits),
        value=str(workspace) if place == workspace else f"{workspace} (to be made)",
        why="checkouts and results go there",
        mend=None if fits else "perfrun --workspace=FOLDER, one that you may write to",
    )


def free_disk(workspace: Path) -> Check:
    """Check for free space on the workspace's disk."""
    free = free_disk_bytes(workspace)
    fits = None if free is None else free >= DISK_LIMIT_BYTES
    return Check(
        name="disk",
        wanted="free disk",
        presence=presence(fits),
        value=None if free is None else f"{free / _MIB:,.0f} MiB",
        why="on a full disk checkouts fail and benchmarks' files are lost",
        mend="perfrun --workspace=FOLDER, on a disk with room" if fits is False else None,
    )

"""Build the section `memory` of a summary: peaks, each with its source and exactness.

docs/reference/memory.md explains each figure and its use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.launchers.launcher import Exit
from perfrun.probes.accelerators import DevicesUsage
from perfrun.probes.process_tree import TreeUsage

EXACT = "exact"
_KILLED = "the worker ended before it could report"
_NOT_WATCHED = "the worker's processes were not watched"
_OWN_CGROUP = "the trial shares the control group of perfrun and of all else that runs there"
_CONTAINER = "perfrun --image=NAME (each trial in a container has a control group of its own)"


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """One peak of memory use."""

    bytes: int | None = None
    source: str | None = None
    exactness: str | None = None  # exact | sampled@<rate>hz
    reason: str | None = None  # why it is absent or incomplete
    enable: str | None = None  # the command that makes it available


@dataclass(frozen=True, kw_only=True)
class CgroupMemory:
    """The peak of the control group, and its parts."""

    peak: PeakMemory
    # The parts at the highest use that was sampled:
    anon_bytes: int | None = None
    file_bytes: int | None = None  # page cache, shmem_bytes included
    shmem_bytes: int | None = None
    seen_bytes: int | None = None  # that use; near the peak, the parts are those of the peak
    limit_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """One peak of memory use on one device."""

    device: str  # as the source names it: cuda:0, gpu:0, nvidia0
    what: str  # allocated | reserved (by the framework's allocator) | process | device
    peak: PeakMemory


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The peaks of memory use of a trial."""

    process_rss: PeakMemory
    process_vms: PeakMemory
    import_rss: PeakMemory  # imports and construction
    method_rss: PeakMemory  # during the method; what was resident at its start is included
    tree_pss: PeakMemory  # worker and descendants, shared pages once
    tree_rss: PeakMemory  # shared pages once for each process: an upper bound
    tree_processes: int | None  # the most that were alive at the same time
    tree_pss_looks: int  # how often PSS was read
    cgroup: CgroupMemory
    device: tuple[DeviceMemory, ...]
    device_reason: str | None  # why `device` is empty


def memory_section(
    reported: Mapping[str, Any],
    end: Exit | None,
    tree: TreeUsage | None,
    devices: DevicesUsage,
    *,
    own_peak_rss_bytes: int,
) -> Memory:
    """Build the section from the kernel's marks, the samples and the worker's own figures.

    `own_peak_rss_bytes` is the harness's own peak: a smaller ru_maxrss tells nothing about the
    worker, since fork copies the parent's mark and it survives exec.
    """
    marks = reported.get("memory", {})
    at_end, before = marks.get("end", {}), marks.get("before_method", {})
    process_rss = _process_rss(at_end, before, end, tree, own_peak_rss_bytes)
    device = (*_allocated(reported), *_used(devices))
    return Memory(
        process_rss=process_rss,
        process_vms=_process_vms(at_end, tree),
        import_rss=_mark(before.get("peak_rss_bytes"), "VmHWM before the method"),
        method_rss=_method_rss(marks, at_end),
        tree_pss=_tree_pss(process_rss, tree),
        tree_rss=_tree_rss(process_rss, tree),
        tree_processes=tree.most_processes if tree else None,
        tree_pss_looks=tree.tree_pss_looks if tree else 0,
        cgroup=_cgroup(end, tree),
        device=device,
        device_reason=None if device else _no_device(reported, devices),
    )


def _process_rss(
    at_end: Mapping[str, Any],
    before: Mapping[str, Any],
    end: Exit | None,
    tree: TreeUsage | None,
    own_peak_rss_bytes: int,
) -> PeakMemory:
    marks = [at_end.get("peak_rss_bytes"), before.get("peak_rss_bytes")]
    if at_end.get("peak_rss_bytes"):
        return _mark(_largest(*marks), "VmHWM at end")
    polled = _largest(*marks, tree.peak_rss_bytes if tree else None)
    if end and end.max_rss_bytes > max(polled or 0, own_peak_rss_bytes):
        alone = tree is not None and tree.most_processes == 1
        return PeakMemory(
            bytes=end.max_rss_bytes,
            source="ru_maxrss",
            exactness=EXACT if alone else sampled(tree),
            reason=None if alone else "of the worker or of its largest child, whichever is more",
        )
    if polled is None:
        return PeakMemory(reason=_KILLED if tree else _NOT_WATCHED)
    return PeakMemory(bytes=polled, source="VmHWM polled", exactness=sampled(tree))


def _process_vms(at_end: Mapping[str, Any], tree: TreeUsage | None) -> PeakMemory:
    if at_end.get("peak_vms_bytes"):
        return _mark(at_end["peak_vms_bytes"], "VmPeak at end")
    if tree and tree.peak_vms_bytes:
        return PeakMemory(
            bytes=tree.peak_vms_bytes, source="VmPeak polled", exactness=sampled(tree)
        )
    return PeakMemory(reason=_KILLED if tree else _NOT_WATCHED)


def _method_rss(marks: Mapping[str, Any], at_end: Mapping[str, Any]) -> PeakMemory:
    if not at_end.get("peak_rss_bytes"):
        return PeakMemory(reason=_KILLED)
    if not marks.get("reset"):
        return PeakMemory(
            reason="the kernel did not let the worker reset its mark (/proc/self/clear_refs)"
        )
    return _mark(at_end["peak_rss_bytes"], "VmHWM at end, reset before the method")


def _tree_pss(process: PeakMemory, tree: TreeUsage | None) -> PeakMemory:
    """Return the largest sum of PSS, or the worker's own peak if that is more."""
    if tree is None or not tree.samples:
        return PeakMemory(reason=_NOT_WATCHED)
    if tree.most_processes == 1:
        return PeakMemory(
            bytes=process.bytes,
            source=f"{process.source}; no other process was seen",
            exactness=process.exactness,
        )
    summed = tree.tree_peak_pss_bytes
    if summed is None or summed < (process.bytes or 0):
        return PeakMemory(
            bytes=process.bytes,
            source=f"{process.source}; with its children the tree never held more",
            exactness=sampled(tree),
        )
    unreadable = tree.tree_pss_unreadable
    return PeakMemory(
        bytes=summed,
        source="sum of PSS (smaps_rollup), and anonymous memory added since",
        exactness=sampled(tree),
        reason=f"PSS of {unreadable} process(es) may not be read; their RSS counts instead"
        if unreadable
        else None,
    )


def _tree_rss(process: PeakMemory, tree: TreeUsage | None) -> PeakMemory:
    if tree is None or not tree.samples:
        return PeakMemory(reason=_NOT_WATCHED)
    return PeakMemory(
        bytes=_largest(process.bytes, tree.tree_peak_rss_bytes),
        source="sum of RSS (statm): an upper bound",
        exactness=sampled(tree),
    )


def _cgroup(end: Exit | None, tree: TreeUsage | None) -> CgroupMemory:
    """Return the figures read in the container at its end, or the samples from outside."""
    figures = (end.cgroup if end else None) or {}
    peak = figures.get("memory_peak_bytes")
    if peak is None:
        seen = tree.cgroup_seen_bytes if tree else None
        if seen is None:
            why = (
                "the kernel shows no peak of the trial's control group" if figures else _OWN_CGROUP
            )
            enable = None if figures else _CONTAINER
            if end and end.no_cgroup:
                why, enable = "the engine gives a container no control group", end.no_cgroup
            return CgroupMemory(
                peak=PeakMemory(reason=why, enable=enable),
                limit_bytes=figures.get("memory_limit_bytes"),
            )
        figure = PeakMemory(bytes=seen, source="cgroup usage", exactness=sampled(tree))
    else:
        name = "memory.max_usage_in_bytes" if figures.get("version") == 1 else "memory.peak"
        figure = PeakMemory(
            bytes=peak, source=f"cgroup v{figures.get('version')} {name}", exactness=EXACT
        )
    split, seen = _split(figures, tree)
    return CgroupMemory(
        peak=figure,
        anon_bytes=split.get("anon_bytes"),
        file_bytes=split.get("file_bytes"),
        shmem_bytes=split.get("shmem_bytes"),
        seen_bytes=seen,
        limit_bytes=figures.get("memory_limit_bytes"),
    )


def _split(
    figures: Mapping[str, Any], tree: TreeUsage | None
) -> tuple[Mapping[str, Any], int | None]:
    """Return the parts at the highest sample, in or outside the container, or at the end."""
    if figures.get("peak_split"):
        return figures["peak_split"], figures.get("peak_split_bytes")
    if tree and tree.cgroup_split:
        return tree.cgroup_split, tree.cgroup_seen_bytes
    return figures, figures.get("memory_now_bytes")


def _allocated(reported: Mapping[str, Any]) -> Sequence[DeviceMemory]:
    """Return the peaks of the frameworks' allocators, which the worker read at its end."""
    found = []
    for entry in reported.get("allocators", ()):
        for what in ("allocated", "reserved"):
            size = entry.get(f"peak_{what}_bytes")
            if size is not None:
                peak = _mark(size, f"{entry['framework']}'s allocator")
                found.append(DeviceMemory(device=entry["device"], what=what, peak=peak))
    return found


def _used(devices: DevicesUsage) -> Sequence[DeviceMemory]:
    """Return the peaks by the drivers, sampled from outside."""
    exactness = f"sampled@{devices.sampling_rate_hz or 0:.1f}hz"
    found = []
    for device in devices.devices or ():
        for what, size, reason in (
            ("device", device.used_peak_bytes, None),
            ("process", device.process_peak_bytes, device.process_reason),
        ):
            known = size is not None
            figure = PeakMemory(
                bytes=size,
                source="driver" if known else None,
                exactness=exactness if known else None,
                reason=reason,
            )
            name = f"{device.vendor}{device.index}"
            found.append(DeviceMemory(device=name, what=what, peak=figure))
    return found


def _no_device(reported: Mapping[str, Any], devices: DevicesUsage) -> str:
    reasons = [entry["reason"] for entry in reported.get("allocators", ()) if entry.get("reason")]
    return "; ".join([*reasons, devices.reason or "no device"])


def sampled(tree: TreeUsage | None) -> str | None:
    """Return the exactness of a sampled figure: the rate that was achieved."""
    return f"sampled@{tree.rate_hz:.1f}hz" if tree and tree.rate_hz else None


def _mark(value: int | None, source: str) -> PeakMemory:
    """Return a peak that the kernel or an allocator recorded itself."""
    if not value and value != 0:
        return PeakMemory(reason=_KILLED)
    return PeakMemory(bytes=value, source=source, exactness=EXACT)


def _largest(*values: int | None) -> int | None:
    return max((value for value in values if value), default=None)

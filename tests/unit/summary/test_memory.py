"""Section `memory`: the source of each figure and its exactness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from exits import ENDED

from perfrun.launchers.launcher import Exit
from perfrun.probes.accelerators import DevicesUsage, DeviceUsage
from perfrun.probes.process_tree import TreeUsage
from perfrun.summary.memory import Memory, PeakMemory, memory_section

MIB = 2**20
TREE = TreeUsage(
    peak_rss_bytes=300 * MIB,
    peak_vms_bytes=900 * MIB,
    tree_peak_rss_bytes=700 * MIB,
    tree_peak_processes=2,
    max_cpu_percent=150.0,
    samples=40,
    rate_hz=20.0,
    observer_cpu_s=0.01,
    tree_peak_pss_bytes=400 * MIB,
    tree_pss_looks=3,
    most_processes=2,
)
MARKS = {
    "before_method": {"peak_rss_bytes": 100 * MIB, "peak_vms_bytes": 700 * MIB},
    "reset": True,
    "end": {"peak_rss_bytes": 350 * MIB, "peak_vms_bytes": 950 * MIB},
}
NO_DEVICES = DevicesUsage(reason="no driver")


def section(
    memory: dict[str, Any],
    end: Exit | None = ENDED,
    tree: TreeUsage | None = TREE,
    devices: DevicesUsage = NO_DEVICES,
    own: int = 0,
    **record: Any,
) -> Memory:
    return memory_section(
        {"memory": memory, **record}, end, tree, devices, own_peak_rss_bytes=own * MIB
    )


def said(figure: PeakMemory) -> tuple[int | None, str | None]:
    return (None if figure.bytes is None else figure.bytes // MIB, figure.exactness)


def test_the_workers_own_last_reading_is_exact() -> None:
    memory = section(MARKS)
    assert said(memory.process_rss) == (350, "exact")
    assert memory.process_rss.source == "VmHWM at end"
    assert said(memory.process_vms) == (950, "exact")
    assert said(memory.import_rss) == (100, "exact")
    assert said(memory.method_rss) == (350, "exact")
    assert said(memory.tree_pss) == (400, "sampled@20.0hz")
    assert said(memory.tree_rss) == (700, "sampled@20.0hz")
    assert (memory.tree_processes, memory.tree_pss_looks) == (2, 3)


def test_a_peak_during_import_is_the_trials_when_the_mark_was_reset() -> None:
    memory = section({**MARKS, "before_method": {"peak_rss_bytes": 800 * MIB}})
    assert said(memory.process_rss) == (800, "exact")
    assert said(memory.method_rss) == (350, "exact")
    # The tree never held less than the worker alone.
    assert said(memory.tree_rss)[0] == 800
    assert said(memory.tree_pss)[0] == 800


def test_without_a_reset_the_methods_own_peak_is_unknown() -> None:
    memory = section({**MARKS, "reset": False})
    assert memory.method_rss.bytes is None
    assert "clear_refs" in (memory.method_rss.reason or "")


def test_a_worker_that_died_is_known_by_what_was_polled() -> None:
    memory = section({"before_method": {"peak_rss_bytes": 100 * MIB}}, own=60)
    assert said(memory.process_rss) == (300, "sampled@20.0hz")
    assert memory.process_rss.source == "VmHWM polled"
    assert said(memory.process_vms) == (900, "sampled@20.0hz")
    assert memory.method_rss.reason == "the worker ended before it could report"


@pytest.mark.parametrize(
    ("max_rss", "own", "processes", "expected", "source", "exactness"),
    [
        (500, 60, 2, 500, "ru_maxrss", "sampled@20.0hz"),  # a spike that no poll saw, or a child's
        (500, 60, 1, 500, "ru_maxrss", "exact"),
        (500, 600, 1, 300, "VmHWM polled", "sampled@20.0hz"),  # the harness's own, survives exec
        (500, 500, 1, 300, "VmHWM polled", "sampled@20.0hz"),
        (200, 60, 1, 300, "VmHWM polled", "sampled@20.0hz"),
    ],
)
def test_ru_maxrss_counts_only_above_the_harness_own_peak(
    max_rss: int, own: int, processes: int, expected: int, source: str, exactness: str
) -> None:
    end = replace(ENDED, max_rss_bytes=max_rss * MIB)
    memory = section({}, end, replace(TREE, most_processes=processes), own=own)
    assert said(memory.process_rss) == (expected, exactness)
    assert memory.process_rss.source == source


def test_a_process_that_stayed_alone_is_its_tree() -> None:
    alone = replace(TREE, most_processes=1, tree_peak_pss_bytes=None)
    memory = section(MARKS, tree=alone)
    assert said(memory.tree_pss) == (350, "exact")
    assert memory.tree_pss.source == "VmHWM at end; no other process was seen"


def test_pss_that_may_not_be_read_is_said() -> None:
    memory = section(MARKS, tree=replace(TREE, tree_pss_unreadable=2))
    assert "2 process(es)" in (memory.tree_pss.reason or "")


@pytest.mark.parametrize("tree", [None, replace(TREE, samples=0, tree_peak_pss_bytes=None)])
def test_what_nobody_saw_is_unknown_and_has_a_reason(tree: TreeUsage | None) -> None:
    memory = section({}, None, replace(tree, peak_rss_bytes=None) if tree else None)
    figures = [memory.process_rss, memory.tree_pss, memory.tree_rss, memory.cgroup.peak]
    assert [figure.bytes for figure in figures] == [None] * 4
    assert all(figure.reason for figure in figures)
    assert all(figure.source is None and figure.exactness is None for figure in figures)


def test_a_local_trial_has_no_group_and_is_told_what_would_give_it_one() -> None:
    peak = section(MARKS).cgroup.peak
    assert peak.bytes is None
    assert "shares the control group" in (peak.reason or "")
    assert "--image" in (peak.enable or "")


CGROUP = {
    "version": 1,
    "memory_peak_bytes": 600 * MIB,
    "memory_now_bytes": 50 * MIB,
    "memory_limit_bytes": 1000 * MIB,
    "anon_bytes": 20 * MIB,
    "file_bytes": 30 * MIB,
    "shmem_bytes": 0,
}


def test_the_peak_of_a_container_is_the_kernels_and_split_as_sampled_at_the_peak() -> None:
    tree = replace(
        TREE,
        cgroup_split={"anon_bytes": 500 * MIB, "file_bytes": 90 * MIB, "shmem_bytes": 10 * MIB},
        cgroup_seen_bytes=595 * MIB,
    )
    group = section(MARKS, replace(ENDED, cgroup=CGROUP), tree).cgroup
    assert said(group.peak) == (600, "exact")
    assert group.peak.source == "cgroup v1 memory.max_usage_in_bytes"
    assert (group.anon_bytes, group.file_bytes) == (500 * MIB, 90 * MIB)
    assert (group.shmem_bytes, group.seen_bytes) == (10 * MIB, 595 * MIB)
    assert group.limit_bytes == 1000 * MIB


def test_a_split_that_the_supervisor_sampled_is_taken_first() -> None:
    split = {"anon_bytes": 400, "file_bytes": 100, "shmem_bytes": 50}
    figures = {**CGROUP, "version": 2, "peak_split": split, "peak_split_bytes": 590}
    group = section(MARKS, replace(ENDED, cgroup=figures)).cgroup
    assert (group.anon_bytes, group.file_bytes, group.seen_bytes) == (400, 100, 590)
    assert group.peak.source == "cgroup v2 memory.peak"


def test_without_samples_the_split_is_that_of_the_end_and_says_of_how_much() -> None:
    group = section(MARKS, replace(ENDED, cgroup=CGROUP)).cgroup
    assert (group.anon_bytes, group.seen_bytes) == (20 * MIB, 50 * MIB)


def test_a_group_whose_kernel_keeps_no_peak_is_known_by_samples_or_not_at_all() -> None:
    figures = {**CGROUP, "memory_peak_bytes": None}
    end = replace(ENDED, cgroup=figures)
    peak = section(MARKS, end).cgroup.peak
    assert (peak.bytes, peak.enable) == (None, None)
    assert "no peak" in (peak.reason or "")
    seen = replace(TREE, cgroup_split={"anon_bytes": 5}, cgroup_seen_bytes=70 * MIB)
    assert said(section(MARKS, end, seen).cgroup.peak) == (70, "sampled@20.0hz")


DEVICE = DeviceUsage(
    vendor="nvidia",
    index=1,
    name="NVIDIA H200",
    uuid="GPU-1",
    total_bytes=100,
    used_before_bytes=10,
    used_peak_bytes=80,
    process_peak_bytes=None,
    process_reason="named as the host does",
    other_processes=None,
    utilization_percent=None,
    memory_utilization_percent=None,
    sm_clock_mhz=None,
    memory_clock_mhz=None,
    power_w=None,
    temperature_c=None,
    throttle_reasons=None,
    energy_j=None,
    energy_source=None,
)


def test_devices_are_told_by_allocators_and_by_the_driver() -> None:
    allocators = [
        {
            "framework": "torch",
            "device": "cuda:0",
            "peak_allocated_bytes": 60,
            "peak_reserved_bytes": 70,
        },
        {"framework": "tensorflow", "reason": "TensorFlow's runtime was not started"},
    ]
    devices = DevicesUsage(devices=(DEVICE,), samples=9, sampling_rate_hz=4.9)
    memory = section(MARKS, devices=devices, allocators=allocators)
    told = [(one.device, one.what, one.peak.bytes, one.peak.exactness) for one in memory.device]
    assert told == [
        ("cuda:0", "allocated", 60, "exact"),
        ("cuda:0", "reserved", 70, "exact"),
        ("nvidia1", "device", 80, "sampled@4.9hz"),
        ("nvidia1", "process", None, None),
    ]
    assert memory.device[-1].peak.reason == "named as the host does"
    assert memory.device_reason is None


def test_without_a_device_all_reasons_are_told() -> None:
    allocators = [{"framework": "torch", "reason": "torch used no device"}]
    memory = section(MARKS, allocators=allocators)
    assert memory.device == ()
    assert memory.device_reason == "torch used no device; no driver"

"""Section `cpu`: the kernel's counts of a trial and of other processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import exits
import pytest

from perfrun.launchers.launcher import Exit
from perfrun.probes.accelerators import DevicesUsage
from perfrun.probes.counters import Counters, Snapshot
from perfrun.probes.machine import MachineState
from perfrun.probes.process_tree import TreeUsage
from perfrun.probes.watch import Energy, Watched
from perfrun.summary.cpu import Cpu, cpu_section

TREE = TreeUsage(
    peak_rss_bytes=1,
    peak_vms_bytes=1,
    tree_peak_rss_bytes=1,
    tree_peak_processes=1,
    max_cpu_percent=150.0,
    samples=40,
    rate_hz=20.0,
    observer_cpu_s=0.01,
)
ENDED = replace(
    exits.ENDED,
    max_rss_bytes=1,
    resources={"voluntary_switches": 7, "involuntary_switches": 3, "read_bytes": 4096},
)
_BEFORE = Snapshot(
    counters=Counters(elapsed_s=10.0, wall_clock_s=100.0, busy_s=50.0, steal_s=1.0),
    cgroup={"path": "/g", "throttled_s": 1.0, "throttled_periods": 4, "cpu_pressure_s": None},
)
_AFTER = Snapshot(
    counters=Counters(elapsed_s=12.0, wall_clock_s=102.0, busy_s=53.5, steal_s=1.25),
    cgroup={"path": "/g", "throttled_s": 1.5, "throttled_periods": 9, "cpu_pressure_s": None},
)
BEFORE = MachineState(snapshot=_BEFORE, cpus=2, own_cpu_s=1.0, children_cpu_s=3.0)
AFTER = MachineState(snapshot=_AFTER, cpus=2, own_cpu_s=1.25, children_cpu_s=3.0)
WATCHED = Watched(
    tree=TREE,
    devices=DevicesUsage(),
    energy=Energy(),
    before=BEFORE,
    after=AFTER,
    own_cgroup=False,
)


def section(record: dict[str, Any], end: Exit | None = ENDED, watched: Any = WATCHED) -> Cpu:
    return cpu_section(record, end, watched)


def test_a_trial_is_what_the_kernel_counted_of_it() -> None:
    trial = section({}).trial
    assert (trial.user_s, trial.system_s) == (1.0, 0.5)
    assert (trial.voluntary_switches, trial.involuntary_switches) == (7, 3)
    assert trial.read_bytes == 4096
    assert trial.major_faults is None


def test_a_method_is_the_difference_of_two_readings() -> None:
    before = {"user_s": 1.0, "minor_faults": 100, "read_bytes": 10}
    after = {"user_s": 3.5, "minor_faults": 150}
    method = section({"resources": {"before": before, "after": after}}).method
    assert (method.user_s, method.minor_faults) == (2.5, 50)
    assert method.read_bytes is None


def test_the_machine_and_the_group_are_what_was_added_meanwhile() -> None:
    cpu = section({})
    assert cpu.machine is not None
    assert (cpu.machine.busy_s, cpu.machine.steal_s) == (3.5, 0.25)
    assert cpu.others_busy_s == pytest.approx(3.5 - 1.5 - 0.25)
    assert (cpu.cgroup_path, cpu.cgroup_own) == ("/g", False)
    assert cpu.cgroup == {"throttled_s": 0.5, "throttled_periods": 5, "cpu_pressure_s": None}


def test_an_orphan_of_the_trial_is_nobody_else() -> None:
    watched = replace(WATCHED, after=replace(AFTER, children_cpu_s=5.5))
    assert section({}, watched=watched).others_busy_s == pytest.approx(3.5 - 2.5 - 0.25)


def test_clocks_of_10_ms_make_others_nothing_not_less() -> None:
    watched = replace(WATCHED, after=replace(AFTER, own_cpu_s=6.0))
    assert section({}, watched=watched).others_busy_s == 0.0


def test_a_container_counted_from_its_start() -> None:
    inside = {"path": "/sys/fs/cgroup", "version": 1, "throttled_s": 0.75, "cpu_pressure_s": None}
    cpu = section({}, replace(ENDED, cgroup=inside))
    assert (cpu.cgroup_path, cpu.cgroup_own) == ("/sys/fs/cgroup", True)
    assert cpu.cgroup == {"throttled_s": 0.75, "cpu_pressure_s": None}


def test_what_is_unknown_has_a_reason() -> None:
    cpu = section({}, None, None)
    assert cpu.trial.user_s is None
    assert cpu.machine is None
    assert cpu.others_busy_s is None
    assert cpu.max_percent is None
    assert set(cpu.reasons) == {
        "trial",
        "method",
        "machine",
        "cgroup.throttled_s",
        "cgroup.cpu_pressure_s",
    }


@pytest.mark.parametrize(
    ("method", "end", "windows", "expected"),
    [
        ({"wall_s": 2.0, "cpu_s": 3.8}, ENDED, 20.0, 190.0),
        ({"wall_s": 2.0, "cpu_s": 3.8}, ENDED, 150.0, 190.0),
        ({}, ENDED, 150.0, 150.0),
        ({}, ENDED, None, 75.0),
        ({"wall_s": 0.001, "cpu_s": 0.009}, ENDED, None, 75.0),
        ({}, None, None, None),
    ],
)
def test_the_busiest_window_or_the_methods_mean_is_the_cpu_percent(
    method: dict[str, float], end: Exit | None, windows: float | None, expected: float | None
) -> None:
    watched = replace(WATCHED, tree=replace(TREE, max_cpu_percent=windows))
    cpu = section({"phases": {"method": method}}, end, watched)
    assert cpu.max_percent == expected

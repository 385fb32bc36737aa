"""Findings about the machine around a trial, from made-up and real states."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cputime import cpu_ratio, reading
from exits import ENDED
from machines import LAPTOP, built

from perfrun.probes.counters import Counters, Snapshot
from perfrun.probes.machine import MachineState, machine_state
from perfrun.summary import quality_machine
from perfrun.summary.finding import Finding, MachineDelta, Severity, machine_delta
from perfrun.summary.quality_machine import machine_findings

SECONDS = 10.0
GIB = 1 << 30
QUIET = Counters(
    elapsed_s=1000.0,
    wall_clock_s=5000.0,
    busy_s=100.0,
    idle_s=900.0,
    iowait_s=0.0,
    steal_s=1.0,
    swapped_in_bytes=0,
    swapped_out_bytes=0,
    thermal_throttles=3,
    cpu_pressure_s=1.0,
    memory_pressure_s=1.0,
    io_pressure_s=1.0,
)
BEFORE = MachineState(
    snapshot=Snapshot(
        counters=QUIET,
        load_1min=0.0,
        available_bytes=30 * GIB,
        swap_used_bytes=0,
        cgroup={"cpu_periods": 50, "throttled_periods": 5},
    ),
    cpus=4,
    cores=2,
    smt=True,
    own_cpu_s=0.2,
    children_cpu_s=0.1,
    wall_offset_s=4000.0,
    suspended_s=7.0,
    governors=("performance",),
    frequency_khz=3_000_000,
    top_frequencies_khz=(4_000_000,),
    memory_bytes=32 * GIB,
    free_disk_bytes=100 * GIB,
)


def counters(**added: Any) -> Counters:
    """Return the counters after a trial of ten seconds, increased by these figures."""
    added = {"elapsed_s": SECONDS, "wall_clock_s": SECONDS, "busy_s": 5.0, "idle_s": 35.0, **added}
    changed = {
        name: None if more is None else (getattr(QUIET, name) or 0.0) + more
        for name, more in added.items()
    }
    return replace(QUIET, **changed)


def trial(
    before: MachineState = BEFORE,
    snapshot: dict[str, Any] | None = None,
    added: dict[str, Any] | None = None,
    **after: Any,
) -> MachineDelta:
    """A trial that used half of one CPU, with what was changed about the state after it."""
    own = {"children_cpu_s": before.children_cpu_s + 5.0, **after}
    later = replace(before.snapshot, counters=counters(**(added or {})), **(snapshot or {}))
    return MachineDelta(before=before, after=replace(before, snapshot=later, **own))


def found(delta: MachineDelta) -> dict[str, Finding]:
    findings = list(machine_findings(delta))
    assert len({finding.code for finding in findings}) == len(findings)
    return {finding.code: finding for finding in findings}


def test_a_quiet_machine_gives_no_findings() -> None:
    assert found(trial()) == {}


@pytest.mark.parametrize(
    ("delta", "code", "severity", "value", "says"),
    [
        (trial(added={"busy_s": 15.0}), "machine_loaded", "disturbed", 0.995, "0.99 of 4 CPUs"),
        (trial(added={"busy_s": 7.0}), "machine_loaded", "warning", 0.195, "0.20 of 4 CPUs"),
        (trial(added={"steal_s": 1.0}), "cpu_stolen", "disturbed", 0.98 / 6, "16.3%"),
        (trial(added={"steal_s": 0.05}), "cpu_stolen", "warning", 0.03 / 5.05, "0.6%"),
        (
            trial(snapshot={"cgroup": {"cpu_periods": 150, "throttled_periods": 25}}),
            "throttled",
            "disturbed",
            0.2,
            "20% of its periods",
        ),
        (trial(added={"thermal_throttles": 2}), "thermal_throttled", "disturbed", 2, "2 times"),
        (trial(wall_offset_s=4001.5), "clock_jumped", "disturbed", 1.5, "+1.500 s"),
        (trial(wall_offset_s=3940.0), "clock_jumped", "disturbed", 60.0, "-60.000 s"),
        (
            trial(wall_offset_s=4030.0, suspended_s=37.0),
            "suspended",
            "disturbed",
            30.0,
            "slept for 30.0 s",
        ),
        (trial(governors=("powersave",)), "governor", "warning", None, "powersave"),
        (
            trial(top_frequencies_khz=(2_500_000,)),
            "frequency_capped",
            "disturbed",
            2.5,
            "2.50 GHz",
        ),
        (trial(frequency_khz=1_500_000), "frequency_moved", "info", 0.5, "1.50 GHz at the end"),
        (trial(added={"swapped_in_bytes": 5 << 20}), "swapping", "disturbed", 5 << 20, "5 MiB"),
        (
            trial(snapshot={"swap_used_bytes": 200 << 20}),
            "swap_used",
            "info",
            200 << 20,
            "200 MiB",
        ),
        (trial(snapshot={"available_bytes": GIB}), "memory_short", "warning", GIB, "1,024 MiB"),
        (trial(free_disk_bytes=1 << 20), "disk_nearly_full", "warning", 1 << 20, "1 MiB"),
        (trial(added={"cpu_pressure_s": 5.0}), "cpu_pressure", "warning", 0.5, "50%"),
        (trial(added={"memory_pressure_s": 0.5}), "memory_pressure", "warning", 0.05, "5%"),
        (trial(added={"io_pressure_s": 2.0}), "io_pressure", "warning", 0.2, "20%"),
        (trial(own_cpu_s=1.2), "harness_busy", "warning", 0.09, "9.0%"),
        (
            trial(added={"busy_s": 30.0}, children_cpu_s=30.1),
            "cores_shared",
            "warning",
            3.0,
            "3.0 CPUs were busy on 2 cores",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value else "",
)
def test_a_disturbance_is_found_alone_with_its_figure(
    delta: MachineDelta, code: str, severity: str, value: float | None, says: str
) -> None:
    findings = found(delta)
    assert list(findings) == [code]
    finding = findings[code]
    assert finding.severity == severity
    assert finding.value == (None if value is None else pytest.approx(value))
    assert says in finding.text
    if severity != "info" and value is not None:
        assert finding.limit is not None
        assert finding.unit


def test_a_sleep_moves_the_time_of_day_and_that_is_no_jump() -> None:
    assert "clock_jumped" not in found(trial(wall_offset_s=4030.0, suspended_s=37.0))


def test_load_at_the_start_counts_before_perfruns_own_trials_have_made_it() -> None:
    loaded = replace(BEFORE, snapshot=replace(BEFORE.snapshot, load_1min=2.0))
    assert found(trial(before=loaded))["load_at_start"].severity is Severity.WARNING
    later = replace(loaded, children_cpu_s=300.0)
    assert found(trial(before=later)) == {}


def test_the_trials_cpu_is_never_taken_for_that_of_others() -> None:
    busy = {"busy_s": 40.0, "idle_s": 0.0}
    assert "machine_loaded" not in found(trial(added=busy, children_cpu_s=40.1))
    in_container = replace(trial(added=busy, children_cpu_s=0.1), trial_cpu_s=40.0)
    assert "machine_loaded" not in found(in_container)
    strangers = found(trial(added=busy, children_cpu_s=0.1))["machine_loaded"]
    assert strangers.value == pytest.approx(3.995)  # less what the steps of the counter may hide


def test_the_group_of_a_container_counts_from_its_own_beginning() -> None:
    delta = replace(trial(), trial_cgroup={"cpu_periods": 100, "throttled_periods": 10})
    assert found(delta)["throttled"].value == pytest.approx(0.1)
    for without_quota in ({}, {"cpu_periods": 0, "throttled_periods": 0}):
        assert found(replace(trial(), trial_cgroup=without_quota)) == {}


def test_what_is_not_known_gives_no_finding_but_is_named() -> None:
    nothing = MachineState(
        snapshot=Snapshot(counters=Counters(elapsed_s=1.0, wall_clock_s=1.0)), cpus=2
    )
    after = replace(nothing, snapshot=Snapshot(counters=Counters(elapsed_s=5.0, wall_clock_s=5.0)))
    findings = found(MachineDelta(before=nothing, after=after))
    assert list(findings) == ["cannot_tell"]
    assert findings["cannot_tell"].severity is Severity.INFO
    assert "CPU use of others, steal time, swapping, pressure" in findings["cannot_tell"].text


def test_a_sandbox_whose_counters_stand_still_cannot_tell() -> None:
    still = trial(added={"busy_s": 0.0, "idle_s": 0.0})
    assert "CPU use of others" in found(still)["cannot_tell"].text


@pytest.mark.parametrize(
    "name", [name for name in vars(BEFORE) if name not in ("snapshot", "cpus")]
)
def test_any_fact_of_a_state_may_be_absent(name: str) -> None:
    empty: Any = 0.0 if name.endswith("cpu_s") else () if name.endswith(("rs", "ies_khz")) else None
    assert isinstance(found(trial(before=replace(BEFORE, **{name: empty}))), dict)


def test_two_states_of_this_machine_differ_by_what_was_done_between_them(tmp_path: Path) -> None:
    first_s = time.process_time()
    before = machine_state(tmp_path)
    begin_s = time.process_time()
    while time.process_time() < begin_s + 0.3:
        pass
    end_s = time.process_time()
    after = machine_state(tmp_path)
    last_s = time.process_time()
    delta = MachineDelta(before=before, after=after)
    assert end_s - begin_s - 0.01 <= delta.harness_cpu_s <= last_s - first_s + 0.01
    assert delta.added.busy_s is not None
    assert delta.added.busy_s >= 0.2
    codes = found(delta)
    assert "clock_jumped" not in codes
    assert "suspended" not in codes
    assert before.free_disk_bytes
    assert before.cpus == os.cpu_count()


def test_a_state_is_read_from_the_tree_that_is_given(tmp_path: Path) -> None:
    state = machine_state(tmp_path, built(tmp_path, LAPTOP))
    assert state.governors == ("powersave",)
    assert (state.smt, state.cores, state.frequency_khz) == (True, 1, 2_900_000)


def test_a_state_costs_little(tmp_path: Path) -> None:
    """A millisecond of CPU is the goal; five times that is a mistake."""
    machine_state(tmp_path)
    assert cpu_ratio(lambda: machine_state(tmp_path), reading, rounds=20) < 60


@pytest.mark.parametrize(
    ("cgroup", "cpu_s"),
    [(None, 3.0), ({"cpu_usage_s": 4.0}, 4.0), ({"cpu_usage_s": None}, 3.0)],
)
def test_what_the_launcher_knows_of_the_trial_is_used(
    cgroup: dict[str, Any] | None, cpu_s: float
) -> None:
    end = replace(ENDED, elapsed_s=1.0, user_cpu_s=2.0, system_cpu_s=1.0, cgroup=cgroup)
    delta = machine_delta(BEFORE, BEFORE, end)
    assert (delta.trial_cpu_s, delta.trial_cgroup) == (cpu_s, cgroup)


def test_every_limit_is_positive_and_a_disturbance_is_worse_than_a_warning() -> None:
    for limits in (
        getattr(quality_machine, name) for name in ("STEAL", "HARNESS", "JUMP", "SWAPPED")
    ):
        low, high = limits.warning, limits.disturbed
        assert low is None or low > 0
        assert high is None or high > (low or 0)

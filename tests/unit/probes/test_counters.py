"""Counters of the machine, read before and after something that raises them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from cputime import cpu_ratio, reading

from perfrun.probes import counters as system
from perfrun.probes.counters import Counters, Snapshot, counters_between, increase, take_snapshot
from perfrun.worker.cgroups import find_cgroup

SPIN = "import time; end = time.process_time() + 0.6\nwhile time.process_time() < end: pass"


def test_work_is_in_what_was_added() -> None:
    begin = time.monotonic()
    before = take_snapshot()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    after = take_snapshot()
    elapsed_s = time.monotonic() - begin
    added = counters_between(before, after)
    cores = os.cpu_count() or 1
    assert added.busy_s is not None
    assert added.idle_s is not None
    assert added.steal_s is not None
    assert added.busy_s >= 0.5
    assert added.elapsed_s <= elapsed_s
    assert added.busy_s <= (elapsed_s + 0.1) * cores
    assert added.forks is not None
    assert added.forks >= 1
    assert added.context_switches is not None
    assert added.context_switches >= 1
    assert added.elapsed_s == pytest.approx(added.wall_clock_s, abs=0.5)


def test_what_the_processors_did_and_when_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading that was interrupted for a second is repeated."""
    now, readings = 100.0, 0

    def stat() -> dict[str, list[int]]:
        nonlocal now, readings
        readings += 1
        now += 1.0 if readings == 1 else 0.0001
        return {"processes": [readings]}

    clock = SimpleNamespace(monotonic=lambda: now, time=lambda: now + 1e9)
    monkeypatch.setattr(system, "time", clock)
    monkeypatch.setattr(system, "_stat", stat)
    counters = take_snapshot().counters
    assert (counters.forks, readings) == (2, 2)
    assert counters.elapsed_s == now
    assert counters.wall_clock_s == now + 1e9


def test_a_snapshot_is_cheap() -> None:
    assert cpu_ratio(lambda: take_snapshot(find_cgroup()), reading, rounds=20) < 60


def test_what_is_available_is_a_part_of_the_memory() -> None:
    snapshot = take_snapshot()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert snapshot.available_bytes is not None
    assert 0 < snapshot.available_bytes <= total
    assert snapshot.swap_used_bytes is not None
    assert snapshot.running is not None
    assert snapshot.running >= 1


def test_a_control_group_is_read_along() -> None:
    group = find_cgroup()
    if group is None:
        pytest.skip("no control groups")
    assert take_snapshot(group).cgroup["path"] == group.path
    assert take_snapshot().cgroup == {}


def test_unknown_stays_unknown_and_a_counter_that_fell_is_unknown() -> None:
    first = Counters(elapsed_s=10.0, wall_clock_s=1000.0, busy_s=5.0, steal_s=2.0, forks=7)
    second = replace(first, elapsed_s=12.5, wall_clock_s=900.0, busy_s=6.0, steal_s=1.0)
    added = counters_between(Snapshot(counters=first), Snapshot(counters=second))
    known = {key: value for key, value in asdict(added).items() if value is not None}
    assert known == {"elapsed_s": 2.5, "wall_clock_s": -100.0, "busy_s": 1.0, "forks": 0}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(1, 3, 2), (None, 3, None), (3, None, None), (3, 2, None), (0.5, 0.5, 0.0)],
)
def test_differences(before: float | None, after: float | None, expected: float | None) -> None:
    assert increase(before, after) == expected

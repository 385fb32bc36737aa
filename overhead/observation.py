"""Measure the cost of observation: the sampler's CPU time, and the slowdown of a benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from overhead.processes import (
    ROOT,
    SUBJECTS,
    MeasurementError,
    Settings,
    environment,
    in_turns,
    perfrun,
)
from overhead.table import Goal, Row, Rule
from perfrun.probes.process_tree import TreeSampler

BUSY = "busy.Busy.spin"
SETTLE_S = 2.0  # perfrun has started its worker by then
WATCH_S = 7.0  # at the end of this it is still waiting for the worker
STEPS = 8_000_000  # about half a second
PAIRS_PER_ROUND = 4


def observation_rows(settings: Settings) -> list[Row]:
    """Measure sampler, whole harness, and the slowdown of a benchmark that uses every core."""
    return [*_share_rows(settings), _slowdown_row(settings)]


def _share_rows(settings: Settings) -> list[Row]:
    workspace = settings.scratch / "observation"
    shares: list[float] = []
    usages = []
    for _ in range(max(1, settings.rounds // 3)):
        run = perfrun(workspace, [BUSY], meanwhile=lambda pid: shares.append(_share(pid)))
        usages.append(run.summaries[0]["perfrun"]["usage"])
    return [
        Row(
            what="sampling rate during 10 s of work",
            unit="Hz",
            values=tuple(usage["sampling_rate_hz"] for usage in usages),
            goal=Goal(rule=Rule.VALUE_AT_LEAST, limit=20),
        ),
        Row(
            what="CPU of the sampler",
            unit="% of a core",
            values=tuple(100 * u["observer_cpu_s"] / u["elapsed_s"] for u in usages),
            goal=Goal(rule=Rule.VALUE_AT_MOST, limit=0.5),
        ),
        Row(
            what="CPU of all of perfrun during the trial, as it says",
            unit="% of a core",
            values=tuple(100 * u["harness_cpu_s"] / u["elapsed_s"] for u in usages),
        ),
        Row(
            what="CPU of all of perfrun while it waits",
            unit="% of a core",
            values=tuple(shares),
        ),
    ]


def _share(pid: int) -> float:
    """Return the percentage of a core that a process takes; its start and children do not count."""
    time.sleep(SETTLE_S)
    begin_s, used_s = time.perf_counter(), _cpu_s(pid)
    time.sleep(WATCH_S)
    return 100 * (_cpu_s(pid) - used_s) / (time.perf_counter() - begin_s)


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's live threads; schedstat counts in nanoseconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


def _slowdown_row(settings: Settings) -> Row:
    cores = len(os.sched_getaffinity(0))
    log = settings.scratch / "process_info.log"
    watched, alone = in_turns(
        settings.rounds * PAIRS_PER_ROUND, _spinning(cores, log), _spinning(cores, None)
    )
    return Row(
        what=f"work on {cores} core(s), sampled",
        unit="s",
        values=watched,
        reference="not sampled",
        references=alone,
        goal=Goal(rule=Rule.RATIO_NOT_ABOVE_ONE),
    )


def _spinning(processes: int, log: Path | None) -> Callable[[], float]:
    """Return a measure of the same work, watched when there is a log to write."""

    def measure() -> float:
        process = subprocess.Popen(
            [sys.executable, str(SUBJECTS / "busy.py"), str(processes), str(STEPS)],
            env=environment(PYTHONPATH=str(ROOT)),
            stdout=subprocess.PIPE,
            text=True,
        )
        sampler = TreeSampler(process.pid, log) if log else None
        if sampler:
            sampler.start()
        output, _ = process.communicate()
        if sampler and not sampler.finish().samples:
            raise MeasurementError("the sampler took no sample")
        return float(output)

    return measure

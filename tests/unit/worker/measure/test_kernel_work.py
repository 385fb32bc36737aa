"""Page faults and kernel time of a series, counted on steps whose faults are known."""

from __future__ import annotations

import mmap
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perfrun import Benchmark
from perfrun.run.outcome import read_series
from perfrun.worker.measure.kernel_work import KernelWork
from perfrun.worker.outcome_file import SERIES_VARIABLE

PAGES = 1000
OTHERS = 50  # faults that the interpreter may have in a step besides
EXACTLY: dict[str, Any] = {"iterations": 5, "warmup": 1, "report": False}


def touch() -> None:
    """Fault in pages of a fresh mapping, each by itself, and give them back."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as fresh:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            fresh.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            fresh[page * mmap.PAGESIZE] = 1


@pytest.fixture
def second_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        yield pool


def test_every_page_that_a_step_touches_first_is_counted() -> None:
    found = Benchmark().measure(touch, **EXACTLY)
    assert found.minor_faults_per_step is not None
    assert PAGES <= found.minor_faults_per_step < PAGES + OTHERS
    assert found.major_faults_per_step == 0
    assert found.system_cpu_s is not None
    assert found.system_cpu_s > 0
    assert str(found).endswith("page faults a step")


def test_faults_of_a_steps_threads_count_and_a_block_has_those_of_one_step(
    second_thread: ThreadPoolExecutor,
) -> None:
    def step() -> None:
        second_thread.submit(touch).result()

    found = Benchmark().measure(step, block_size=3, **EXACTLY)
    assert PAGES <= (found.minor_faults_per_step or 0) < PAGES + OTHERS


def test_a_step_that_sleeps_has_none_and_those_of_the_warmup_do_not_count() -> None:
    calls = iter(range(100))

    def step() -> None:
        if next(calls) < 2:
            touch()
        time.sleep(0.001)

    found = Benchmark().measure(step, **EXACTLY)
    assert found.minor_faults_per_step is not None
    assert found.minor_faults_per_step < 1


def test_the_loop_as_context_manager_counts_the_same() -> None:
    with Benchmark().measuring(**EXACTLY) as timer:
        for _ in timer:
            touch()
    assert timer.measurement is not None
    assert PAGES <= (timer.measurement.minor_faults_per_step or 0) < PAGES + OTHERS


def test_without_a_step_nothing_is_known() -> None:
    assert set(KernelWork().facts(0).values()) == {None}


def test_a_series_that_was_killed_says_that_it_does_not_know(tmp_path: Path) -> None:
    program = """
import os
from perfrun import Benchmark
count = iter(range(99))
Benchmark().measure(lambda: next(count) < 9 or os.kill(os.getpid(), 9), iterations=50, warmup=1)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={SERIES_VARIABLE: str(tmp_path), "PATH": ""},
        check=False,
    )
    assert ended.returncode == -9
    (series,) = read_series(tmp_path, [])
    assert series["system_cpu_s"] is None
    assert series["minor_faults_per_step"] is None

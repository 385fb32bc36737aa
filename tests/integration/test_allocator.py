"""`--allocator` in real processes: it is loaded and works, and what has no effect is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from worlds import World

from perfrun.summary.series_identity import subject
from perfrun.worker.allocator import find_library

# Larger than any block that glibc keeps by default, so each step takes it from the system.
CASES = """
class Cases(Benchmark):
    def churn(self):
        def step():
            block = bytearray(64 * 2**20)
            del block
        self.measure(step, iterations=6, warmup=5, name="churn")
        with open("/proc/self/maps") as file:
            loaded = sorted({line.split()[-1] for line in file if ".so" in line})
        self.report_benchmark(wall_time=1.0, extras={"loaded": " ".join(loaded)})
"""
METHOD = "pkg.cases.Cases.churn"
LEAST = 32  # faults of such a block even where it is made of huge pages


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CASES)
    return made


def trial(world: World, *words: str, **env: str) -> dict[str, Any]:
    done = world.run("--format=json", *words, methods=METHOD, **env)
    assert done.code == 0, done.stderr
    (summary,) = done.summaries()
    return summary


def faults(summary: dict[str, Any]) -> float:
    found: float = summary["perfrun"]["series"][0]["minor_faults_per_step"]
    return found


def codes(summary: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in summary["perfrun"]["quality"]["findings"]}


def library(name: str) -> str:
    found = find_library(name)
    if found is None:
        message = f"no library of {name}: Debian has it in libjemalloc2 and libtcmalloc-minimal4"
        if os.environ.get("PERFRUN_REQUIRE_FRAMEWORKS") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


def test_memory_that_is_given_back_is_found_and_retain_keeps_it(world: World) -> None:
    given_back, kept = trial(world), trial(world, "--allocator=retain")
    assert faults(given_back) >= LEAST
    assert faults(kept) < 1
    assert "page_faults" in codes(given_back)
    assert "page_faults" not in codes(kept)
    assert given_back["perfrun"]["allocator"]["asked"] == "default"
    assert given_back["benchmark_info"]["flags"].get("allocator") is None
    own = kept["perfrun"]["allocator"]
    assert (own["asked"], own["name"]) == ("retain", "glibc")
    assert own["settings"]["MALLOC_MMAP_MAX_"] == "0"
    assert kept["benchmark_info"]["flags"]["allocator"] == "retain"
    keys = [subject(summary, METHOD).settings for summary in (given_back, kept)]
    assert keys == ["", "--allocator=retain"]


@pytest.mark.parametrize("name", ["jemalloc", "tcmalloc"])
def test_another_allocator_is_loaded_besides_what_the_user_preloads(
    name: str, world: World
) -> None:
    path = library(name)
    with Path("/proc/self/maps").open() as file:
        own = next(line.split()[-1] for line in file if "/libm" in line)
    summary = trial(world, f"--allocator={name}", f"--env=LD_PRELOAD={own}")
    found = summary["perfrun"]["allocator"]
    assert (found["asked"], found["name"]) == (name, name)
    assert Path(found["library"]).samefile(path)
    assert found["settings"]["LD_PRELOAD"] == f"{path}:{own}"
    extras = summary["perfrun"]["reports"][-1]["extras"]
    (loaded,) = [extra["value"] for extra in extras if extra["name"] == "loaded"]
    assert found["library"] in loaded
    assert own in loaded


def test_an_allocator_that_a_wrapper_takes_away_is_refused_before_anything_runs(
    world: World, tmp_path: Path
) -> None:
    library("jemalloc")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    words = ("--allocator=jemalloc", f"--python={wrapper}")
    done = world.run(*words, methods=METHOD)
    assert done.code == 2
    assert "has no effect: malloc is still glibc" in done.stderr
    assert not list(world.workspace.glob("output/*/perfzero_summary.json"))


def test_retain_that_the_users_own_settings_undo_is_refused(world: World) -> None:
    words = ("--allocator=retain", "--env=GLIBC_TUNABLES=glibc.malloc.trim_threshold=4096")
    done = world.run(*words, methods=METHOD)
    assert done.code == 2
    assert "--allocator=retain: has no effect" in done.stderr
    assert len(done.stderr.splitlines()) == 1

"""`--profile_scope`: a profile holds the timed steps and nothing else, unless it is told to."""

from __future__ import annotations

import pstats
from pathlib import Path
from typing import Any

import pytest
from worlds import Finished, World

SOURCE = """
def loaded():
    return sum(range(1000))

NUMBER = loaded()
ZEROS = bytes(400_000)  # a sum of them makes no number, which a tracer of memory would slow down

def prepared(blocks=[]):
    blocks.append(bytearray(20_000_000))
    return sum(number for number in range(3_000))

def worked():
    block = bytearray(5_000_000)
    return sum(ZEROS)

class Cases(Benchmark):
    def measures(self):
        prepared()
        def step():
            return worked()
        self.measure(step, iterations=25, warmup=2, block_size=2)
        prepared()

    def loops(self):
        prepared()
        with self.measuring(iterations=25, warmup=2, block_size=2) as timer:
            for _ in timer:
                worked()
        prepared()

    def plain(self):
        prepared()
        self.report_benchmark(wall_time=1.0)
"""
MEASURES, LOOPS, PLAIN = (f"pkg.cases.Cases.{name}" for name in ("measures", "loops", "plain"))
KINDS = "cprofile,lines,memory_lines,sampling"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("scopes"))
    made.write(SOURCE)
    return made


@pytest.fixture(scope="module")
def run(world: World) -> Finished:
    words = ("--format=json", f"--profile={KINDS}")
    done = world.run(*words, methods=f"{MEASURES},{LOOPS},{PLAIN}", PATH="/usr/bin:/bin")
    assert done.code == 0, done.stderr
    return done


def profiles(done: Finished, method: str) -> dict[str, dict[str, Any]]:
    found = next(s for s in done.summaries() if s["benchmark_result"]["name"] == method)
    return {profile["kind"]: profile for profile in found["perfrun"]["profiles"]}


def file_of(done: Finished, method: str, kind: str, name: str) -> Path:
    result = next(result for result in done.results if result["name"] == method)
    return Path(result["summary"]).parent / "profiles" / kind / "profile" / name


def calls(done: Finished, method: str) -> dict[tuple[str, str], Any]:
    stats: Any = pstats.Stats(str(file_of(done, method, "cprofile", "method.prof")))
    return {(path, name): facts for (path, _, name), facts in stats.stats.items()}


@pytest.mark.parametrize("method", [MEASURES, LOOPS])
def test_only_the_timed_steps_are_in_a_profile_of_calls(run: Finished, method: str) -> None:
    found = calls(run, method)
    names = {name: facts[1] for (_, name), facts in found.items()}
    assert names["worked"] == 50
    assert not {"prepared", "measures", "loops", "report_benchmark", "evaluate"} & set(names)
    whole_s = sum(facts[2] for facts in found.values())
    own_s = sum(facts[2] for (path, _), facts in found.items() if "/perfrun/worker/" in path)
    assert own_s < 0.1 * whole_s, found
    assert "_record" not in names, "the work between two intervals"
    [window] = profiles(run, method)["cprofile"]["windows"]
    assert (window["part"], window["steps"]) == ("timed steps", 50)


def test_each_line_has_its_hits_and_its_time(run: Finished) -> None:
    for method in (MEASURES, LOOPS):
        rows = {row["name"]: row for row in profiles(run, method)["lines"]["top"]}
        assert rows["return sum(ZEROS)"]["calls"] == 50
        assert rows["block = bytearray(5_000_000)"]["total_s"] > 0
        assert "prepared()" not in rows
    within = sum(rows[name]["total_s"] for name in rows if "sum" in name or "block" in name)
    # The line of the call has the time of the lines called, and the work of `measure` is in none.
    assert rows["worked()"]["total_s"] == pytest.approx(within, rel=0.5)
    table = file_of(run, MEASURES, "lines", "lines.txt").read_text("utf-8")
    assert "cases.py, worked:\n" in table
    [line] = [line for line in table.splitlines() if "bytearray(5_000_000)" in line]
    number, hits, *_ = line.split()
    source = Path(profiles(run, MEASURES)["lines"]["top"][0]["where"].rpartition(":")[0])
    assert "bytearray(5_000_000)" in source.read_text("utf-8").splitlines()[int(number) - 1]
    assert hits == "50"


def test_memory_by_line_is_that_of_the_steps(run: Finished) -> None:
    profile = profiles(run, MEASURES)["memory_lines"]
    [largest, *others] = profile["top"]
    assert largest["name"] == "block = bytearray(5_000_000)"
    assert largest["bytes"] == pytest.approx(5_000_000, rel=0.02)
    assert not [row for row in others if row["bytes"] > 1_000_000], "not what was there before"
    table = file_of(run, MEASURES, "memory_lines", "lines.txt").read_text("utf-8")
    assert "4.768" in next(line for line in table.splitlines() if "bytearray(5_000_000)" in line)


def test_a_sampler_sees_the_steps_alone(run: Finished) -> None:
    rows = profiles(run, MEASURES)["sampling"]["top"]
    assert {row["name"] for row in rows} & {"worked", "step"}
    assert not [row for row in rows if row["name"] in ("prepared", "_record", "evaluate")]


def test_a_method_that_does_not_measure_is_recorded_whole(run: Finished) -> None:
    found = profiles(run, PLAIN)
    assert {kind: p["windows"][0]["part"] for kind, p in found.items()} == dict.fromkeys(
        KINDS.split(","), "method"
    )
    assert ("prepared()", 1) in {(r["name"], r["calls"]) for r in found["lines"]["top"]}
    assert found["memory_lines"]["top"][0]["bytes"] == pytest.approx(20_000_000, rel=0.02)


@pytest.mark.parametrize("scope", ["method", "process"])
def test_a_wider_scope_has_what_stands_around_the_steps(world: World, scope: str) -> None:
    words = ("--format=json", "--profile=cprofile", f"--profile_scope={scope}")
    done = world.run(*words, methods=MEASURES)
    assert done.code == 0, done.stderr
    names = {name: facts[1] for (_, name), facts in calls(done, MEASURES).items()}
    assert (names["prepared"], names["worked"]) == (2, 55)
    assert names.get("loaded", 0) == (scope == "process")
    [window] = profiles(done, MEASURES)["cprofile"]["windows"]
    assert window["part"] == scope
    shown = "import, construction and method" if scope == "process" else "the whole method"
    assert f": {shown}, " in done.stderr


def test_a_scope_is_of_a_profile_and_one_of_three(world: World) -> None:
    for words, text in (
        (("--profile_scope=method",), "--profile_scope: there is no --profile"),
        (("--profile=lines", "--profile_scope=steps"), "must be one of timed, method, process"),
    ):
        done = world.run(*words, methods=PLAIN)
        assert (done.code, text in done.stderr) == (2, True), done.stderr

"""`--profile`: known answers in every kind of profile, and no result that a profile touches."""

from __future__ import annotations

import gzip
import json
import pstats
import sqlite3
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import schemas
from worlds import Finished, World, strict

SOURCE = """
def counted(n):
    return n + 1

def hot(until):
    while time.perf_counter() < until:
        for _ in range(20_000):
            pass

def cold(until):
    while time.perf_counter() < until:
        for _ in range(20_000):
            pass

class Cases(Benchmark):
    def busy(self):
        began = time.perf_counter()
        self.report_benchmark(wall_time=1.0)
        for number in range(137):
            counted(number)
        # Each takes three times what all before it took: a profiler's time is that of the clock on
        # the wall, and goes on when the machine stands still.
        for work in (cold, hot):
            now = time.perf_counter()
            work(now + max(0.01, 3 * (now - began)))

    def allocates(self):
        block = bytearray(50_000_000)
        for _ in range(50):  # who looks at it now and then has many chances
            time.sleep(0.01)
        del block
        if sys.getprofile() or "profiles/cprofile" in self.output_dir:
            raise RuntimeError("will not be watched")
        self.report_benchmark(wall_time=1.0)

    def fails(self):
        raise ValueError("always")
"""
BUSY, ALLOCATES, FAILS = (f"pkg.cases.Cases.{name}" for name in ("busy", "allocates", "fails"))
KINDS = "cprofile,memory,sampling,torch"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("a 'profiled' world"))
    made.write(SOURCE)
    return made


@pytest.fixture(scope="module")
def run(world: World) -> Finished:
    words = (f"--profile={KINDS}", "--execution_id=night", f"--store={world.folder / 'own.db'}")
    # Python's own means alone, whatever the interpreter of the tests has: no py-spy on the path.
    done = world.run("--format=json", *words, methods=f"{BUSY},{ALLOCATES}", PATH="/usr/bin:/bin")
    assert done.code == 0, done.stderr
    return done


def linked(done: Finished, method: str) -> dict[str, dict[str, Any]]:
    """The profiles in a summary, by kind."""
    found = next(s for s in done.summaries() if s["benchmark_result"]["name"] == method)
    return {profile["kind"]: profile for profile in found["perfrun"]["profiles"]}


def folder_of(done: Finished, method: str) -> Path:
    result = next(result for result in done.results if result["name"] == method)
    return Path(result["summary"]).parent


def test_calls_are_counted_and_what_takes_most_is_on_top(run: Finished) -> None:
    profile = linked(run, BUSY)["cprofile"]
    [file] = profile["files"]
    stats: Any = pstats.Stats(str(folder_of(run, BUSY) / file["path"]))
    calls = {name: facts[1] for (_, _, name), facts in stats.stats.items()}
    assert calls["counted"] == 137
    assert [row["name"] for row in profile["top"][:2]] == ["hot", "cold"]
    assert profile["top"][0]["self_s"] > 2 * profile["top"][1]["self_s"]
    assert profile["windows"][0]["part"] == "method"


def test_stacks_show_where_most_time_went_by(run: Finished) -> None:
    profile = linked(run, BUSY)["sampling"]
    assert profile["top"][0]["name"] == "hot"
    if profile["tool"] != "perfrun's sampler":
        return
    folded = (folder_of(run, BUSY) / profile["files"][0]["path"]).read_text("utf-8")
    seen: Counter[str] = Counter()
    for line in folded.splitlines():
        stack, _, microseconds = line.rpartition(" ")
        seen[stack.rpartition(";")[2].partition(" ")[0]] += int(microseconds)
    assert seen["hot"] > 0.5 * seen.total()
    window = profile["windows"][0]
    assert seen.total() / 1e6 <= 1.05 * (window["end_s"] - window["begin_s"]) + 0.1


def test_fifty_megabytes_are_found_where_they_are_allocated(run: Finished) -> None:
    profile = linked(run, ALLOCATES)["memory"]
    [largest, *_] = profile["top"]
    assert largest["bytes"] == pytest.approx(50_000_000, rel=0.02)
    path, _, line = largest["where"].rpartition(":")
    assert "bytearray(50_000_000)" in Path(path).read_text().splitlines()[int(line) - 1]
    if profile["tool"] == "tracemalloc":
        folder = folder_of(run, ALLOCATES)
        [snapshot] = [f["path"] for f in profile["files"] if f["path"].endswith(".snapshot")]
        statistics = tracemalloc.Snapshot.load(str(folder / snapshot)).statistics("lineno")
        assert statistics[0].size == largest["bytes"]


def test_what_an_environment_lacks_is_one_line_and_the_other_kinds_go_on(run: Finished) -> None:
    profile = linked(run, BUSY)["torch"]
    if profile["error"] is None:
        pytest.skip("the interpreter of the tests has PyTorch")
    assert "PyTorch cannot be imported" in profile["error"]
    assert profile["trial"]["status"] == "failed"
    assert "Traceback" not in run.stderr.partition("profile torch")[2].partition("profile ")[0]
    assert f"profile torch of {BUSY}: none: PyTorch cannot" in run.stderr


def test_a_method_that_fails_under_a_profiler_does_not_turn_the_run(run: Finished) -> None:
    assert run.statuses == ["passed", "passed"]
    profile = linked(run, ALLOCATES)["cprofile"]
    assert profile["trial"]["status"] == "failed"
    assert profile["trial"]["reason"] == "RuntimeError: will not be watched"
    assert profile["files"], "what was recorded until then is kept"


def test_the_terminal_names_files_and_rows(run: Finished) -> None:
    text = run.stderr.partition(f"profile cprofile of {BUSY}, by cProfile")[2]
    assert "the whole method" in text.splitlines()[0]
    assert "night.Cases.busy.1/profiles/cprofile/profile/method.prof" in text.splitlines()[1]
    assert "hot pkg/cases.py:" in text


def test_profiles_are_no_results(run: Finished, world: World) -> None:
    """Not for PerfZero's readers, the index, the statistics, or the run's own list."""
    assert len(world.summary_files()) == len(run.results) == 2
    assert not list(world.workspace.glob("output/*/**/*/perfzero_summary.json"))
    with sqlite3.connect(world.folder / "own.db") as index:
        tables = [name for (name,) in index.execute("select name from sqlite_master")]
        assert index.execute("select count(*) from trials").fetchone() == (2,), tables
    document = strict(run.stdout)
    assert [method["trials"] for method in document["methods"]] == [1, 1]
    assert len(document["profiles"]) == 2 * len(KINDS.split(","))
    pids = set()
    for method in (BUSY, ALLOCATES):
        outcomes = folder_of(run, method).rglob("perfrun/outcome.json")
        pids |= {json.loads(path.read_bytes())["pid"] for path in outcomes}
    assert len(pids) == 2 * (1 + len(KINDS.split(","))), "each in a process of its own"


def test_the_summary_of_a_profile_says_so_and_is_refused_as_a_result(
    run: Finished, world: World
) -> None:
    profile = linked(run, BUSY)["cprofile"]
    summary = folder_of(run, BUSY) / profile["trial"]["folder"] / "profile_summary.json"
    own = strict(summary.read_text("utf-8"))["perfrun"]
    assert own["order"]["profile"] == "cprofile"
    for document in run.summaries():
        schemas.check("summary", document)
    timed = [one["perfrun"]["order"]["profile"] for one in run.summaries()]
    assert timed == [None, None]
    compared = world.run_words(
        [world.python, world.entry, "compare", str(summary), run.results[0]["summary"]]
    )
    assert (compared.code, "under a profiler" in compared.stderr) == (2, True), compared.stderr
    indexed = world.run_words(
        [world.python, world.entry, "index", str(summary), f"--store={world.folder / 'own.db'}"]
    )
    assert "under a profiler" in indexed.stdout + indexed.stderr


def test_a_resumed_run_makes_only_the_profiles_it_lacks(run: Finished, world: World) -> None:
    [journal] = (world.workspace / "runs").glob("*.jsonl")
    lines = journal.read_text("utf-8").splitlines()
    assert json.loads(lines[-1])["event"] == "end"
    journal.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")  # as if killed
    kept = folder_of(run, BUSY) / "profiles" / "cprofile" / "profile_summary.json"
    lost = folder_of(run, BUSY) / "profiles" / "memory" / "profile_summary.json"
    before = kept.stat().st_mtime_ns
    lost.unlink()
    again = world.run(
        "--format=json",
        "--resume",
        f"--profile={KINDS}",
        "--execution_id=night",
        methods=f"{BUSY},{ALLOCATES}",
        PATH="/usr/bin:/bin",
    )
    assert again.code == 0, again.stderr
    assert kept.stat().st_mtime_ns == before
    assert again.stderr.count("profile memory of pkg.cases.Cases.busy ...") == 1
    assert "profile cprofile of pkg.cases.Cases.busy ..." not in again.stderr
    assert linked(again, BUSY)["memory"]["trial"]["folder"] == "profiles/memory-2"
    assert set(linked(again, BUSY)) == set(KINDS.split(","))


def test_a_method_that_never_ran_is_not_profiled(world: World) -> None:
    done = world.run("--profile=cprofile", methods=FAILS)
    assert done.code == 1
    assert f"no trial of {FAILS} ran to its end; it is not profiled" in done.stderr


def test_pairs_are_not_profiled(world: World) -> None:
    done = world.run("ab", "--a=--env=X=1", "--profile=cprofile", methods=BUSY)
    assert done.code == 2
    assert "profile each arm by a run of its own" in done.stderr


TORCH = """
import torch

class Cases(Benchmark):
    def multiplies(self):
        matrix = torch.eye(64)
        for _ in range(7):
            matrix = torch.mm(matrix, matrix)
        self.report_benchmark(wall_time=1.0)

    def layer(self):
        layer, rows = torch.nn.Linear(8, 8), torch.randn(4, 8)
        self.measure(lambda: layer(rows), iterations=30)

    def through_two_windows(self):
        matrix, windows, was_on = torch.eye(64), [], False
        end = time.monotonic() + 5 * float(os.environ["SECOND_S"])
        while (len(windows) < 2 or windows[-1] < 20) and time.monotonic() < end:
            is_on = torch.autograd._profiler_enabled()
            if is_on and not was_on:
                windows.append(0)
            if is_on:
                windows[-1] += 1
            torch.mm(matrix, matrix)
            was_on = is_on
            time.sleep(0.01)
        extras = {str(number): count for number, count in enumerate(windows)}
        self.report_benchmark(wall_time=1.0, extras=extras)
"""


@pytest.fixture(scope="module")
def torch_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("torch"))
    made.write(TORCH)
    return made


def traced(path: Path) -> Counter[str]:
    """Operations of a trace in Chrome's format, by name."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return Counter(event["name"] for event in events if event.get("ph") == "X")


@pytest.mark.torch
def test_pytorch_operations_are_counted_and_traced(torch_world: World, torch_python: str) -> None:
    methods = ("pkg.cases.Cases.multiplies", "pkg.cases.Cases.layer")
    done = torch_world.run(
        "--format=json", "--profile=torch", f"--python={torch_python}", methods=",".join(methods)
    )
    assert done.code == 0, done.stderr
    assert "USDT:" not in done.stderr, "marks of PyTorch's profiler for kernel probes"
    for method, name, count in ((methods[0], "aten::mm", 7), (methods[1], "aten::addmm", 20)):
        profile = linked(done, method)["torch"]
        assert profile["error"] is None
        rows = {row["name"]: row["calls"] for row in profile["top"]}
        assert rows[name] == count
        [file] = profile["files"]
        assert file["path"].endswith(".pt.trace.json.gz")
        assert traced(folder_of(done, method) / file["path"])[name] == count
    [window] = linked(done, methods[1])["torch"]["windows"]
    assert (window["part"], window["series"], window["steps"]) == ("timed steps", "layer", 20)
    # The trial that counts was measured as ever.
    [series] = done.summaries()[1]["perfrun"]["series"]
    assert series["iterations"] == 30


@pytest.mark.torch
def test_windows_of_time_record_the_main_threads_pytorch(
    torch_world: World, torch_python: str
) -> None:
    for second_s in (2, 6, 18):  # a method that stands still for long misses a window, or its end
        done = torch_world.run(
            "--format=json",
            f"--profiler_enabled_time=0:{second_s / 2:g},{second_s}:",
            f"--python={torch_python}",
            "--timeout=300",
            methods="pkg.cases.Cases.through_two_windows",
            SECOND_S=str(second_s),
        )
        assert done.code == 0, done.stderr
        [document] = done.summaries()
        if len(document["benchmark_result"]["extras"]) == 2:
            break
    [profile] = document["perfrun"]["profiles"]
    assert (profile["kind"], "trial" in profile) == ("torch", False)
    folder = Path(done.results[0]["summary"]).parent
    counts = [traced(folder / file["path"])["aten::mm"] for file in profile["files"]]
    assert len(counts) == len(profile["windows"]) == 2
    # The profiler is switched between two instructions: one operation may fall on either side.
    seen = [one["value"] for one in document["benchmark_result"]["extras"]]
    assert counts == pytest.approx(seen, abs=1.5)
    assert document["perfrun"]["notes"] == []


@pytest.mark.tensorflow
def test_tensorflow_leaves_a_folder_for_tensorboard_and_a_trace(
    tmp_path: Path, tensorflow_python: str
) -> None:
    world = World(tmp_path)
    world.write("""
import tensorflow as tf

class Cases(Benchmark):
    def multiplies(self):
        run = tf.function(lambda matrix: tf.matmul(matrix, matrix))
        matrix = tf.eye(64)
        self.measure(lambda: run(matrix), iterations=9, warmup=2)
""")
    method = "pkg.cases.Cases.multiplies"
    done = world.run(
        "--format=json", "--profile=tensorflow", f"--python={tensorflow_python}", methods=method
    )
    assert done.code == 0, done.stderr
    profile = linked(done, method)["tensorflow"]
    assert profile["error"] is None
    assert profile["windows"][0]["steps"] == 9
    paths = [file["path"] for file in profile["files"]]
    assert any("/plugins/profile/" in path and path.endswith(".xplane.pb") for path in paths)
    [trace] = [path for path in paths if path.endswith("trace.json.gz")]
    names = traced(folder_of(done, method) / trace)
    multiplied = {name: count for name, count in names.items() if name.endswith("MatMul")}
    assert 9 in multiplied.values(), names.most_common(20)

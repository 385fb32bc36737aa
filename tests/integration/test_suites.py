"""Suites of asv and pytest-benchmark, and a model by TorchBench's contract, run unmodified."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perfrun.compare.selection import read_folder
from perfrun.summary.record import SummaryRecord

# In a package `benchmarks`, as asv proposes: perfrun's own of that name must not be in its way.
ASV = '''
import os, time

LOG = open(os.environ["LOG"], "a", buffering=1)

def setup(*parameters):
    LOG.write("module.setup\\n")

class Lists:
    """Lists."""
    params = ([3, 5], ["a b", None])
    param_names = ["n", "word"]
    number = 2

    def setup_cache(self):
        LOG.write("cache %s\\n" % (os.getppid() != HARNESS))
        return {"made": [1, 2]}

    def setup(self, cache, n, word):
        if n == 5 and word:
            raise NotImplementedError("no words of five")
        assert cache == {"made": [1, 2]}
        self.left = 2
        LOG.write("setup %s\\n" % n)

    def teardown(self, cache, n, word):
        LOG.write("teardown\\n")

    def time_use_up(self, cache, n, word):
        """Use up what setup made."""
        self.left -= 1
        assert self.left >= 0

    def not_a_benchmark(self): pass

HARNESS = os.getppid()

def track_answer(): return 42
track_answer.unit = "things"

def peakmem_block():
    return len(bytearray(50 * 2**20))

def timeraw_import():
    return "import json", "pass"

def time_for_ever():
    time.sleep(60)
time_for_ever.timeout = 0.2
'''
PYTEST = """
import pytest

@pytest.fixture
def numbers():
    return list(range(100, 0, -1))

class TestSorting:
    @pytest.mark.benchmark(group="sorting")
    @pytest.mark.parametrize("reverse", [True, False])
    def test_sort(self, benchmark, numbers, reverse):
        benchmark.extra_info["items"] = 100
        found = benchmark(sorted, numbers, reverse=reverse)
        assert (found[0] == 100) == reverse
        assert benchmark.stats["min"] <= benchmark.stats.stats.mean
        benchmark.extra_info["late"] = 7.0

def test_pedantic(benchmark):
    made = []
    def setup():
        made.append([1, 2, 3])
        return (made[-1],), {}
    def use_up(items):
        items.clear()
        return len(made)
    rounds = benchmark.pedantic(use_up, setup=setup, rounds=4)
    assert rounds == len(made) == 5  # and the first call, which is reported apart
    assert not any(made)

def test_wrong(benchmark):
    benchmark(int)
    assert benchmark.stats["rounds"] < 0, "as it should"

@pytest.mark.skip(reason="not here")
def test_skipped(benchmark): pass

def test_not_used(benchmark): pass

def test_without(): raise AssertionError
"""
CONFTEST = """
def pytest_benchmark_update_json(config, benchmarks, output_json): pass
"""
TORCHBENCH = '''
import torch

class Model:
    """TorchBench's contract: what perfrun calls of it."""

    def __init__(self, test, device, batch_size=None, extra_args=[]):
        if batch_size == 3:
            raise NotImplementedError("no batch of three")
        assert extra_args == ["--precision", "fp32"]
        self.test, self.device, self.batch_size = test, device, batch_size or 8
        self.num_batch = 1
        self.model = torch.nn.Linear(4, 2)

    def get_module(self):
        return self.model, (torch.ones(self.batch_size, 4),)

    def invoke(self):
        return (self.model(torch.ones(self.batch_size, 4)),)
'''


def run(
    tmp_path: Path, methods: str, *words: str, env: Mapping[str, str] | None = None
) -> dict[str, SummaryRecord]:
    """Run methods and return the records by the method's own name."""
    variables = [f"--env={name}={value}" for name, value in (env or {}).items()]
    argv = [f"--workspace={tmp_path / 'w'}", f"--benchmark_methods={methods}", *variables, *words]
    command = [sys.executable, "-m", "perfrun", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    records = read_folder(tmp_path / "w", pytest.fail)
    return {record.method.rpartition(".")[2]: record for record in records}


def listed(*words: str) -> Sequence[str]:
    command = [sys.executable, "-m", "perfrun", "list", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split()[0].removeprefix("perfrun.adapters.") for line in done.stdout.splitlines()]


def series(record: SummaryRecord) -> Mapping[str, Any]:
    (one,) = record.document["perfrun"]["series"]
    found: Mapping[str, Any] = one
    return found


def test_an_asv_suite_runs_with_its_setup_cache_parameters_and_timeout(tmp_path: Path) -> None:
    package = tmp_path / "benchmarks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "lists.py").write_text(ASV)
    log = tmp_path / "log"
    module = "perfrun.adapters.asv.benchmarks.lists"
    words = [f"--python_path={tmp_path}", f"--env=LOG={log}"]
    assert listed(*words, module) == [
        *(f"asv.benchmarks.lists.Functions.{name}" for name in
          ("peakmem_block", "time_for_ever", "timeraw_import", "track_answer")),
        *(f"asv.benchmarks.lists.Lists.time_use_up__{name}" for name in
          ("3_None", "3_a_b", "5_None", "5_a_b")),
    ]  # fmt: skip
    found = run(tmp_path, f"{module}.Functions.filter:.*,{module}.Lists.filter:.*_5_.*", *words)
    used = found["time_use_up__5_None"]
    assert (used.status, series(used)["block_size"]) == ("passed", 2)
    assert used.values["wall_time"] == series(used)["statistics"]["median_s"]
    lines = log.read_text().splitlines()
    intervals = 1 + series(used)["warmup"]["iterations"] + series(used)["iterations"]
    assert lines.count("setup 5") == lines.count("teardown") == intervals
    assert lines.count("cache True") == 2  # of the trial that skips itself, too
    first = lines.index("setup 5")
    assert lines[first - 1 : first + 4] == [
        "module.setup", "setup 5", "teardown", "module.setup", "setup 5",
    ]  # fmt: skip
    skipped = found["time_use_up__5_a_b"]
    assert not skipped.ran
    assert "the suite skips time_use_up__5_a_b here: no words of five" in str(skipped.reason)
    assert "the suite's timeout of 0.2 s is over" in str(found["time_for_ever"].reason)
    assert found["track_answer"].values["tracked"] == 42
    assert found["track_answer"].extras["unit"] == "things"
    assert found["peakmem_block"].values["peak_memory_bytes"] > 50 * 2**20
    assert 0 < found["timeraw_import"].values["wall_time"] < 60


def test_a_pytest_benchmark_suite_runs_with_its_fixtures_and_conftest(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(PYTEST)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    module = "perfrun.adapters.pytest_benchmark.test_mine"
    words = [f"--python_path={tmp_path}"]
    assert listed(*words, module) == [
        *(f"pytest_benchmark.test_mine.Functions.test_{name}" for name in
          ("not_used", "pedantic", "skipped", "wrong")),
        *(f"pytest_benchmark.test_mine.TestSorting.test_sort__{name}" for name in
          ("False", "True")),
    ]  # fmt: skip
    methods = f"{module}.Functions.filter:.*,{module}.TestSorting.test_sort__True"
    found = run(tmp_path, methods, *words)
    sort = found["test_sort__True"]
    assert sort.status == "passed", sort.reason
    assert sort.values["items"] == 100
    assert sort.extras["group"] == "sorting"
    assert [value for name, value in sort.values.items() if name.endswith("/late")] == [7.0]
    assert set(sort.primaries) >= {"wall_time", "items"}
    pedantic = found["test_pedantic"]
    assert pedantic.status == "passed", pedantic.reason
    assert series(pedantic)["iterations"] == 4
    assert "as it should" in str(found["test_wrong"].reason)
    assert "the suite skips test_skipped here: not here" in str(found["test_skipped"].reason)
    assert "has not called its fixture benchmark" in str(found["test_not_used"].reason)


@pytest.mark.torch
def test_a_model_of_torchbenchs_contract_is_measured(tmp_path: Path, torch_python: str) -> None:
    package = tmp_path / "torchbenchmark" / "models" / "toy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TORCHBENCH)
    given = {"model": "toy", "iterations": 5, "device": "cpu", "extra_args": "--precision fp32"}
    words = [
        f"--python_path={tmp_path}",
        f"--python={torch_python}",
        f"--perfzero_constructor_args={json.dumps(given)}",
    ]
    found = run(tmp_path, "benchmarks.torch.torchbench.Model.eval", *words)["eval"]
    assert found.status == "passed", found.reason
    assert found.values["parameters"] == 10
    assert series(found)["items_per_step"] == 8
    assert found.extras["model"] == "toy"
    words[-1] = f"--perfzero_constructor_args={json.dumps({**given, 'batch_size': 3})}"
    refused = run(tmp_path / "refused", "benchmarks.torch.torchbench.Model.train", *words)["train"]
    assert "TorchBench's toy (train, cpu): no batch of three" in str(refused.reason)

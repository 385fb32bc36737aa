"""The largest batch that fits: the search by itself, and with real processes and real memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shipped_run import DRIVER, ROOT

from benchmarks._support.largest_batch import probe as batch_probe
from benchmarks._support.largest_batch.probe import Probe, Prober, Target
from benchmarks._support.largest_batch.search import Found, SearchError, search
from benchmarks._support.machine import available_bytes
from perfrun.worker.test_log import decode_entries

MEGABYTE = 1_000_000


def stand_in(largest: int, tried: list[int]) -> object:
    def probe(size: int) -> Probe:
        tried.append(size)
        return Probe(batch_size=size, status="fits" if size <= largest else "out_of_memory")

    return probe


@pytest.mark.parametrize("limit", [1, 2, 7, 64, 100])
def test_the_search_finds_every_maximum_by_few_probes(limit: int) -> None:
    for largest in range(1, 130):
        tried: list[int] = []
        found = search(stand_in(largest, tried), limit=limit)  # type: ignore[arg-type]
        expected = min(largest, limit)
        assert found.best.batch_size == expected
        assert found.bound == ("limit" if largest >= limit else "memory")
        assert max(tried) <= limit
        assert tried[-1] == expected  # confirmed
        assert expected == limit or expected + 1 in tried  # its neighbour really does not fit
        assert len(tried) <= 2 * limit.bit_length() + 2


def test_a_batch_that_fitted_only_once_is_not_the_answer() -> None:
    tried: list[int] = []

    def probe(size: int) -> Probe:
        tried.append(size)
        lucky = size == 6 and tried.count(6) == 1
        fits = size <= 4 or lucky
        return Probe(batch_size=size, status="fits" if fits else "out_of_memory")

    found = search(probe, limit=100)
    assert found.best.batch_size == 4
    assert [probe.batch_size for probe in found.probes] == tried


def test_another_failure_ends_the_search_and_is_not_taken_for_memory() -> None:
    def probe(size: int) -> Probe:
        return Probe(batch_size=size, status="failed" if size > 4 else "fits", reason="wrong shape")

    with pytest.raises(SearchError, match="a probe of batch size 8 failed: wrong shape") as caught:
        search(probe, limit=100)
    assert [probe.batch_size for probe in caught.value.probes] == [1, 2, 4, 8]


@pytest.mark.parametrize("largest", [2, 3, 9])
def test_a_model_that_cannot_run_one_example_is_searched_from_two(largest: int) -> None:
    tried: list[int] = []

    def probe(size: int) -> Probe:
        tried.append(size)
        if size == 1:
            return Probe(batch_size=1, status="failed", reason="more than 1 value per channel")
        return Probe(batch_size=size, status="fits" if size <= largest else "out_of_memory")

    assert search(probe, limit=100).best.batch_size == largest
    assert tried[:2] == [1, 2]
    assert tried.count(1) == 1
    for limit, fits in ((1, True), (100, False)):  # nothing above it to try, or nothing that fits
        largest = largest if fits else 1
        with pytest.raises(SearchError, match="batch size 1 failed: more than 1 value"):
            search(probe, limit=limit)


def test_when_one_example_does_not_fit_that_is_said() -> None:
    with pytest.raises(SearchError, match="not even batch size 1 fits"):
        search(stand_in(0, []), limit=100)  # type: ignore[arg-type]


# A "model" that needs exactly so many bytes per example, and other ways to end.
MODEL = """
import os, signal, sys, time
from pathlib import Path

def hold(arguments, batch_size, steps):
    block = bytearray(arguments["bytes_per_example"] * batch_size)
    block[::4096] = bytes([1]) * len(block[::4096])
    return {"step_s": [0.25] * steps, "device_peak_bytes": None}

def forget(arguments, batch_size, steps):
    hold(arguments, batch_size, steps)  # a peak that nobody sees any more when it is over
    return {"step_s": [0.25] * steps, "device_peak_bytes": None}

def ask_for_too_much(arguments, batch_size, steps):
    return bytearray(1 << 60)

def refuse(arguments, batch_size, steps):
    raise ValueError("expected an even batch")

def die(arguments, batch_size, steps):
    os.kill(os.getpid(), arguments["signal"])

def leave_a_child(arguments, batch_size, steps):
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    Path(arguments["pid_file"]).write_text(str(pid))
    return {"step_s": [0.25]}

def overflow_a_group(arguments, batch_size, steps):
    (Path(arguments["group"]) / "cgroup.procs").write_text(str(os.getpid()))
    return hold({"bytes_per_example": 400_000_000}, 1, 1)
"""


@pytest.fixture
def own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "own_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def prober(folder: Path, function: str, memory_bytes: int | None = None, **given: object) -> Prober:
    target = Target(module="own_model", function=function, arguments=given)
    return Prober(target=target, folder=folder / "probes", memory_bytes=memory_bytes)


def test_memory_decides_in_real_processes(own_model: Path) -> None:
    limit, per_example = 150 * MEGABYTE, 16 * MEGABYTE
    probe = prober(own_model, "forget", limit, bytes_per_example=per_example)
    found: Found = search(probe, limit=64)
    peak = found.best.peak_rss_bytes or 0
    assert found.bound == "memory"
    assert found.best.batch_size * per_example < peak <= limit
    assert peak + per_example > limit - MEGABYTE  # one more would not have gone in
    over = [tried for tried in found.probes if tried.batch_size == found.best.batch_size + 1]
    assert [tried.status for tried in over] == ["out_of_memory"]
    assert over[0].reason == f"it took over {limit} bytes, the limit"
    # What was too large was stopped on its way, not when it had taken everything.
    sixteen = next(tried for tried in found.probes if tried.batch_size == 16)
    assert limit < (sixteen.peak_rss_bytes or 0) <= 16 * per_example + 100 * MEGABYTE
    assert found.best.step_median_s == 0.25
    assert found.best.steps == 3


def test_a_refused_request_is_want_of_memory_and_an_error_is_not(own_model: Path) -> None:
    refused = prober(own_model, "ask_for_too_much")(1)
    assert (refused.status, refused.reason) == ("out_of_memory", "MemoryError: ")
    wrong = prober(own_model, "refuse")(3)
    assert (wrong.status, wrong.reason) == ("failed", "ValueError: expected an even batch")


@pytest.mark.parametrize("number", [11, 9])
def test_a_probe_that_is_killed_by_anybody_else_has_failed(own_model: Path, number: int) -> None:
    probe = prober(own_model, "die", signal=number)
    for _ in range(20):  # the kernel may have killed somebody else at that moment
        before, found = batch_probe._kernel_kills(), probe(1)
        if before == batch_probe._kernel_kills():
            break
    assert found.status == "failed"
    assert (found.reason or "").startswith(f"killed by {'SIGSEGV' if number == 11 else 'SIGKILL'}")


def test_a_probe_leaves_no_process_behind(own_model: Path) -> None:
    pid_file = own_model / "pid"
    assert prober(own_model, "leave_a_child", pid_file=str(pid_file))(1).status == "fits"
    stat = Path(f"/proc/{pid_file.read_text()}/stat")
    deadline = time.monotonic() + 60
    # A zombie waits for whoever has adopted it.
    while stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.root
def test_the_kernels_killer_is_told_from_other_killers(own_model: Path) -> None:
    top = Path("/sys/fs/cgroup/memory")
    limit = "memory.limit_in_bytes" if top.is_dir() else "memory.max"
    group = (top if top.is_dir() else Path("/sys/fs/cgroup")) / f"perfrun-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(100 * MEGABYTE))
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        found = prober(own_model, "overflow_a_group", group=str(group))(1)
    finally:
        group.rmdir()
    assert found.status == "out_of_memory"
    assert found.reason == "killed by the kernel, which was out of memory"


FRAMEWORK = """
def torch_cpu(arguments, batch_size, steps):
    import torch
    torch.zeros(1 << 46)

def tensorflow_cpu(arguments, batch_size, steps):
    import tensorflow as tf
    tf.zeros((1 << 40,)) + 1.0
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        pytest.param("torch_cpu", "DefaultCPUAllocator", marks=pytest.mark.torch),
        pytest.param("tensorflow_cpu", "ResourceExhausted", marks=pytest.mark.tensorflow),
    ],
)
def test_a_framework_that_gets_no_memory_says_so_in_its_own_words(
    function: str,
    said: str,
    own_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    python = request.getfixturevalue(f"{function.removesuffix('_cpu')}_python")
    (own_model / "own_model.py").write_text(FRAMEWORK)
    # The environment under test has its own interpreter and libraries.
    monkeypatch.setattr(batch_probe.sys, "executable", python)
    monkeypatch.setattr(sys, "path", [str(own_model), str(ROOT), *_library_path(python)])
    found = prober(own_model, function)(1)
    assert found.status == "out_of_memory", found.reason
    assert said in (found.reason or "")


def run_with_search(folder: Path, python: str, target: str) -> list[dict[str, dict[str, float]]]:
    """Run `run` with a search that ends at 2; return the metrics and extras of each report."""
    module, name = target.rsplit(".", 1)
    keywords = {
        "model": "sensor_net",
        "forward_only": True,
        "max_batch_search": True,
        "max_batch_limit": 2,
        "iterations": 3,
        "warmup": 1,
        "device": "cpu",
    }
    done = subprocess.run(
        [python, "-c", DRIVER, module, name, "run", str(folder), json.dumps(keywords)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TEST_REPORT_FILE_PREFIX": f"{folder}/proto_",
        },
    )
    assert done.returncode == 0, done.stderr
    return [
        {item["name"]: item.get("value", 0.0) for item in (*entry["metrics"], *entry["extras"])}
        for method in ("run", "max_batch_size")
        for entry in decode_entries((folder / f"proto_{name}.{method}").read_bytes())
    ]


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    ],
)
def test_a_model_is_measured_with_the_batch_that_the_search_found(
    framework: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue(f"{framework}_python")
    measured, found = run_with_search(tmp_path, python, f"benchmarks.{framework}.model.Model")
    assert measured["batch_size"] == found["max_batch_size"] == found["max_batch_limit"] == 2
    assert measured["examples_per_second"] * measured["latency_median_s"] == pytest.approx(2)
    assert "cold_start_s" not in measured  # the search came before it
    assert found["max_batch_bound"] == "limit"
    assert found["probes"] == 3  # 1, 2, and 2 to confirm it
    probes = (tmp_path / "max_batch/probes.jsonl").read_text().splitlines()
    assert [json.loads(probe)["batch_size"] for probe in probes] == [1, 2, 2]
    assert all(json.loads(probe)["status"] == "fits" for probe in probes)
    assert 100 * MEGABYTE < found["peak_rss_bytes"] <= found["max_batch_memory"]


def _library_path(python: str) -> list[str]:
    code = "import json, sys; print(json.dumps([path for path in sys.path if path]))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_what_is_left_is_the_least_of_machine_and_groups(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   4000 kB\n")
    assert available_bytes(tmp_path) == 4_096_000
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/mine\n")
    jobs = tmp_path / "sys/fs/cgroup/jobs"
    (jobs / "mine").mkdir(parents=True)
    (jobs / "mine/memory.max").write_text("max\n")
    (jobs / "mine/memory.current").write_text("5\n")
    (jobs / "memory.max").write_text("3000000\n")
    (jobs / "memory.current").write_text("2500000\n")
    (jobs / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    assert available_bytes(tmp_path) == 1_500_000
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/box\n0::/\n")
    box = tmp_path / "sys/fs/cgroup/memory/box"
    box.mkdir(parents=True)
    (box / "memory.limit_in_bytes").write_text("2000000\n")
    (box / "memory.usage_in_bytes").write_text("2500000\n")
    assert available_bytes(tmp_path) == 0
    assert available_bytes(tmp_path / "nothing") is None

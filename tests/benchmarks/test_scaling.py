"""Scaling over devices: the arithmetic, and real ranks of torch.distributed on this CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from shipped_run import DRIVER, ROOT, RunMethod

from benchmarks._support.datasets.loading import DataError, Shard
from benchmarks._support.scaling import Level, figures, levels_up_to, suspicions

SCALING = "benchmarks.torch.scaling.Scaling"
MODEL = {"model": "sensor_net", "batch_size": 4}  # a small one of DLBS


def level(devices: int, examples: int, *rounds: tuple[tuple[float, ...], ...]) -> Level:
    return Level(devices=devices, examples_per_step=examples, rounds=rounds)


def test_the_slowest_rank_decides_each_step() -> None:
    alone = level(1, 8, ((1.0, 1.0, 1.0),))
    both = level(2, 16, ((1.0, 3.0, 1.0), (2.0, 1.0, 2.0)))
    found = figures([alone, both], lockstep=True)[1]
    assert (found.step_min_s, found.step_median_s, found.step_max_s) == (2.0, 2.0, 3.0)
    assert found.examples_per_second == 8.0
    assert found.examples_per_second_per_device == 4.0
    assert found.scaling_efficiency == 0.5
    assert found.slowest_rank == 1  # last in two of three steps
    assert found.rank_medians_s == (1.0, 2.0)


def test_ranks_that_do_not_wait_for_each_other_are_judged_by_their_medians() -> None:
    alone = level(1, 8, ((1.0, 1.0, 1.0),))
    both = level(2, 16, ((1.0, 3.0, 1.0), (2.0, 1.0, 1.25)))
    found = figures([alone, both], lockstep=False)[1]
    assert found.step_median_s == 1.25
    assert found.slowest_rank == 1
    assert found.scaling_efficiency == 0.8


def test_rates_of_ranks_that_work_for_themselves_add_up() -> None:
    alone = level(1, 8, ((1.0, 1.0, 1.0),))
    both = level(2, 16, ((1.0, 3.0, 1.0), (2.0, 1.0, 2.0)))
    found = figures([alone, both], lockstep=False, summed=True)[1]
    assert found.examples_per_second == 8 / 1.0 + 8 / 2.0
    assert found.step_s == 16 / 12.0
    assert (found.slowest_rank, found.steps_s) == (1, (2.0, 1.0, 2.0))
    assert found.rank_means_s == (5 / 3, 5 / 3)
    # Batches come in bursts: their rate is that of all of them, not of the one in the middle.
    loaded = figures([alone, both], lockstep=False, summed=True, from_disk=True)[1]
    assert loaded.examples_per_second == pytest.approx(8 * 3 / 5 + 8 * 3 / 5)
    together = figures([alone, both], lockstep=True, from_disk=True)[1]
    assert together.examples_per_second == pytest.approx(16 * 3 / 7)


class Numbered:
    """A data set whose images are their own numbers."""

    backend, folder, classes = "image_folder", Path("/numbers"), ()

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def image(self, number: int) -> tuple[int, int]:
        assert number in range(self._size)
        return number, 0


def test_each_device_has_images_of_its_own_and_none_is_left_out() -> None:
    shards = [Shard(Numbered(8), rank, 3) for rank in range(3)]
    seen = [[one.image(number)[0] for number in range(len(one))] for one in shards]
    assert seen == [[0, 3, 6], [1, 4, 7], [2, 5]]
    with pytest.raises(DataError, match=r"^/numbers: 2 images cannot be shared by 3 devices$"):
        Shard(Numbered(2), 0, 3)


def test_each_round_is_held_against_the_same_round_of_one_device() -> None:
    # The machine was half as fast in the second round; what the devices did was the same.
    alone = level(1, 8, ((1.0, 1.0),), ((2.0, 2.0),))
    both = level(2, 16, ((1.25, 1.25), (1.25, 1.25)), ((2.5, 2.5), (2.5, 2.5)))
    assert figures([alone, both], lockstep=True)[1].efficiency_by_round == (0.8, 0.8)


def test_efficiency_above_one_is_reported_whole_and_flagged() -> None:
    alone = level(1, 8, ((1.0,),))
    found = figures([alone, level(2, 16, ((0.5,), (0.5,)))], lockstep=True)
    assert found[1].scaling_efficiency == 2.0
    (said,) = suspicions(found)
    assert said.startswith("efficiency 2 with 2 devices: more than 1.05")


def test_more_devices_that_do_less_are_flagged() -> None:
    alone = level(1, 8, ((1.0,),))
    found = figures([alone, level(2, 16, ((3.0,), (3.0,)))], lockstep=True)
    assert suspicions(found) == ["2 devices do 5.333 examples/s, 1 did 8"]
    fine = figures([alone, level(2, 16, ((1.1,), (1.1,)))], lockstep=True)
    assert suspicions(fine) == []


def test_the_levels_are_few_and_the_work_can_be_split() -> None:
    assert levels_up_to(3, divisors=False) == [1, 2, 3]
    assert levels_up_to(12, divisors=False) == [1, 2, 3, 4, 8, 12]
    assert levels_up_to(12, divisors=True) == [1, 2, 3, 4, 6, 12]


@pytest.mark.torch
def test_two_processes_train_together_and_their_times_are_on_disk(
    run_method: RunMethod, torch_python: str, tmp_path: Path
) -> None:
    run = run_method(f"{SCALING}.weak", python=torch_python, iterations=9, device="cpu", **MODEL)
    metrics, extras = run.metrics, run.extras
    assert metrics["devices"] == 2
    assert extras["scaling"] == "weak"
    assert extras["global_batch_size"] == 8
    assert metrics["examples_per_second"] == pytest.approx(8 / run.entry["wall_time"])
    assert metrics["examples_per_second_per_device"] * 2 == metrics["examples_per_second"]
    assert metrics["slowest_rank"] in (0, 1)
    assert run.entry["iters"] == 9

    folder = tmp_path / "output/scaling_weak"
    table = json.loads((folder / "scaling.json").read_text())
    alone, both = table["levels"]
    rate = both["examples_per_second_per_device"] / alone["examples_per_second"]
    assert metrics["scaling_efficiency"] == pytest.approx(rate)
    files = [folder / f"rank_{rank}.jsonl" for rank in (0, 1)]
    lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    ranks = [[line for line in own if "step_ns" in line] for own in lines]
    assert [line["devices"] for line in ranks[0]] == [1, 2, 1, 2, 1, 2]
    assert [line["devices"] for line in ranks[1]] == [2, 2, 2]
    # They have trained one model: what they saw was different, and their weights are the same.
    weights = [
        {line["devices"]: line["weights"] for line in own if "weights" in line} for own in lines
    ]
    assert list(weights[0]) == [1, 2]
    assert weights[0][2] == weights[1][2] != weights[0][1]
    threads = {line["threads"] for rank in ranks for line in rank}
    assert threads == {max(1, len(os.sched_getaffinity(0)) // 2)} == {extras["threads_per_rank"]}
    slowest = [
        max(pair) for pair in zip(ranks[0][1]["step_ns"], ranks[1][0]["step_ns"], strict=True)
    ]
    assert both["step_min_s"] <= min(slowest) / 1e9 <= both["step_max_s"]


@pytest.mark.torch
def test_ranks_skip_no_timed_step_in_float16(
    run_method: RunMethod, torch_python: str, tmp_path: Path
) -> None:
    half = {**MODEL, "dtype": "float16", "weight_decay": 0.0001, "device": "cpu"}
    run = run_method(f"{SCALING}.weak", python=torch_python, iterations=4, **half)
    assert run.extras["skipped_steps"] == 0
    assert run.extras["skipped_steps_before"] >= 0
    assert run.entry["iters"] == 4
    lines = (tmp_path / "output/scaling_weak/rank_1.jsonl").read_text().splitlines()
    rounds = [line for line in map(json.loads, lines) if "step_ns" in line]
    assert [len(line["step_ns"]) for line in rounds] == [2, 1, 1]


@pytest.mark.torch
@pytest.mark.root
def test_a_container_without_network_or_name_will_do(tmp_path: Path, torch_python: str) -> None:
    keywords = {**MODEL, "iterations": 3, "warmup": 1, "device": "cpu"}
    alone = ["unshare", "--net", "--uts", "sh", "-c"]
    alone += ['ip link set lo up && hostname no-such-name.invalid && exec "$@"', "sh"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("namespaces cannot be made here")
    names = [*SCALING.rsplit(".", 1), "strong", str(tmp_path), json.dumps(keywords)]
    done = subprocess.run(
        [*alone, torch_python, "-c", DRIVER, *names],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    table = json.loads((tmp_path / "scaling_strong/scaling.json").read_text())
    assert [found["examples_per_step"] for found in table["levels"]] == [8, 8]


def rank_pids(folder: Path) -> list[int]:
    """Wait until both ranks have written; return their processes."""
    files = [folder / f"rank_{rank}.jsonl" for rank in (0, 1)]
    deadline = time.monotonic() + 300
    while not all(file.exists() and file.stat().st_size for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [json.loads(file.read_text().splitlines()[0])["pid"] for file in files]


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # one that nobody has waited for does nothing any more


@pytest.mark.torch
def test_a_rank_that_is_killed_is_named_and_the_others_end(
    tmp_path: Path, torch_python: str
) -> None:
    keywords = {**MODEL, "iterations": 3_000_000, "device": "cpu"}
    names = [*SCALING.rsplit(".", 1), "weak", str(tmp_path), json.dumps(keywords)]
    process = subprocess.Popen(
        [torch_python, "-c", DRIVER, *names],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    pids = rank_pids(tmp_path / "scaling_weak")
    os.kill(pids[1], signal.SIGKILL)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 1
    last = stderr.strip().splitlines()[-1]
    error = "benchmarks.torch._support.ranks.RankError"
    assert last.startswith(f"{error}: rank 1 was killed by SIGKILL"), stderr
    assert_gone(pids)


# Ranks that do as they are told, without PyTorch.
OWN_RANKS = """
import json, os, sys, time
from pathlib import Path

def main(order):
    rank = os.environ["RANK"]
    Path(order["folder"], f"rank_{rank}.jsonl").write_text(json.dumps({"pid": os.getpid()}) + "\\n")
    time.sleep(600)
"""
# The clock of the silence stands still until all have written, for an import may take long, and
# goes a hundred times as fast from then on.
LAUNCH = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from benchmarks.torch._support import ranks

def monotonic():
    files = [Path(sys.argv[1], f"rank_{rank}.jsonl") for rank in (0, 1)]
    written = all(file.exists() and file.stat().st_size for file in files)
    return 100 * time.monotonic() if written else 0.0

ranks.time = SimpleNamespace(monotonic=monotonic, sleep=time.sleep)
order = {"module": "own_ranks", "function": "main", "threads_per_rank": 1}
ranks.run(order, folder=Path(sys.argv[1]), ranks=2, silence_s=float(sys.argv[2]))
"""


def launch_own_ranks(folder: Path, python: str, silence_s: float) -> subprocess.Popen[str]:
    (folder / "own_ranks.py").write_text(OWN_RANKS)
    return subprocess.Popen(
        [python, "-c", LAUNCH, str(folder), str(silence_s)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"},
    )


@pytest.mark.torch
def test_ranks_that_hang_are_ended_and_that_is_said(tmp_path: Path, torch_python: str) -> None:
    process = launch_own_ranks(tmp_path, torch_python, silence_s=20)
    pids = rank_pids(tmp_path)
    _, stderr = process.communicate(timeout=300)
    assert "RankError: no rank has got on for 20 s" in stderr.strip().splitlines()[-1]
    assert_gone(pids)


@pytest.mark.torch
def test_ranks_end_with_the_benchmark_that_started_them(tmp_path: Path, torch_python: str) -> None:
    process = launch_own_ranks(tmp_path, torch_python, silence_s=600)
    pids = rank_pids(tmp_path)
    process.kill()
    process.communicate(timeout=300)
    assert_gone(pids)


READ = """
import json, sys
from pathlib import Path
from benchmarks.torch.scaling import read_levels
folder = Path(sys.argv[1])
for rank in (0, 1):
    lines = [{"round": 0, "devices": 2, "step_ns": [1]}, {"devices": 2, "weights": str(rank)}]
    (folder / f"rank_{rank}.jsonl").write_text("\\n".join(map(json.dumps, lines)))
order = {"levels": [2], "rounds": 1, "batch_sizes": {2: 8}, "communication": False}
assert read_levels(folder, order)[0].examples_per_step == 16
try:
    read_levels(folder, {**order, "communication": True})
except RuntimeError as error:
    print(error)
"""
REFUSED = [
    ({"num_gpus": 1}, "scaling needs 2 devices or more, and num_gpus is 1"),
    ({"dist_backend": "nccl"}, "dist_backend is 'nccl', and that is for CUDA, not cpu"),
    ({"model": "resnet51"}, "there is no model resnet51 for PyTorch; did you mean resnet"),
    ({"num_gpu": 2}, "there is no knob num_gpu; did you mean num_gpus?"),
]
TRY_ALL = """
import json, sys
from benchmarks.torch.scaling import Scaling
for keywords in json.loads(sys.argv[1]):
    try:
        Scaling(output_dir=sys.argv[2], device="cpu", **keywords).weak()
    except ValueError as error:
        print(error)
"""


@pytest.mark.torch
def test_what_cannot_be_had_is_said_in_one_line(tmp_path: Path, torch_python: str) -> None:
    keywords = json.dumps([given for given, _ in REFUSED])
    done = subprocess.run(
        [torch_python, "-c", TRY_ALL, keywords, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(REFUSED), done.stderr
    for line, (_, said) in zip(lines, REFUSED, strict=True):
        assert line.startswith(said)
    assert not list(tmp_path.iterdir())  # refused before anything was made


@pytest.mark.torch
def test_ranks_that_trained_two_models_are_no_result(tmp_path: Path, torch_python: str) -> None:
    done = subprocess.run(
        [torch_python, "-c", READ, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    expected = "the 2 ranks trained 2 models, not one: their weights differ\n"
    assert done.stdout == expected, done.stderr

"""`python3 -m perfrun.dlbs`: real models by DLBS' flags, read back by DLBS' rule."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from image_sets import make

ROOT = Path(__file__).resolve().parents[2]
LOG_LINE = re.compile(r"[ \t]*__(?P<key>.+?)__[ \t]*=(?P<value>.+)")

pytestmark = pytest.mark.torch


def run(folder: Path, python: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfrun.dlbs", f"--python={python}", "--quiet"]
    return subprocess.run(
        [*command, f"--workspace={folder}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def read(text: str) -> dict[str, Any]:
    found = filter(None, map(LOG_LINE.match, text.splitlines()))
    return {match["key"]: json.loads(match["value"]) for match in found}


def test_a_net_of_dlbs_is_trained_by_its_flags(tmp_path: Path, torch_python: str) -> None:
    words = "--model deep_mnist --forward_only false --batch_size 2 --num_batches 4"
    more = "--num_warmup_batches 1 --device cpu --dtype float --cudnn_benchmark --num_gpus 1"
    done = run(tmp_path, torch_python, *words.split(), *more.split())
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(done.stdout)
    assert (found["exp.model_title"], found["exp.phase"]) == ("DeepMNIST", "training")
    times_ms = found["results.time_data"]
    assert len(times_ms) == 4
    assert found["results.time"] == pytest.approx(sum(times_ms) / 4)
    assert found["results.throughput"] == pytest.approx(1e3 * 2 / found["results.time"])
    [summary] = tmp_path.glob("output/*/perfzero_summary.json")
    document = json.loads(summary.read_bytes())
    metrics = {one["name"]: one["value"] for one in document["benchmark_result"]["metrics"]}
    assert metrics["parameters"] == 11_972_510
    # The median is the summary's figure, the mean DLBS' own; both of the same times.
    middle = sorted(times_ms)[1:3]
    assert middle[0] <= 1e3 * document["benchmark_result"]["wall_time"] <= middle[1]


def test_a_failure_is_said_in_the_log_and_by_the_exit_status(
    tmp_path: Path, torch_python: str
) -> None:
    done = run(tmp_path, torch_python, "--model=resnet49", "--batch_size=1", "--num_batches=1")
    assert done.returncode == 1
    found = read(done.stdout)
    assert found["results.status"] == "failure"
    assert "resnet49" in found["exp.status_msg"]
    assert "results.throughput" not in found


def test_two_devices_infer_images_of_their_own(tmp_path: Path, torch_python: str) -> None:
    images = tmp_path / "images"
    made = make(torch_python, images, "--images=9", "--classes=2", "--size=32")
    assert made.returncode == 0, made.stderr
    words = f"--model=resnet18 --forward_only --batch_size=2 --num_gpus=2 --data_dir={images}"
    more = "--num_batches=7 --data_backend=image_folder --num_loader_threads=1"
    given = [*words.split(" "), *more.split(), "--", "--input_shape=3x32x32"]
    done = run(tmp_path, torch_python, *given)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(done.stdout)
    assert (found["exp.phase"], found["exp.effective_batch"]) == ("inference", 4)
    assert len(found["results.time_data"]) == 7
    [folder] = tmp_path.glob("output/*/scaling_weak")
    ranks = [
        [json.loads(line) for line in (folder / f"rank_{rank}.jsonl").read_text().splitlines()]
        for rank in (0, 1)
    ]
    # A rank's rounds at two devices: its steps, and its part of the nine images.
    both = [[line for line in own if line.get("devices") == 2] for own in ranks]
    assert [{line["images"] for line in own} for own in both] == [{5}, {4}]
    steps_ms = [[step / 1e6 for line in own for step in line["step_ns"]] for own in both]
    assert found["results.time_data"] in [pytest.approx(own) for own in steps_ms]
    rates = [2 * 1e3 / (sum(own) / 7) for own in steps_ms]
    assert found["results.throughput"] == pytest.approx(sum(rates))
    assert len(found["results.use.time"]) == len(found["results.use.mem_res"]) > 1
    assert max(found["results.use.mem_res"]) > 100_000, "KiB of a process with PyTorch"

"""tf.distribute over processes of this machine: real ranks, real collectives."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest
from shipped_run import RunMethod

SCALING = "benchmarks.tensorflow.scaling.Scaling"


def assert_gone(folder: Path) -> None:
    """Wait until the kernel has ended the processes, which it does once they get a processor."""
    deadline = time.monotonic() + 60
    while processes_of(folder):
        assert time.monotonic() < deadline, processes_of(folder)
        time.sleep(0.05)


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/scaling_" in line:
            found.append(line)
    return found


@pytest.mark.tensorflow
def test_two_processes_share_a_batch_and_the_slowest_decides(
    run_method: RunMethod, tensorflow_python: str, tmp_path: Path
) -> None:
    run = run_method(
        f"{SCALING}.strong",
        python=tensorflow_python,
        model="sensor_net",
        batch_size=4,
        iterations=6,
        warmup=1,
    )
    (path,) = tmp_path.glob("output/scaling_strong/scaling.json")
    levels = json.loads(path.read_text())["levels"]
    assert [level["devices"] for level in levels] == [1, 2]
    assert [level["examples_per_step"] for level in levels] == [8, 8]
    metrics, one, two = run.metrics, *levels
    assert metrics["devices"] == 2
    assert metrics["examples_per_second"] == pytest.approx(two["examples_per_second"])
    per_device = two["examples_per_second"] / 2
    assert metrics["examples_per_second_per_device"] == pytest.approx(per_device)
    assert metrics["scaling_efficiency"] == pytest.approx(per_device / one["examples_per_second"])
    assert metrics["slowest_rank"] in (0, 1)
    assert run.entry["wall_time"] == pytest.approx(two["step_median_s"])
    # A step is over when its last rank is: no rank's median lies above that of the slowest ones.
    assert max(two["rank_medians_s"]) <= two["step_max_s"]
    assert run.extras["scaling"] == "strong"
    assert run.extras["batch_size"] == 4
    assert run.extras["global_batch_size"] == 8
    slower = any(b["examples_per_second"] < a["examples_per_second"] for a, b in pairwise(levels))
    assert (run.extras["scaling_suspicious"] != "no") >= slower
    ready = [
        json.loads((path.parent / "devices_2" / f"rank_{rank}.jsonl").read_text().splitlines()[0])
        for rank in (0, 1)
    ]
    # The gradients went around, and both ranks have the same weights after them.
    assert all(facts["ready"]["collectives"] >= 1 for facts in ready)
    assert ready[0]["ready"]["weights"] == ready[1]["ready"]["weights"]
    assert_gone(tmp_path / "output")


@pytest.mark.tensorflow
def test_a_rank_that_fails_is_named_and_nothing_is_left_running(
    run_method: RunMethod, tensorflow_python: str, tmp_path: Path
) -> None:
    run = run_method(
        f"{SCALING}.weak",
        python=tensorflow_python,
        fails=True,
        model="bert_base",
        input_shape="600",
        iterations=3,
    )
    last = run.stderr.strip().splitlines()[-1]
    assert "RankError: rank 0 of 1: exit status 1: perfrun.SetupError: " in last
    assert "600 tokens are given; this model takes 512" in last
    assert str(tmp_path) in last
    assert_gone(tmp_path / "output")

"""A trial's peak memory beside that of the same steps in a loop written by hand.

Counting the arithmetic and measuring the device's peak were a part of it once: 40 %.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from not_in_a_trial import NOT_IN_A_TRIAL
from shipped_run import ROOT
from worlds import World

# perfrun's and the benchmark's own Python code takes 5 MiB; the rest differs from run to run.
OWN_BYTES = 10 * 2**20
SHARE = 1.02
MODEL = ("--model=deep_mnist", "--phase=training")
BATCH, WARMUP, STEPS = 8, 1, 4
CLASSES = {
    "torch": """
import json
from benchmarks.torch.model import Model
""",
    "tensorflow": """
import json
from benchmarks.tensorflow.model import Model
""",
}
NET = """
class Net(Model, model="deep_mnist"):
    def training(self):
        super().training()
        with open({path!r}, "w") as file:
            json.dump(sorted(sys.modules), file)
"""
# glibc's arenas and its moving threshold for mmap differ by as much between two runs of one loop.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    ],
)
def test_peak_memory_is_that_of_a_loop_written_by_hand(
    framework: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    python = str(request.getfixturevalue(f"{framework}_python"))
    loop = ROOT / "overhead" / "loops" / f"{framework}_loop.py"
    steps = (f"--batch_size={BATCH}", f"--warmup={WARMUP}")
    by_hand = subprocess.run(
        [python, loop, *MODEL, *steps, f"--steps={STEPS}", "--threads=1"],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )
    assert by_hand.returncode == 0, by_hand.stderr
    expected = json.loads(by_hand.stdout.splitlines()[-1])["peak_rss_bytes"]

    world = World(tmp_path)
    modules = tmp_path / "modules.json"
    world.write(CLASSES[framework] + NET.format(path=str(modules)))
    done = world.run(
        *(f"--python={python}", "--format=json", "--"),
        *(*steps, f"--iterations={STEPS}", "--intra_threads=1", "--inter_threads=1"),
        methods="pkg.cases.Net.training",
        **ENVIRONMENT,
    )
    assert done.statuses == ["passed"], done.stderr
    (summary,) = done.summaries()
    found = summary["perfrun"]["memory"]
    for name in ("process_rss", "method_rss", "tree_pss"):
        bytes_ = found[name]["bytes"]
        assert expected / SHARE - OWN_BYTES < bytes_ < expected * SHARE + OWN_BYTES, name
    assert not set(NOT_IN_A_TRIAL) & set(json.loads(modules.read_text()))
    # It was counted all the same.
    metrics = {metric["name"]: metric["value"] for metric in summary["benchmark_result"]["metrics"]}
    assert metrics["flops_per_example"] > 2 * 2 * 11_972_510
    assert metrics["model_flops_utilisation"] > 0

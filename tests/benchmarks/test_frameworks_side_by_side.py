"""`perfrun versus` with PyTorch and TensorFlow, on a model small enough for one round of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds import World, strict

PARAMETERS = 11_972_510  # of DeepMNIST: no batch normalisation, so both count the same


@pytest.mark.torch
@pytest.mark.tensorflow
def test_both_frameworks_run_the_same_model_into_one_table(
    tmp_path: Path, torch_python: str, tensorflow_python: str
) -> None:
    world = World(tmp_path)
    done = world.run_words(
        [
            *(world.python, world.entry, "versus", f"--workspace={world.workspace}"),
            *("--frameworks=torch,tensorflow", "--model=deep_mnist", "--batch_sizes=2"),
            *(f"--python=torch={torch_python}", f"--python=tensorflow={tensorflow_python}"),
            *("--rounds=1", "--price_per_hour=2", "--format=json"),
            *("--", "--iterations=3", "--warmup=1", "--intra_threads=1"),
        ]
    )
    assert done.code == 0, done.stderr
    found = strict(done.stdout)
    torch, tensorflow = found["cells"]
    assert (torch["label"], tensorflow["label"]) == ("torch", "tensorflow")
    for cell in (torch, tensorflow):
        figures = cell["figures"]
        assert cell["counts"]["parameters"] == PARAMETERS
        assert figures["throughput_per_s"]["median"] == pytest.approx(
            2 / figures["latency_s"]["median"], rel=1e-6
        )
        assert 0 < figures["framework_import_s"]["median"] < figures["cold_start_s"]["median"]
        # The weights alone are 48 MB.
        assert figures["peak_memory_bytes"]["median"] > 4 * PARAMETERS
        cost = 2 / 3600 / figures["throughput_per_s"]["median"] * 1e6
        assert cell["cost_per_million"]["median"] == pytest.approx(cost)
        assert cell["software"]["python"]
        assert cell["software"][cell["framework"]]
    flops = [cell["counts"]["flops_per_example"] for cell in (torch, tensorflow)]
    assert flops[0] == flops[1]  # one way of counting
    (ratio,) = [row for row in found["comparisons"] if row["figure"] == "latency_s"]
    assert ratio["ratio"] == pytest.approx(
        tensorflow["figures"]["latency_s"]["median"] / torch["figures"]["latency_s"]["median"]
    )
    assert (ratio["verdict"], ratio["pairs"]) == ("undecided", 1)

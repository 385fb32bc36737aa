"""Memory, parameters and FLOPs of shipped models are those of a loop written by hand.

`python -m overhead.beside_loops` does the same for every shipped model, with latencies in pairs;
docs/research/figures.md has its table. test_peak_memory.py has TensorFlow's memory. Latencies are
not asserted: this machine may be busy.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from overhead.beside_loops import MAPPED, Case, Pair, counted, measure

MEMORY = 0.02


def measured(framework: str, model: str, phase: str, python: str, folder: Path) -> Pair:
    # Choices of glibc make two runs of one loop differ: by 50 MiB through the threads' arenas, by
    # 20 MiB through the threshold of mmap, which moves with what was freed. Both are fixed here.
    case = Case(framework=framework, model=model, phase=phase, allocator=MAPPED)
    pair = measure(case, python, folder / "work space", cpu=None)
    assert pair.perfrun.parameters == pair.loop.parameters
    return pair


def assert_equal_memory(pair: Pair) -> None:
    assert pair.perfrun.peak_rss_bytes == pytest.approx(pair.loop.peak_rss_bytes, rel=MEMORY)


@pytest.mark.torch
def test_a_model_in_pytorch_has_the_memory_and_the_count_of_a_loop_by_hand(
    tmp_path: Path, torch_python: str
) -> None:
    assert_equal_memory(measured("torch", "sensor_net", "inference", torch_python, tmp_path))
    training = measured("torch", "resnet18", "training", torch_python, tmp_path)
    assert_equal_memory(training)
    assert training.perfrun.flops_per_example == counted("resnet18", "training", torch_python)

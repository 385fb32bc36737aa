"""Allocators of frameworks that are loaded: the real CPU builds, and the calls on a device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfrun.worker.frameworks import allocator_peaks

ROOT = Path(__file__).parents[3]
ASK = f"""
import json, sys
sys.path.insert(0, {str(ROOT)!r})
from perfrun.worker.frameworks import allocator_peaks
print(json.dumps(allocator_peaks()))
"""


def said(python: str, *before: str) -> Any:
    """What is said after each of these, in one process."""
    source = "".join(f"{one}\n{ASK}" for one in before)
    done = subprocess.run([python, "-c", source], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return [json.loads(line) for line in lines]


def test_nothing_is_imported_to_find_out() -> None:
    assert said(sys.executable, "") == [[]]


@pytest.mark.torch
def test_torch_without_a_device_says_so(torch_python: str) -> None:
    ((entry,),) = said(torch_python, "import torch; torch.ones(9).sum()")
    assert entry["framework"] == "torch"
    assert "no CUDA" in entry["reason"]


@pytest.mark.tensorflow
def test_tensorflow_is_not_started_by_asking(tensorflow_python: str) -> None:
    found = said(tensorflow_python, "import tensorflow as tf", "tf.constant(1) + 1")
    assert [entry["reason"] for (entry,) in found] == [
        "TensorFlow's runtime was not started",
        "TensorFlow used no device but the CPU",
    ]


class Cuda:
    """What torch.cuda answers where two of three devices were used."""

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 3

    def max_memory_reserved(self, index: int) -> int:
        return (200, 0, 400)[index]

    def max_memory_allocated(self, index: int) -> int:
        return (100, 0, 300)[index]


def test_torch_tells_each_device_that_it_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2", cuda=Cuda()))
    assert [
        (entry["device"], entry["peak_allocated_bytes"], entry["peak_reserved_bytes"])
        for entry in allocator_peaks()
    ] == [("cuda:0", 100, 200), ("cuda:2", 300, 400)]


def test_jax_tells_each_device_whose_allocator_keeps_a_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = SimpleNamespace(platform="gpu", id=1, memory_stats=lambda: {"peak_bytes_in_use": 70})
    cpu = SimpleNamespace(platform="cpu", id=0, memory_stats=lambda: None)
    jax = SimpleNamespace(__version__="0.6", local_devices=lambda: [cpu, gpu])
    bridge = SimpleNamespace(_backends={"gpu": 1})
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert allocator_peaks()[0]["reason"] == "JAX's runtime was not started"
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    (entry,) = allocator_peaks()
    assert entry == {
        "framework": "jax",
        "device": "gpu:1",
        "peak_allocated_bytes": 70,
        "peak_reserved_bytes": None,
    }


def test_a_framework_that_fails_costs_its_own_figure_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2", cuda=object()))
    (entry,) = allocator_peaks()
    assert entry["reason"].startswith("torch does not say: AttributeError")

"""`compile=torchscript`: the same model and the same training, as a graph without Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
# One process; what it prints last is read. Warnings are errors: TorchScript's are to be hidden.
PROGRAM = """
import json, sys, warnings
import torch
from benchmarks.torch._support import execution, torchscript, workload
from benchmarks.torch.catalogue import find
from benchmarks._support.knobs import Settings
from benchmarks._support.models.descent import Descent
from perfrun import SetupError

warnings.simplefilter("error", DeprecationWarning)
said = {}

def job(kind, training, name="resnet18", shape=(3, 32, 32), **knobs):
    how = execution.choose(Settings(compile=kind, seed=3, intra_threads=1, **knobs))
    network = workload.build(find(name), how, shape, training=training)
    torch.manual_seed(11)
    inputs = workload.example_inputs(network.spec, shape, 2)
    labels = workload.example_labels(network.spec, inputs)
    descent = Descent(learning_rate=0.01, weight_decay=0.0)
    step = workload.Training(network, how, descent) if training else workload.Forward(network, how)
    return network, step, inputs, labels

network, step, inputs, _ = job("torchscript", False)
plain, eager, _, _ = job("eager", False)
calls = []
network.module.register_forward_hook(lambda *_: calls.append(1))
outputs = [step(inputs) for _ in range(3)]
said["same_output"] = all(torch.allclose(o, eager(inputs), rtol=1e-3, atol=1e-4) for o in outputs)
said["calls_of_python"] = len(calls)
said["parameters"] = network.parameter_counts()[0]
kinds = str(network.called._traced.graph)
said["folded"] = ("aten::_convolution" in kinds, "aten::batch_norm" in kinds)

losses = {}
for kind in ("torchscript", "eager"):
    network, step, inputs, labels = job(kind, True)
    before = network.module.conv1.weight.detach().clone()
    losses[kind] = [float(step(inputs, labels)) for _ in range(3)]
    said["updated_" + kind] = not torch.equal(before, network.module.conv1.weight)
said["losses"] = losses

class Branching(torch.nn.Module):
    def forward(self, x):
        return {"text": "no tensor"} if float(x.sum()) > 0 else x

try:
    torchscript.TracedModel(Branching().eval())(torch.ones(2))
except SetupError as error:
    said["refused"] = str(error)
try:
    execution.choose(Settings(compile="torchscript", dtype="bfloat16"))
except SetupError as error:
    said["autocast"] = str(error)

print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(torch_python: str) -> dict[str, Any]:
    argv = [torch_python, "-c", PROGRAM]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_traced_model_gives_what_the_model_gives(said: dict[str, Any]) -> None:
    assert said["same_output"]
    assert said["calls_of_python"] == 1, (
        "traced in the first call, and Python has no part in others"
    )
    assert said["folded"] == [True, False], "frozen: no batch normalisation is left"
    assert said["parameters"] == 11_689_512


def test_a_traced_model_learns_what_the_model_learns(said: dict[str, Any]) -> None:
    assert (said["updated_torchscript"], said["updated_eager"]) == (True, True)
    assert said["losses"]["torchscript"] == pytest.approx(said["losses"]["eager"], rel=1e-3)


def test_what_cannot_be_traced_is_one_line(said: dict[str, Any]) -> None:
    assert "torch.jit.trace cannot trace this Branching: " in said["refused"]
    assert "\n" not in said["refused"]
    assert "autocast is not traced" in said["autocast"]

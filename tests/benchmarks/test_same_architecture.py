"""A plain name is the same architecture in both frameworks: equal weights and arithmetic."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from shipped_run import ROOT

SHAPES = {
    "mobilenet_v2": (3, 64, 64),
    "resnet18": (3, 64, 64),
    "alexnet": (3, 227, 227),
    "bert_base": (16,),
    "llama_small": (16,),
    "sensor_net": (784,),
}

IN_TENSORFLOW = """
import json, math, sys
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow._support import arithmetic, workload
from benchmarks.tensorflow._support.framework import tf

def described(name, shape):
    spec = catalogue.find(name)
    model = spec.build(tuple(shape))
    function = tf.function(workload.forward(model))
    inputs = (workload.example_inputs(spec, model, 1),)
    work = arithmetic.count(function, inputs, batch_size=1, passes="forward")
    return [spec.trainable_parameters, work.flops_per_example]

print(json.dumps({name: described(name, shape) for name, shape in json.loads(sys.argv[1]).items()}))
"""

IN_TORCH = """
import json, sys
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from benchmarks.torch import catalogue

def described(name, shape):
    spec = catalogue.find(name)
    model = spec.build(tuple(shape)).eval()
    tokens = spec.input_kind == "tokens"
    example = torch.zeros(1, *shape, dtype=torch.long) if tokens else torch.zeros(1, *shape)
    # As matrix products: attention in one kernel is counted by another formula.
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            model(example)
    weights = sum(weight.numel() for weight in model.parameters())
    return [weights, counter.get_total_flops()]

print(json.dumps({name: described(name, shape) for name, shape in json.loads(sys.argv[1]).items()}))
"""


def described(python: str, program: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", program, json.dumps(SHAPES)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.tensorflow
@pytest.mark.torch
def test_a_plain_name_is_the_same_architecture_in_both_frameworks(
    tensorflow_python: str, torch_python: str
) -> None:
    keras = described(tensorflow_python, IN_TENSORFLOW)
    torch = described(torch_python, IN_TORCH)
    for name in SHAPES:
        assert keras[name][0] == torch[name][0], name
        # Rotary angles are a product of matrices in transformers: a hundred-thousandth.
        assert keras[name][1] == pytest.approx(torch[name][1], rel=1e-4), name

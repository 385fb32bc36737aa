"""Training steps have a rate with which the loss of a shipped model stays a finite number."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any

import pytest
from shipped_run import ROOT

from benchmarks._support.knobs import Settings
from benchmarks._support.models import descent, figures
from benchmarks._support.models.spec import ModelSpec

# With the rate of the other models and these weights, the loss was NaN at the tenth step.
SCRIPT = """
import json
from benchmarks.torch.model import Model

job = Model(model="vgg11", input_shape="3x64x64").job(training=True, batch_size=2)
with job.scope():
    print(json.dumps([float(job.run()) for _ in range(20)]))
"""

BY_HEART = """
import json
from benchmarks.torch.model import Model

def loss(**rate):
    job = Model(model="sensor_net", intra_threads=1, **rate).job(training=True, batch_size=2)
    return [float(job.run()) for _ in range(150)][-1]

print(json.dumps([loss(), loss(learning_rate=0.01)]))
"""


def spec(name: str) -> ModelSpec:
    return ModelSpec(
        name=name,
        library="perfrun",
        input_kind="image",
        input_shape=(3, 8, 8),
        classes=10,
        build=lambda shape: None,
    )


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("vgg11", 0.0001),
        ("dlbs:vgg16", 0.0001),
        ("keras:VGG19", 0.0001),
        ("timm:vgg13.tv_in1k", 0.0001),
        ("torchvision:squeezenet1_0", 0.0001),
        ("sensor_net", 0.0001),
        ("torchvision:vgg11_bn", 0.01),
        ("resnet50", 0.01),
        ("alexnet", 0.01),
    ],
)
def test_networks_without_normalisation_have_a_smaller_rate(name: str, rate: float) -> None:
    assert spec(name).learning_rate == rate


def test_the_knobs_win_over_the_rate_of_the_model() -> None:
    takes = ("learning_rate", "weight_decay")

    def given(**knobs: Any) -> descent.Descent:
        return descent.of(spec("vgg11"), Settings(owner="Model", takes=takes, **knobs))

    assert given() == descent.Descent(learning_rate=0.0001, momentum=0.9, weight_decay=0.0)
    assert given(learning_rate=0.5, weight_decay=0.25) == descent.Descent(
        learning_rate=0.5, momentum=0.9, weight_decay=0.25
    )


def test_a_loss_that_is_no_number_names_the_knob_that_mends_it() -> None:
    with pytest.raises(RuntimeError, match=r"became nan.*a smaller `learning_rate`"):
        figures.final_loss(math.nan)


@pytest.mark.torch
def test_vgg_learns_two_images_in_pytorch(torch_python: str) -> None:
    done = subprocess.run(
        [torch_python, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout.splitlines()[-1])
    assert max(losses) < 10, losses
    assert losses[-1] < losses[0] - 0.25, losses


@pytest.mark.torch
def test_a_dense_net_does_not_know_its_batch_by_heart_in_a_trial(torch_python: str) -> None:
    done = subprocess.run(
        [torch_python, "-c", BY_HEART], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loss, loss_of_a_large_rate = json.loads(done.stdout)
    assert loss > 1
    # Of such a loss the gradients vanish: those of 8,192 classes are subnormal numbers at once.
    assert loss_of_a_large_rate == 0

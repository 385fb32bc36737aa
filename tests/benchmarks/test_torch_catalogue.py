"""Every name of the PyTorch catalogue is the published architecture, counted without weights."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from shipped_run import ROOT

pytestmark = pytest.mark.torch

# Published: torchvision's documentation of its weights; for timm its table of results; for the
# transformers their authors' checkpoints; for DLBS its list of models.
PUBLISHED = {
    **{
        f"efficientnet_b{number}": count
        for number, count in enumerate(
            (5288548, 7794184, 9109994, 12233232, 19341616, 30389784, 43040704, 66347960)
        )
    },
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "torchvision:alexnet": 61_100_840,
    "googlenet": 6_624_904,
    "torchvision:inception_v3": 27_161_264,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
    "mobilenet_v3_large": 5_483_032,
    "densenet121": 7_978_856,
    "densenet169": 14_149_480,
    "densenet201": 20_013_928,
    "vit_b_16": 86_567_656,
    "vit_b_32": 88_224_232,
    "vit_l_16": 304_326_632,
    "timm:efficientnet_b0": 5_288_548,
    "timm:resnet50": 25_557_032,
    "timm:vit_base_patch16_224": 86_567_656,
    "bert_base": 109_482_240,
    "transformers:bert-large": 335_141_888,
    "distilbert": 66_362_880,
    "roberta_base": 124_645_632,
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "transformers:vit-base": 86_389_248,
    # DLBS.
    "deep_mnist": 11_972_510,
    "acoustic_model": 34_678_784,
    "sensor_net": 2_919_440,
    "alexnet": 62_378_344,
    "alexnet_owt": 61_100_840,
    "overfeat": 145_920_872,
    "dlbs:googlenet": 6_998_552,
    "dlbs:resnet50": 25_557_032,
    "dlbs:resnet101": 44_549_160,
    "dlbs:resnet152": 60_192_808,
    "dlbs:resnet200": 64_673_832,
    "dlbs:resnet269": 102_073_384,
    "dlbs:vgg16": 138_357_544,
}
# Ours: what nobody publishes must not change unseen.
OWN = {
    "inception_v3": 23_834_568,
    "dlbs:inception3": 23_834_568,
    "dlbs:inception4": 42_679_816,
    "llama_small": 58_073_600,
    "transformers:albert": 222_595_584,  # a type without a configuration of ours
    "timm:resnet50.a1_in1k": 25_557_032,
    "resnest50d": 27_483_240,  # plain, and only timm has it
}
# Multiply-adds of one picture, in thousands of millions: torchvision's documentation. The paper of
# EfficientNet has 0.39 for B0.
MULTIPLY_ADDS = {"resnet50": 4.089, "efficientnet_b0": 0.386, "vgg16": 15.470, "vit_b_16": 17.564}
WRONG = {
    "resnet51": "there is no model resnet51 for PyTorch; did you mean resnet50",
    "timm:resnet51": "there is no model timm:resnet51 for PyTorch; did you mean timm:resnet5",
    "transformers:bert-bass": "there is no model transformers:bert-bass for PyTorch; did you mean "
    "transformers:bert-base",
    "transformers:t5": "there is no model transformers:t5 for PyTorch; did you mean",
    "hub:bert": "model is 'hub:bert': PyTorch's models are in torchvision, timm, transformers",
}
PROGRAM = """
import json, sys, types
import torch
from benchmarks.torch import catalogue
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from benchmarks.torch._support import arithmetic
from benchmarks.torch._support.workload import Network, example_inputs, example_labels, loss_of

def both_counts(network, training):
    # Ours of one example, and that of the counter of PyTorch in the same pass.
    spec, module = network.spec, network.module.train(training)
    inputs = example_inputs(spec, network.shape, 2, device="meta")
    plain, counter = sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False)
    with torch.set_grad_enabled(training), plain, counter:
        output = module(inputs)
        if training:
            loss_of(spec, output, example_labels(spec, inputs)).backward()
    ours = arithmetic.count(network, training=training).flops_per_example
    return [ours, counter.get_total_flops() / 2]

names, counted, wrong = json.loads(sys.argv[1])
found = {"parameters": {}, "declared": {}, "flops": {}, "said": {}, "both": {}}
for name in names:
    spec = catalogue.find(name)
    with torch.device("meta"):
        module = spec.build(spec.input_shape)
    found["parameters"][name] = sum(each.numel() for each in module.parameters())
    found["declared"][name] = spec.parameters
    if name in counted:
        network = Network(
            spec=spec, module=module.eval(), called=module, shape=spec.input_shape, build_s=0.0
        )
        found["flops"][name] = arithmetic.count(network, training=False).flops_per_example
        found["both"][name] = [both_counts(network, training) for training in (False, True)]
spec = catalogue.find("llama_small")
module = spec.build((16,)).eval()
network = Network(spec=spec, module=module, called=module, shape=(16,), build_s=0.0)
found["tokens"] = arithmetic.count(network, training=False).flops_per_example
for name in wrong:
    try:
        catalogue.find(name)
    except ValueError as error:
        found["said"][name] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(torch_python: str) -> Any:
    names = json.dumps([list(PUBLISHED | OWN), list(MULTIPLY_ADDS), list(WRONG)])
    done = subprocess.run(
        [torch_python, "-c", PROGRAM, names],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_parameter_counts_are_the_published_ones(found: Any) -> None:
    assert found["parameters"] == PUBLISHED | OWN


def test_the_catalogue_knows_the_counts_that_are_published(found: Any) -> None:
    # So that a run is out of its bounds when a library changes a model.
    assert {name: found["declared"][name] for name in PUBLISHED} == PUBLISHED


def test_flops_are_those_of_the_published_multiply_adds(found: Any) -> None:
    counted = {name: flops / 2e9 for name, flops in found["flops"].items()}
    assert counted == {name: pytest.approx(adds, rel=0.02) for name, adds in MULTIPLY_ADDS.items()}


def test_flops_are_those_of_pytorchs_counter_where_it_is_right(found: Any) -> None:
    for name, (inference, training) in found["both"].items():
        assert inference[0] == inference[1], name
        if name == "efficientnet_b0":  # the gradients of its grouped convolutions
            assert 2.9 * inference[0] < training[0] < training[1] / 10
        else:
            assert training[0] == training[1], name


def test_attention_is_counted_although_the_cpu_has_a_fused_kernel_for_it(found: Any) -> None:
    tokens, layers, width, vocabulary = 16, 8, 512, 32_000
    weights = 58_073_600 - vocabulary * width - (2 * layers + 1) * width  # no embedding, no norms
    attention = layers * 2 * tokens**2 * width  # multiply-adds: scores, and the values they weigh
    assert found["tokens"] == 2 * (tokens * weights + attention)


def test_an_unknown_name_is_one_line_with_the_nearest_ones(found: Any) -> None:
    assert set(found["said"]) == set(WRONG)
    for name, line in WRONG.items():
        assert found["said"][name].startswith(line)
        assert "\n" not in found["said"][name]


def test_a_missing_library_is_named_with_the_way_to_install_it(torch_python: str) -> None:
    code = (
        "import importlib.util as util\n"
        "util.find_spec, there = (lambda name, *a: None if name == 'timm' else there(name, *a)), "
        "util.find_spec\n"
        "from benchmarks.torch import catalogue\n"
        "catalogue.find('timm:resnet50')\n"
    )
    done = subprocess.run(
        [torch_python, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("perfrun.SetupError: these models need the package timm: pip install")

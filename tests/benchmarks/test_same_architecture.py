"""A plain name is the same architecture in every framework: weights, arithmetic, shapes.

`python -m overhead.same_architecture` does this for all names; here it is a sample that takes
seconds, one process for each framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from overhead.same_architecture import described, differences, far_from_published, table

# A framework joins by its name; the fixture `<name>_python` has its interpreter.
FRAMEWORKS = [
    pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    pytest.param("jax", marks=pytest.mark.jax),
]
FIRST = "torch"
SAMPLE = (
    *("resnet18=3x64x64", "mobilenet_v2=3x64x64", "convnext_tiny=3x32x32"),
    *("alexnet", "alexnet_owt", "sensor_net", "bert_base=16", "llama_small=16"),
)
NOT_IN = {"jax": ("convnext_tiny",)}
# The multiply-adds of the first layer: its input has no gradient.
FIRST_LAYERS = {
    "resnet18": 64 * 3 * 7 * 7 * 32 * 32,
    "convnext_tiny": 96 * 3 * 4 * 4 * 8 * 8,
    "alexnet_owt": 64 * 3 * 11 * 11 * 56 * 56,
    "sensor_net": 784 * 1024,
    "bert_base": 0,  # an embedding
}


@pytest.fixture(scope="module")
def in_torch(torch_python: str) -> Mapping[str, Any]:
    return described(FIRST, torch_python, SAMPLE)


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plain_name_is_the_same_architecture_in_every_framework(
    framework: str, in_torch: Mapping[str, Any], request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue(f"{framework}_python")
    absent = NOT_IN.get(framework, ())
    sample = tuple(name for name in SAMPLE if name.partition("=")[0] not in absent)
    there = {name: facts for name, facts in in_torch.items() if name not in absent}
    found = {FIRST: there, framework: described(framework, python, sample)}
    assert [*differences(found), *far_from_published(found)] == []
    for models in found.values():
        assert len(models) == len(sample)
        for model, first_layer in FIRST_LAYERS.items():
            if model in absent:
                continue
            inference, training = (models[model][f"{k}_flops"] for k in ("inference", "training"))
            assert training == 3 * inference - 2 * first_layer, model
        # Torchvision's documentation has 0.71 for 224 pixels; the paper's size is 227.
        assert models["alexnet_owt"]["inference_flops"] == 2 * 716_767_232
        assert models["alexnet_owt"]["output_shapes"] == [[1000]]


def facts(**more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "trainable_parameters": 10,
        "inference_flops": 2e9,
        "training_flops": 6e9,
        "input_shape": [3, 8, 8],
        "output_shapes": [[10]],
        "published_macs": None,
        **more,
    }


def test_a_difference_is_named_with_its_model_and_frameworks() -> None:
    found = {"torch": {"m": facts()}, "jax": {"m": facts(training_flops=7e9)}}
    assert list(differences(found)) == ["m: training_flops: torch 6000000000.0, jax 7000000000.0"]
    assert list(differences({"torch": {"m": facts()}, "jax": {}})) == []
    broken = {"torch": {"m": facts()}, "jax": {"m": {"model": "m", "error": "no such operator"}}}
    assert "m: jax: no such operator" in list(differences(broken))


def test_a_count_far_from_the_published_one_is_named() -> None:
    right, wrong = facts(published_macs=1.004e9), facts(published_macs=1.1e9)
    assert list(far_from_published({"torch": {"m": right}})) == []
    assert "1e+09 multiply-adds, not 1.1e+09" in next(far_from_published({"torch": {"m": wrong}}))


def test_the_table_has_what_is_known() -> None:
    rows = [*table({"torch": {"m": facts(published_macs=1e9)}, "jax": {}})]
    assert rows[0] == "| model | trainable parameters | published | torch | jax |"
    assert rows[2] == "| m | 10 | 1.000 | 1.0000 / 3.0000 |  |"

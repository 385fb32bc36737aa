"""Models of the TensorFlow side by name, their parameters as published."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from shipped_run import ROOT

# All read the output of one process that builds many models: 20 s alone, minutes when busy.
pytestmark = pytest.mark.timeout(900)

# One process for all: importing TensorFlow takes longer than most of these models.
BUILD = """
import json, math, sys
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow._support import arithmetic, workload
from benchmarks.tensorflow._support.framework import IMPORT_S, tf

def described(name):
    spec = catalogue.find(name)
    model = spec.build(spec.input_shape)
    output = model.outputs[-1]
    return {
        "library": spec.library,
        "published": [spec.parameters, spec.trainable_parameters],
        "parameters": model.count_params(),
        "trainable": sum(math.prod(weight.shape) for weight in model.trainable_variables),
        "input": list(model.input_shape),
        "output": list(output.shape),
        "output_type": output.dtype,
    }

def flops(name):
    spec = catalogue.find(name)
    model = spec.build(spec.input_shape)
    inputs = workload.example_inputs(spec, model, 2)
    function = tf.function(workload.forward(model))
    work = arithmetic.count(function, (inputs,), batch_size=2, training=False)
    return [work.flops_per_example, work.counted_by, work.why_unknown]

def looped(step):
    return lambda x: tf.matmul(tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, step(y)), (0, x))[1], x)

def chosen(otherwise):
    return lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(x, x), lambda: otherwise(x))

@tf.function
def inner(x):
    return tf.matmul(x, x), tf.matmul(x, x + 1)

def without_effect(x):
    tf.matmul(x, x)
    return inner(x)[1]  # of its two products one

SHAPES = {
    "loop": looped(lambda y: y + 1),
    "loop of products": looped(lambda y: tf.matmul(y, y)),
    "branches": chosen(lambda x: tf.matmul(x, -x)),
    "unequal branches": chosen(lambda x: -x),
    "without effect": without_effect,
    "einsum": lambda x: tf.einsum("ij,jk->ik", x, x),
    "transposed": lambda x: tf.matmul(x[:2], x, transpose_b=True),
    "nothing": lambda x: x + 1,
}

def of_shapes(function):
    matrix = tf.TensorSpec((4, 4))
    work = arithmetic.count(tf.function(function), (matrix,), batch_size=1, training=False)
    return [work.flops_per_example, work.why_unknown]

def refused(name):
    try:
        catalogue.find(name)
    except ValueError as error:
        return str(error)

wanted = json.loads(sys.argv[1])
counted = {name: flops(name) for name in json.loads(sys.argv[2])}
models = {name: described(name) for name in wanted}
tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
answer = {
    "flops": counted,
    "of_shapes": {name: of_shapes(function) for name, function in SHAPES.items()},
    "models": models,
    "half": described("keras:MobileNet"),
    "refused": {name: refused(name) for name in ("resnet51", "keras:Resnet50", "timm:resnet50")},
    "names": catalogue.names(),
    "constructors": [name for name in dir(tf.keras.applications) if name[0].isupper()],
    "import_s": IMPORT_S,
}
print(json.dumps(answer))
"""

# Parameters and, of these, trainable ones: torchvision's documentation, keras.io/api/applications,
# DLBS' list of models, and Hugging Face's BertModel, GPT2LMHeadModel, LlamaForCausalLM.
PUBLISHED = {
    "efficientnet_b0": (5_330_571, 5_288_548),
    "mobilenet_v2": (3_538_984, 3_504_872),
    "mobilenet_v3_large": (5_507_432, 5_483_032),
    "inception_v3": (23_851_784, 23_817_352),
    "densenet121": (8_062_504, 7_978_856),
    "resnet18": (11_699_112, 11_689_512),
    "resnet34": (21_814_696, 21_797_672),
    "resnet50": (25_610_152, 25_557_032),
    "keras:ResNet50": (25_636_712, 25_583_592),
    "keras:MobileNet": (4_253_864, 4_231_976),
    "vit_b_16": (86_567_656, 86_567_656),
    "bert_base": (109_482_240, 109_482_240),
    "gpt2": (124_439_808, 124_439_808),
    "llama_small": (58_073_600, 58_073_600),
    "deep_mnist": (11_972_510, 11_972_510),
    "acoustic_model": (34_678_784, 34_678_784),
    "sensor_net": (2_919_440, 2_919_440),
    "alexnet": (62_378_344, 62_378_344),
    "alexnet_owt": (61_100_840, 61_100_840),
    "overfeat": (145_920_872, 145_920_872),
}

# Published multiply-adds of one image: arXiv:1905.11946 (0.39 billion), Table 1 of arXiv:1512.03385
# (3.8 billion; its layers come to 3.86), and torchvision's documentation (4.09; of the transformer,
# whose products are einsums here, 17.56).
MULTIPLY_ADDS = {
    "efficientnet_b0": 0.39e9,
    "keras:ResNet50": 3.86e9,
    "resnet50": 4.09e9,
    "vit_b_16": 17.56e9,
}


@pytest.fixture(scope="module")
def built(tensorflow_python: str) -> Any:
    done = subprocess.run(
        [
            tensorflow_python,
            "-c",
            BUILD,
            json.dumps(list(PUBLISHED)),
            json.dumps(list(MULTIPLY_ADDS)),
        ],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tensorflow
def test_a_keras_model_has_the_published_parameters(built: Any) -> None:
    found = {
        name: (model["parameters"], model["trainable"]) for name, model in built["models"].items()
    }
    assert found == PUBLISHED
    assert {name: tuple(model["published"]) for name, model in built["models"].items()} == PUBLISHED


@pytest.mark.tensorflow
def test_a_keras_model_takes_its_own_input_and_gives_logits_in_float32(built: Any) -> None:
    models = built["models"]
    assert models["efficientnet_b0"]["input"] == [None, 224, 224, 3]
    assert models["inception_v3"]["input"] == [None, 299, 299, 3]
    assert models["overfeat"]["output"] == [None, 1000]
    assert models["acoustic_model"]["output"] == [None, 8192]
    assert models["gpt2"]["output"] == [None, 128, 50_257]
    assert built["half"]["output_type"] == "float32"  # under a policy of mixed_bfloat16
    assert models["resnet50"]["library"] == "perfrun"
    assert models["efficientnet_b0"]["library"] == "keras.applications"


@pytest.mark.tensorflow
def test_flops_are_twice_the_published_multiply_adds(built: Any) -> None:
    for name, published in MULTIPLY_ADDS.items():
        flops, counted_by, why_unknown = built["flops"][name]
        assert flops / 2 == pytest.approx(published, rel=0.02), name
        assert counted_by.endswith("2 per multiply-add, forward pass")
        assert not why_unknown


@pytest.mark.tensorflow
def test_functions_and_branches_are_followed_and_what_cannot_be_known_is_said(built: Any) -> None:
    found, product = built["of_shapes"], 2 * 4**3
    for name in ("loop", "branches", "without effect", "einsum"):
        assert found[name] == [product, ""], name
    assert found["transposed"] == [product / 2, ""]
    assert found["loop of products"][0] is None
    assert "a loop of products or convolutions" in found["loop of products"][1]
    assert found["unequal branches"][0] is None
    assert "the branches of a condition differ" in found["unequal branches"][1]
    assert "no convolution, matrix product or attention" in found["nothing"][1]


@pytest.mark.tensorflow
def test_every_application_of_keras_has_a_name(built: Any) -> None:
    assert {f"keras:{name}" for name in built["constructors"]} <= set(built["names"])
    assert built["import_s"] > 0


@pytest.mark.tensorflow
def test_an_unknown_keras_model_is_one_line_with_the_nearest_names(built: Any) -> None:
    refused = built["refused"]
    assert refused["resnet51"].startswith(
        "there is no model resnet51 for TensorFlow; did you mean resnet50"
    )
    assert "did you mean keras:ResNet50" in refused["keras:Resnet50"]
    assert "there is no model timm:resnet50 for TensorFlow" in refused["timm:resnet50"]
    assert not any("\n" in said for said in refused.values())

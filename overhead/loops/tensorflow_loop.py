"""Time the steps of a TensorFlow model in a loop written by hand; print JSON.

    python overhead/loops/tensorflow_loop.py --model=resnet50 --phase=training --batch_size=2

Models of keras.applications are built as Keras' documentation does. No library has the others in
Keras layers, so they come from this repository's nets; the steps and their clock are this file's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

APPLICATIONS = {
    **{f"efficientnet_b{number}": f"EfficientNetB{number}" for number in range(8)},
    "densenet121": "DenseNet121",
    "inception_v3": "InceptionV3",
    "vgg16": "VGG16",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3_large": "MobileNetV3Large",
    "vgg19": "VGG19",
}
SIDES = {
    **{
        f"efficientnet_b{number}": side
        for number, side in enumerate((224, 240, 260, 300, 380, 456, 528, 600))
    },
    "inception_v3": 299,
}
TEXTS = {"bert_base": 30_522, "gpt2": 50_257, "llama_small": 32_000}
UNNORMALISED = ("vgg", "deep_mnist", "acoustic_model", "sensor_net")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--phase", choices=("inference", "training"), default="inference")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", type=int, help="side of an image; none: the model's")
    options = parser.parse_args(argv)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    tf.keras.utils.set_random_seed(0)
    model = built(options.model, options.size)
    inputs = example(options.model, model, options.batch_size)
    training = options.phase == "training"
    step = trainer(options.model, model, inputs) if training else predictor(model, inputs)
    for _ in range(1 + options.warmup):
        finished(step())
    times_s = []
    for _ in range(options.steps):
        began = time.perf_counter()
        finished(step())
        times_s.append(time.perf_counter() - began)
    found = {
        "median_s": statistics.median(times_s),
        "fastest_s": min(times_s),
        "peak_rss_bytes": peak_rss_bytes(),
        "parameters": model.count_params(),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def built(name: str, size: int | None) -> Any:
    if name in APPLICATIONS:
        side = size or SIDES.get(name, 224)
        build = getattr(tf.keras.applications, APPLICATIONS[name])
        return build(weights=None, input_shape=(side, side, 3), classifier_activation=None)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from benchmarks.tensorflow._support.nets import feedforward, transformers

    if name.startswith("resnet"):
        return feedforward.resnet(int(name[len("resnet") :]), (224, 224, 3))
    sides = {"alexnet": 227, "alexnet_owt": 227, "overfeat": 231, "vit_b_16": 224}
    build = getattr(feedforward, name, None) or getattr(transformers, name)
    return build((sides[name], sides[name], 3)) if name in sides else build()


def example(name: str, model: Any, batch: int) -> Any:
    shape = (batch, *model.input_shape[1:])
    if name in TEXTS:
        return tf.random.uniform(shape, maxval=TEXTS[name], dtype=tf.int32)
    return tf.random.normal(shape)


def predictor(model: Any, inputs: Any) -> Any:
    forward = tf.function(lambda given: model(given, training=False))
    return lambda: forward(inputs)


def trainer(name: str, model: Any, inputs: Any) -> Any:
    labels = inputs
    if name not in TEXTS:
        labels = tf.random.uniform((inputs.shape[0],), maxval=10, dtype=tf.int32)
    # With 0.01, the loss of VGG would become NaN, and that of the dense nets 0: gradients and
    # momentum would be subnormal numbers, which are slow on a CPU.
    rate = 0.0001 if name.startswith(UNNORMALISED) else 0.01
    optimizer = tf.keras.optimizers.SGD(learning_rate=rate, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def train(given: Any, wanted: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(name, model(given, training=True), wanted)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return lambda: train(inputs, labels)


def loss_of(name: str, output: Any, labels: Any) -> Any:
    if name == "bert_base":
        return tf.add_n([tf.reduce_mean(tf.square(part)) for part in tf.nest.flatten(output)])
    if name in TEXTS:
        output, labels = output[:, :-1], labels[:, 1:]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=output)
    return tf.reduce_mean(losses)


def finished(result: Any) -> None:
    """Wait for a result: copying it to the host does."""
    for part in tf.nest.flatten(result):
        part.numpy()


def peak_rss_bytes() -> int:
    """Return the kernel's mark of this process's resident memory (VmHWM of proc(5))."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


if __name__ == "__main__":
    sys.exit(main())

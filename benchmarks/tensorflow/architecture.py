"""Describe Keras models without running them; a program of its own.

python -m benchmarks.tensorflow.architecture resnet18 mobilenet_v2=3x64x64
"""

from __future__ import annotations

import math
import sys

from benchmarks._support.models import architecture
from benchmarks._support.models.architecture import Architecture
from benchmarks._support.models.descent import Descent
from benchmarks._support.models.spec import Shape
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow._support import arithmetic, workload
from benchmarks.tensorflow._support.framework import tf


def describe(name: str, shape: Shape | None) -> Architecture:
    """Return a model's facts, from graphs of its steps that are traced and not run."""
    tf.keras.backend.clear_session()
    spec = catalogue.find(name)
    shape = spec.shape_for(shape)
    model = spec.build(shape)
    tokens = spec.input_kind == "tokens"
    inputs = tf.TensorSpec((1, *model.input_shape[1:]), tf.int32 if tokens else tf.float32)
    labels = tf.TensorSpec((1,), tf.int32) if spec.target == "class" else inputs
    inference = arithmetic.count(
        tf.function(workload.forward(model)), (inputs,), batch_size=1, training=False
    )
    given = Descent(learning_rate=spec.learning_rate)
    optimizer = workload.optimizer_of(model, given, half=False)
    training = arithmetic.count(
        tf.function(workload.training(model, spec, optimizer, half=False)),
        (inputs, labels),
        batch_size=1,
        training=True,
    )
    return Architecture(
        trainable_parameters=sum(math.prod(each.shape) for each in model.trainable_variables),
        **architecture.of_works(inference, training),
        input_shape=shape,
        output_shapes=tuple(tuple(output.shape[1:]) for output in model.outputs),
    )


if __name__ == "__main__":
    sys.exit(architecture.print_each(describe, sys.argv[1:]))

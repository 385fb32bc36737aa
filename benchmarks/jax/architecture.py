"""Describe Flax models without running them; a program of its own.

python -m benchmarks.jax.architecture resnet18 mobilenet_v2=3x64x64
"""

from __future__ import annotations

import sys

from benchmarks._support.knobs import Settings
from benchmarks._support.models import architecture
from benchmarks._support.models.architecture import Architecture
from benchmarks._support.models.descent import Descent
from benchmarks._support.models.spec import Shape
from benchmarks.jax._support import arithmetic, placement, workload
from benchmarks.jax._support.framework import jax

_EXAMPLES = 2


def describe(name: str, shape: Shape | None) -> Architecture:
    """Return a model's facts; no step of it is compiled."""
    place = placement.choose(Settings())
    works = []
    for training in (False, True):
        network = workload.build(
            name, shape=shape, dtype="float32", seed=0, placement=place, training=training
        )
        spec = network.spec
        inputs = workload.example_inputs(spec, network.shape, _EXAMPLES, 0)
        labels = (workload.example_labels(spec, inputs, 0),) if training else ()
        given = Descent(learning_rate=spec.learning_rate)
        step = (
            workload.training(network, given, eager=False)
            if training
            else workload.forward(network, eager=False)
        )
        if not training:
            output = jax.eval_shape(step.function, step.state, inputs)
        works.append(
            arithmetic.count(
                *(step.function, step.state, (inputs, *labels)),
                batch_size=_EXAMPLES,
                training=training,
            )
        )
    return Architecture(
        trainable_parameters=network.parameter_counts()[1],
        **architecture.of_works(*works),
        input_shape=network.shape,
        output_shapes=tuple(tuple(part.shape[1:]) for part in jax.tree.leaves(output)),
    )


if __name__ == "__main__":
    sys.exit(architecture.print_each(describe, sys.argv[1:]))

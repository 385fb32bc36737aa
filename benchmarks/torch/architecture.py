"""Describe PyTorch models without running them; a program of its own.

python -m benchmarks.torch.architecture resnet18 mobilenet_v2=3x64x64
"""

from __future__ import annotations

import sys

from benchmarks._support.models import architecture
from benchmarks._support.models.architecture import Architecture
from benchmarks._support.models.spec import Shape
from benchmarks.torch import catalogue
from benchmarks.torch._support import arithmetic
from benchmarks.torch._support.framework import torch
from benchmarks.torch._support.libraries import torchvision
from benchmarks.torch._support.workload import Network


def describe(name: str, shape: Shape | None) -> Architecture:
    """Return a model's facts; its weights have shapes and, where it can be, no values."""
    spec = catalogue.find(name)
    shape = spec.shape_for(shape)
    try:
        with torch.device("meta"):
            module = spec.build(shape)
    except (RuntimeError, NotImplementedError):  # RegNet computes its widths with tensors
        module = spec.build(shape)
    module.eval()
    network = Network(spec=spec, module=module, called=module, shape=shape, build_s=0.0)
    inference = arithmetic.count(network, training=False)
    outputs = arithmetic.output_shapes(network)
    module.train()
    training = arithmetic.count(network, training=True)
    published = torchvision.published_macs(name) if spec.library == "torchvision" else None
    return Architecture(
        trainable_parameters=network.parameter_counts()[1],
        **architecture.of_works(inference, training),
        input_shape=shape,
        output_shapes=outputs,
        published_macs=published if shape == spec.input_shape else None,
    )


if __name__ == "__main__":
    sys.exit(architecture.print_each(describe, sys.argv[1:]))

"""Describe models as no machine changes them: parameters, arithmetic, and shapes.

Each framework has a program that prints this of the models that it is given, a line of JSON each:

    python -m benchmarks.torch._support.architecture resnet18 mobilenet_v2=3x64x64

Nothing is run, so it takes seconds and no memory to speak of. `overhead.same_architecture` holds
the frameworks against each other and against published figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks._support.knobs import KNOBS
from benchmarks._support.models.figures import Work
from benchmarks._support.models.spec import Shape
from perfrun import SetupError


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model's facts, of one example; None is unknown."""

    trainable_parameters: int
    inference_flops: float | None
    training_flops: float | None
    input_shape: Shape  # channels first
    output_shapes: tuple[Shape, ...]
    published_macs: float | None = None  # of one forward pass, by the library that has the model


def of_works(inference: Work, training: Work) -> dict[str, Any]:
    """Return the arithmetic of both passes; ValueError says why one is unknown."""
    for work in (inference, training):
        if work.flops_per_example is None:
            raise ValueError(work.why_unknown)
    return {
        "inference_flops": inference.flops_per_example,
        "training_flops": training.flops_per_example,
    }


Describe = Callable[[str, "Shape | None"], Architecture]


def print_each(describe: Describe, names: Sequence[str]) -> int:
    """Print each model, `name` or `name=shape`, as a line of JSON; 1 where one has an error."""
    failed = False
    for name in names:
        plain, _, shape = name.partition("=")
        try:
            wanted = KNOBS["input_shape"].parsed(shape) if shape else None
            said = {"model": plain, **asdict(describe(plain, wanted))}
        except (SetupError, ValueError) as error:
            failed = True
            said = {"model": plain, "error": str(error)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    return int(failed)

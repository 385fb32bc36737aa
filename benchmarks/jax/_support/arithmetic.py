"""Count the arithmetic of a step for JAX, and measure the peak of its device.

Counted are the convolutions and products in the step's jaxpr, a multiply-add being two, whatever
function of JAX they lie in. The gradient of a strided convolution is a convolution of values with
zeros between them; these zeros are not counted, so that each gradient costs what the forward pass
did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks._support.models import counting, peak
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.peak import Call, Convolution, Probe, Product
from benchmarks.jax._support import placement
from benchmarks.jax._support.framework import jax

jnp = jax.numpy


class _UnknownError(Exception):
    """A jaxpr whose arithmetic depends on values; the text says why."""


def count(
    function: Callable[..., Any],
    state: Any,
    arguments: tuple[Any, ...],
    *,
    batch_size: int,
    training: bool,
) -> Work:
    """Count the multiply-adds of one call; only shapes of the state and the arguments are read."""
    jaxpr = jax.make_jaxpr(function)(state, *arguments)
    try:
        total = _counted(jaxpr.jaxpr)
    except _UnknownError as error:
        return counting.unknown(str(error))
    return counting.known(total, examples=batch_size, training=training)


def _counted(jaxpr: Any) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name = equation.primitive.name
    if name == "conv_general_dilated":
        return convolution(equation)
    if name == "dot_general":
        return product(equation)
    inner = [_counted(jaxpr) for jaxpr in _inner(equation.params)]
    if name == "scan":
        return int(equation.params["length"]) * sum(inner)
    if name == "cond":
        if len(set(inner)) > 1:
            raise _UnknownError("the branches of a condition differ in their arithmetic")
        return inner[0]
    if name == "while" and any(inner):
        raise _UnknownError("a loop with arithmetic runs until a condition holds")
    return sum(inner)


def _inner(parameters: dict[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs that an equation calls, whatever its parameters are named."""
    for value in parameters.values():
        for each in value if isinstance(value, (list, tuple)) else (value,):
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr


def convolution(equation: Any) -> int:
    """Count a convolution, or a gradient of one.

    For each value that comes out, and for each that goes in, the weights that it meets can be
    counted. The smaller number is the one without zeros: those that an input's gradient puts
    between and around the values that go in. The weights' gradient puts none there; JAX writes it
    as a convolution in which the examples are the features.
    """
    first, weights = (variable.aval.shape for variable in equation.invars[:2])
    output = equation.outvars[0].aval.shape
    places = equation.params["dimension_numbers"].rhs_spec  # features out, features in, space
    outputs = weights[places[0]]
    groups = equation.params["feature_group_count"] * equation.params["batch_group_count"]
    by_output = math.prod(output) * math.prod(weights) // outputs
    kernel = math.prod(weights[place] for place in places[2:])
    if equation.params["dimension_numbers"].lhs_spec[0] != 0:  # the examples are not in front
        return int(2 * by_output)
    by_input = math.prod(first) * kernel * outputs // groups
    return int(2 * min(by_output, by_input))


def product(equation: Any) -> int:
    """Count a product of matrices or of batches of them."""
    first = equation.invars[0].aval.shape
    (contracted, _), _ = equation.params["dimension_numbers"]
    inner = math.prod(first[axis] for axis in contracted)
    return int(2 * inner * math.prod(equation.outvars[0].aval.shape))


_DEPTH = 2  # operators in a compiled function, one after the other
_QUEUED = 8  # calls for an accelerator at once: waiting for each would be a part of its time


def measured_peak(kind: str, dtype: str, done_by_model: float | None = None) -> Peak:
    """Measure the current device's peak with the threads and the type of the model."""
    return peak.measured(probes_of(kind, dtype), done_by_model=done_by_model)


def probes_of(kind: str, dtype: str) -> list[Probe]:
    """Return the probes of a kind of device; types and kinds take turns."""
    return peak.in_turns(partial(_of_type, kind), dtype)


def _of_type(kind: str, dtype: str) -> list[Probe]:
    accelerated, threads = kind != "cpu", placement.threads()
    make = _Making(dtype, 1 if kind == "cpu" else _QUEUED)
    products = peak.products(threads=threads, accelerated=accelerated)
    convolutions = peak.convolutions(threads=threads, accelerated=accelerated)
    return [
        *peak.probes(products, dtype, make.product),
        *peak.probes(convolutions, dtype, make.convolution),
    ]


class _Making:
    """Calls of compiled functions on arrays of a type."""

    def __init__(self, dtype: str, queued: int) -> None:
        self._dtype = jnp.dtype(dtype)
        self._queued = queued

    def product(self, product: Product, size: int) -> Call:
        first, second = product.shapes(size)
        shapes = " by ".join(" x ".join(map(str, each)) for each in (first, second))
        factor = self._normal(second, first[-1] ** -0.5)  # the results stay as large as the input
        depth = _DEPTH if product.repeats else 1
        return self._call(product.flops(size), shapes, jnp.matmul, first, factor, depth)

    def convolution(self, convolution: Convolution, size: int) -> Call:
        """Return a call on images with the channels last, as the models have them."""
        channels, kernel, side = convolution.channels, convolution.kernel, convolution.side
        images = (size, side, side, channels)
        weights = self._normal((kernel, kernel, channels, channels), (channels * kernel**2) ** -0.5)

        def convolve(values: Any, weights: Any) -> Any:
            return jax.lax.conv_general_dilated(
                values, weights, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )

        shapes = f"{' x '.join(map(str, images))}, channels last"
        return self._call(convolution.flops(size), shapes, convolve, images, weights, _DEPTH)

    def _call(
        self,
        flops: float,
        shapes: str,
        operator: Callable[..., Any],
        shape: tuple[int, ...],
        factor: Any,
        depth: int,
    ) -> Call:
        def operate(values: Any, factor: Any) -> Any:
            for _ in range(depth):
                values = operator(values, factor)
            return values

        values = self._normal(shape)
        compiled = jax.jit(operate).lower(values, factor).compile()

        def queued() -> None:
            found = [compiled(values, factor) for _ in range(self._queued)]
            jax.block_until_ready(found)

        return Call(flops=flops * depth * self._queued, shapes=shapes, run=queued)

    def _normal(self, shape: tuple[int, ...], scale: float = 1.0) -> Any:
        numbers = jax.random.normal(jax.random.key(0), shape) * scale
        return numbers.astype(self._dtype)

"""Count the arithmetic of a TensorFlow graph, and measure the peak of its device.

The statistics of TensorFlow's profiler count convolutions and matrix products, as PyTorch's
FlopCounterMode does; a multiply-add is two. Two of the profiler's figures are
replaced by our own: it has none for gradients of depthwise convolutions, and for products of
batches of matrices it looks for the attribute `transpose_a`, where they have `adj_x`: 75 times too
much in the training of GPT-2.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from benchmarks._support.models import peak
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.peak import Call, Clock, Convolution, Probe, Product
from benchmarks.tensorflow._support import placement
from benchmarks.tensorflow._support.framework import tf

_BY_PROFILER = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul")
_BY_PROFILER_BACKWARD = ("Conv2DBackpropInput", "Conv2DBackpropFilter")
_BATCHES = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_DEPTHWISE = ("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter")
# Operators with multiply-adds that are not counted: a graph with one has no known FLOPs.
_UNCOUNTED = ("XlaEinsum", "Conv", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile")


def count(function: Any, arguments: tuple[Any, ...], *, batch_size: int, passes: str) -> Work:
    """Count the multiply-adds of one call of a `tf.function`; the shapes are those of arguments."""
    convention = (
        f"TensorFlow's profiler: convolutions and matrix products, 2 per multiply-add, {passes}"
    )
    graph = function.get_concrete_function(*arguments).graph
    unknown = sorted({op.type for op in graph.get_operations()} & {*_UNCOUNTED, *_CALLS})
    if unknown:
        why = f"the profiler does not count {', '.join(unknown)}"
        return Work(flops_per_example=None, counted_by="", why_unknown=why)
    try:
        total = _profiled(graph) + sum(_own(op) for op in graph.get_operations())
    except (TypeError, ValueError) as error:  # a shape that is not known before it runs
        return Work(flops_per_example=None, counted_by="", why_unknown=str(error).splitlines()[0])
    return Work(flops_per_example=total / batch_size, counted_by=convention)


def _profiled(graph: Any) -> float:
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    # The profiler warns that it was designed for TensorFlow 1; version 2 has no other count.
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        node = tf.compat.v1.profiler.profile(graph, options=options, cmd="op")
    finally:
        logger.setLevel(level)
    total = 0.0
    counted = (*_BY_PROFILER, *_BY_PROFILER_BACKWARD)
    waiting = [node]
    while waiting:
        node = waiting.pop()
        waiting.extend(node.children)
        if node.name in counted:
            total += node.float_ops
    return total


def _own(op: Any) -> float:
    if op.type in _BATCHES:
        first, output = op.inputs[0].shape.as_list(), op.outputs[0].shape.as_list()
        inner = first[-2] if op.get_attr("adj_x") else first[-1]
        return float(2 * inner * math.prod(output))
    if op.type == "Einsum":
        return _einsum(op)
    if op.type in _DEPTHWISE:
        # Each value of the incoming gradient is used filter height times filter width times.
        is_filter = op.type.endswith("Filter")
        kernel = (op.outputs[0] if is_filter else op.inputs[1]).shape.as_list()
        return float(2 * math.prod(op.inputs[2].shape.as_list()) * kernel[0] * kernel[1])
    return 0.0


def _einsum(op: Any) -> float:
    """Count a multiply-add for each combination of the indices of two tensors."""
    equation = op.get_attr("equation").decode()
    terms = equation.partition("->")[0].split(",")
    if len(terms) == 1:
        return 0.0
    if len(terms) > 2 or "." in equation:
        raise ValueError(f"the einsum {equation} is not counted")
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, op.inputs, strict=True):
        sizes.update(zip(term.strip(), tensor.shape.as_list(), strict=True))
    return float(2 * math.prod(sizes.values()))


_DEPTH = 2  # operators in a graph, one after the other
_QUEUED = 8  # calls for an accelerator at once: waiting for each would be a part of its time


def measured_peak(
    kind: str,
    dtype: str,
    done_by_model: float | None = None,
    *,
    clock: Clock = time.perf_counter,
) -> Peak:
    """Measure the current device's peak with the threads and the type of the model.

    With a 16-bit type, float32 is tried, too, because the policy leaves some operators in it.
    """
    return peak.measured(
        probes_of(kind, dtype),
        done_by_model=done_by_model,
        failures=(*peak.FAILURES, tf.errors.OpError),
        clock=clock,
    )


def probes_of(kind: str, dtype: str) -> list[Probe]:
    """Return the probes of a kind of device; types and kinds take turns."""
    each = [_of_type(kind, name) for name in dict.fromkeys(("float32", dtype))]
    return list(chain.from_iterable(zip(*each, strict=True)))


def _of_type(kind: str, dtype: str) -> list[Probe]:
    pools = placement.threads()
    accelerated, threads = kind != "cpu", pools["threads"]
    # A graph runs independent operators at the same time, as the branches of a model.
    branches = peak.branches(
        threads=threads, inter_threads=pools["inter_threads"], accelerated=accelerated
    )
    found = []
    for width, share in branches:
        products = list(peak.products(threads=share, accelerated=accelerated))
        convolutions = list(peak.convolutions(threads=share, accelerated=accelerated))
        make = _Making(dtype, width, 1 if kind == "cpu" else _QUEUED)
        found += [
            Probe(kind=each.kind, dtype=dtype, sizes=each.sizes, make=partial(make.product, each))
            for each in products
        ]
        found += [
            Probe(
                kind=each.kind, dtype=dtype, sizes=each.sizes, make=partial(make.convolution, each)
            )
            for each in convolutions
        ]
    return found


class _Making:
    """Calls on tensors of a type, several in one graph, because entering a graph takes time."""

    def __init__(self, dtype: str, width: int, queued: int) -> None:
        self._dtype = dtype
        self._width = width  # how many at the same time
        self._queued = queued

    def product(self, product: Product, size: int) -> Call:
        first, second = product.shapes(size)
        shapes = " by ".join(" x ".join(map(str, each)) for each in (first, second))
        factor = self._normal(second) * first[-1] ** -0.5  # the results stay as large as the input
        depth = _DEPTH if product.repeats else 1
        return self._call(product.flops(size), shapes, tf.matmul, first, factor, depth)

    def convolution(self, convolution: Convolution, size: int) -> Call:
        """Return a call on images with the channels last: the CPU has no other kernel."""
        channels, kernel, side = convolution.channels, convolution.kernel, convolution.side
        images = (size, side, side, channels)
        weights = self._normal((kernel, kernel, channels, channels))
        weights *= (channels * kernel**2) ** -0.5
        convolve = partial(tf.nn.conv2d, strides=1, padding="SAME")
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
        def operate(factor: Any, *inputs: Any) -> Any:
            results = list(inputs)
            for _ in range(depth):
                results = [operator(each, factor) for each in results]
            return results

        tensors = (factor, *(self._normal(shape) for _ in range(self._width)))
        graph = tf.function(operate).get_concrete_function(*tensors)

        def queued() -> None:
            for _ in range(self._queued):
                graph(*tensors)
            tf.test.experimental.sync_devices()

        if self._width > 1:
            shapes += f", {self._width} at the same time"
        total = flops * depth * self._width * self._queued
        return Call(flops=total, shapes=shapes, run=queued)

    def _normal(self, shape: tuple[int, ...]) -> Any:
        return tf.cast(tf.random.normal(shape), self._dtype)

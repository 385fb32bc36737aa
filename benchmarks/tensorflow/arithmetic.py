"""How much arithmetic a TensorFlow graph asks for.

Counted are convolutions and matrix products, by the statistics of TensorFlow's profiler, as
PyTorch's FlopCounterMode counts them; a multiply-add is two. Two of the profiler's figures are
replaced by our own: it has none for gradients of depthwise convolutions, and for products of
batches of matrices it looks for the attribute `transpose_a`, where they have `adj_x`: 75 times too
much in the training of GPT-2.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from benchmarks.models.figures import Work
from benchmarks.tensorflow.framework import tf

_BY_PROFILER = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul")
_BY_PROFILER_BACKWARD = ("Conv2DBackpropInput", "Conv2DBackpropFilter")
_BATCHES = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_DEPTHWISE = ("DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter")
# What has multiply-adds and is in neither list: a graph with one of these has no known FLOPs.
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
    # It warns that it was designed for TensorFlow 1; version 2 has no other count.
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
        # Filter height and width; all of the gradient that comes in is used that often.
        is_filter = op.type.endswith("Filter")
        kernel = (op.outputs[0] if is_filter else op.inputs[1]).shape.as_list()
        return float(2 * math.prod(op.inputs[2].shape.as_list()) * kernel[0] * kernel[1])
    return 0.0


def _einsum(op: Any) -> float:
    """A multiply-add for each combination of the indices, where two tensors are multiplied."""
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

"""Count the arithmetic of a TensorFlow graph, and measure the peak of its device.

The operators are those of the graph that a step is traced into, as far as its results need them:
TensorFlow writes a gradient of the first layer's input into the graph, too, and leaves it out when
it runs. Functions that the graph calls are followed. `benchmarks._support.models.counting` has the
formulas; TensorFlow's own profiler counts the zeros that pad and widen the gradients of a strided
convolution, 19 % too much in the training of ResNet-18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from benchmarks._support.models import counting, peak
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.peak import Call, Convolution, Probe, Product
from benchmarks.tensorflow._support import placement
from benchmarks.tensorflow._support.framework import tf


def count(function: Any, arguments: tuple[Any, ...], *, batch_size: int, training: bool) -> Work:
    """Count the multiply-adds of one call of a `tf.function`; the shapes are those of arguments."""
    graph = function.get_concrete_function(*arguments).graph
    try:
        total = _counted(graph, graph.outputs)
    except (TypeError, ValueError) as error:  # a shape that is not known before it runs
        return counting.unknown(f"the graph cannot be counted: {error}")
    return counting.known(total, examples=batch_size, training=training)


def _counted(graph: Any, outputs: Iterable[Any]) -> int:
    """Count the operators that these outputs of a graph need, or its side effects."""
    used = _used_outputs([*outputs], graph.control_outputs)
    return sum(_operator(graph, op, numbers) for op, numbers in used.items())


def _used_outputs(tensors: list[Any], ops: Iterable[Any]) -> dict[Any, set[int]]:
    """Return the operators that are needed, with the numbers of their outputs that are."""
    used: dict[Any, set[int]] = {}
    waiting = [(op, None) for op in ops]
    waiting += [(tensor.op, tensor.value_index) for tensor in tensors]
    while waiting:
        op, number = waiting.pop()
        if op not in used:
            used[op] = set()
            waiting += [(each.op, each.value_index) for each in op.inputs]
            waiting += [(each, None) for each in op.control_inputs]
        if number is not None:
            used[op].add(number)
    return used


def _operator(graph: Any, op: Any, used: set[int]) -> int:
    if op.type in _FORMULAS:
        return _FORMULAS[op.type](op)
    if op.type in _CALLS:
        return _function(graph, op.get_attr("f"), used)
    if op.type in _LOOPS:
        return _loop(graph, op)
    if op.type in _BRANCHES:
        return _branches(graph, op, used)
    if op.type in _UNCOUNTED:
        raise ValueError(f"the operator {op.type} is not counted")
    return 0


def _function(graph: Any, named: Any, used: Iterable[int] | None = None) -> int:
    body = graph._get_function(named.name).graph  # no public way leads to a graph with its shapes
    wanted = range(len(body.outputs)) if used is None else used
    return _counted(body, [body.outputs[number] for number in wanted])


def _loop(graph: Any, op: Any) -> int:
    if sum(_function(graph, op.get_attr(part)) for part in ("cond", "body")):
        raise ValueError("it has a loop of products or convolutions; values say how many turns")
    return 0


def _branches(graph: Any, op: Any, used: set[int]) -> int:
    many = "branches" in op.node_def.attr
    named = op.get_attr("branches") if many else map(op.get_attr, ("then_branch", "else_branch"))
    counts = {_function(graph, each, used) for each in named}
    if len(counts) > 1:
        raise ValueError("the branches of a condition differ in their arithmetic")
    return counts.pop()


def _product(op: Any) -> int:
    first, second = (tensor.shape.as_list() for tensor in op.inputs[:2])
    first_turned, second_turned = ("transpose_a", "transpose_b")
    if op.type in _BATCHES:
        first_turned, second_turned = ("adj_x", "adj_y")
    return counting.product(
        _turned(first) if op.get_attr(first_turned) else first,
        _turned(second) if op.get_attr(second_turned) else second,
    )


def _turned(shape: list[int]) -> list[int]:
    return [*shape[:-2], shape[-1], shape[-2]]


def _einsum(op: Any) -> int:
    equation = op.get_attr("equation").decode()
    if "." in equation:
        raise ValueError(f"the einsum {equation} does not name its dimensions")
    terms = [term.strip() for term in equation.partition("->")[0].split(",")]
    return counting.contraction(terms, [tensor.shape.as_list() for tensor in op.inputs])


def _forward(op: Any) -> int:
    return _convolution(op, weights=op.inputs[1], places=op.outputs[0])


def _input_gradient(op: Any) -> int:  # a transposed convolution, too
    return _convolution(op, weights=op.inputs[1], places=op.inputs[2])


def _weights_gradient(op: Any) -> int:
    return _convolution(op, weights=op.outputs[0], places=op.inputs[2])


def _convolution(op: Any, *, weights: Any, places: Any) -> int:
    batch, *rest = places.shape.as_list()
    channels_last = op.get_attr("data_format").decode().endswith("C")
    return counting.convolution(
        weights.shape.as_list(), batch=batch, places=rest[:-1] if channels_last else rest[1:]
    )


_BATCHES = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_FORMULAS: Mapping[str, Callable[[Any], int]] = {
    **dict.fromkeys(("MatMul", *_BATCHES), _product),
    "Einsum": _einsum,
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), _forward),
    **dict.fromkeys(
        (
            "Conv2DBackpropInput",
            "Conv3DBackpropInputV2",
            "DepthwiseConv2dNativeBackpropInput",
        ),
        _input_gradient,
    ),
    **dict.fromkeys(
        (
            "Conv2DBackpropFilter",
            "Conv3DBackpropFilterV2",
            "DepthwiseConv2dNativeBackpropFilter",
        ),
        _weights_gradient,
    ),
}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LOOPS = ("While", "StatelessWhile")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
# Operators with multiply-adds that have no formula here: a graph with one has no known FLOPs.
_UNCOUNTED = (
    *("Conv", "XlaConv", "XlaConvV2", "XlaDot", "XlaDotV2", "XlaEinsum", "XlaCallModule"),
    *("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", "SparseMatMul", "SparseTensorDenseMatMul"),
)


_DEPTH = 2  # operators in a graph, one after the other
_QUEUED = 8  # calls for an accelerator at once: waiting for each would be a part of its time


def measured_peak(kind: str, dtype: str, done_by_model: float | None = None) -> Peak:
    """Measure the current device's peak with the threads and the type of the model."""
    return peak.measured(
        probes_of(kind, dtype),
        done_by_model=done_by_model,
        failures=(*peak.FAILURES, tf.errors.OpError),
    )


def probes_of(kind: str, dtype: str) -> list[Probe]:
    """Return the probes of a kind of device; types and kinds take turns."""
    return peak.in_turns(partial(_of_type, kind), dtype)


def _of_type(kind: str, dtype: str) -> list[Probe]:
    pools = placement.threads()
    accelerated, threads = kind != "cpu", pools["threads"]
    # A graph runs independent operators at the same time, as the branches of a model.
    branches = peak.branches(
        threads=threads, inter_threads=pools["inter_threads"], accelerated=accelerated
    )
    found = []
    for width, share in branches:
        products = peak.products(threads=share, accelerated=accelerated)
        convolutions = peak.convolutions(threads=share, accelerated=accelerated)
        make = _Making(dtype, width, 1 if kind == "cpu" else _QUEUED)
        found += peak.probes(products, dtype, make.product)
        found += peak.probes(convolutions, dtype, make.convolution)
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

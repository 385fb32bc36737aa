"""The most arithmetic that a device does in TensorFlow: the operators that are tried for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from benchmarks.models import peak, probes
from benchmarks.models.figures import Peak
from benchmarks.models.peak import Call, Clock, Probe
from benchmarks.models.probes import Convolution, Product
from benchmarks.tensorflow import placement
from benchmarks.tensorflow.framework import tf

_DEPTH = 2  # operators in a graph, one after the other
_QUEUED = 8  # calls for an accelerator at once: waiting for each would be a part of its time


def measured_peak(
    kind: str,
    dtype: str,
    done_by_model: float | None = None,
    *,
    clock: Clock = time.perf_counter,
) -> Peak:
    """Try products and convolutions on the current device with the threads and type of the model.

    With a 16-bit type also those in float32, in which the policy leaves some operators.
    """
    return peak.measured(
        probes_of(kind, dtype),
        done_by_model=done_by_model,
        failures=(*peak.FAILURES, tf.errors.OpError),
        clock=clock,
    )


def probes_of(kind: str, dtype: str) -> list[Probe]:
    """Return the probes of a kind of device, those of several types and kinds in turns."""
    each = [_of_type(kind, name) for name in dict.fromkeys(("float32", dtype))]
    return list(chain.from_iterable(zip(*each, strict=True)))


def _of_type(kind: str, dtype: str) -> list[Probe]:
    pools = placement.threads()
    accelerated, threads = kind != "cpu", pools["threads"]
    # A graph runs what does not depend on each other at the same time, as branches of a model.
    branches = probes.branches(
        threads=threads, inter_threads=pools["inter_threads"], accelerated=accelerated
    )
    found = []
    for width, share in branches:
        products = list(probes.products(threads=share, accelerated=accelerated))
        convolutions = list(probes.convolutions(threads=share, accelerated=accelerated))
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
    """Calls on tensors of a type, several in one graph: to enter it takes a while by itself."""

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
        """Images with the channels last, as Keras has them here: the CPU has no other kernel."""
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

"""The most arithmetic that a device does in PyTorch: the operators that are tried for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from benchmarks.models import peak, probes
from benchmarks.models.figures import Peak
from benchmarks.models.peak import Call, Clock, Probe
from benchmarks.models.probes import BATCHED, Convolution, Product
from benchmarks.torch import device as devices
from benchmarks.torch.framework import torch

_QUEUED = 8  # calls for an accelerator at once: waiting for each would be a part of its time


def measured_peak(
    device: torch.device,
    dtype: str,
    done_by_model: float | None = None,
    *,
    clock: Clock = time.perf_counter,
) -> Peak:
    """Try products and convolutions with the threads and in the type of the model.

    With a 16-bit type also those in float32: autocast leaves some operators in float32, and on
    many CPUs the arithmetic of float16 is slower by orders of magnitude.
    """
    with torch.inference_mode(), _products_as_convolutions(device):
        return peak.measured(probes_of(device, dtype), done_by_model=done_by_model, clock=clock)


def probes_of(device: torch.device, dtype: str) -> list[Probe]:
    """Return the probes of a device, those of several types and kinds in turns."""
    each = [_of_type(device, name) for name in dict.fromkeys(("float32", dtype))]
    return list(chain.from_iterable(zip(*each, strict=True)))


def _of_type(device: torch.device, dtype: str) -> list[Probe]:
    accelerated, threads = device.type != "cpu", torch.get_num_threads()
    products = probes.products(threads=threads, accelerated=accelerated)
    convolutions = list(probes.convolutions(threads=threads, accelerated=accelerated))
    name = "tf32" if _tf32_is_used(device, dtype) else dtype
    make = _Making(device, getattr(torch, dtype))
    return [
        *(
            Probe(kind=each.kind, dtype=name, sizes=each.sizes, make=partial(make.product, each))
            for each in products
        ),
        *(
            Probe(
                kind=each.kind,
                dtype=name,
                sizes=each.sizes,
                make=partial(make.convolution, each, layout),
            )
            for layout in (torch.channels_last, torch.contiguous_format)
            for each in convolutions
        ),
    ]


class _Making:
    """Calls on tensors of a device and a type."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._dtype = dtype
        self._queued = 1 if device.type == "cpu" else _QUEUED

    def product(self, product: Product, size: int) -> Call:
        first, second = (self._normal(shape) for shape in product.shapes(size))
        multiply = torch.bmm if product.kind == BATCHED else torch.mm
        shapes = " by ".join(" x ".join(map(str, each.shape)) for each in (first, second))
        return self._call(product.flops(size), shapes, partial(multiply, first, second))

    def convolution(self, convolution: Convolution, layout: Any, size: int) -> Call:
        channels, kernel = convolution.channels, convolution.kernel
        shape = (size, channels, convolution.side, convolution.side)
        images = self._normal(shape).contiguous(memory_format=layout)
        weights = self._normal((channels, channels, kernel, kernel)).contiguous(
            memory_format=layout
        )
        run = partial(torch.nn.functional.conv2d, images, weights, padding=kernel // 2)
        place = "last" if layout == torch.channels_last else "first"
        shapes = f"{' x '.join(map(str, shape))}, channels {place}"
        return self._call(convolution.flops(size), shapes, run)

    def _call(self, flops: float, shapes: str, run: Callable[[], Any]) -> Call:
        def queued() -> None:
            for _ in range(self._queued):
                run()
            devices.wait(self._device)

        return Call(flops=flops * self._queued, shapes=shapes, run=queued)

    def _normal(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, device=self._device).to(self._dtype)


@contextlib.contextmanager
def _products_as_convolutions(device: torch.device) -> Iterator[None]:
    """Let products use TF32 where cuDNN's convolutions may, as they do by default."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or _tf32_is_used(device, "float32")
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _tf32_is_used(device: torch.device, dtype: str) -> bool:
    if device.type != "cuda" or dtype != "float32":
        return False
    return bool(torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)

"""Count the arithmetic of a PyTorch model, and measure the peak of its device.

torch.utils.flop_counter.FlopCounterMode counts convolutions, matrix products and attention; a
multiply-add is two. It does not count normalisation, activations, softmax, pooling, embeddings, the
loss and the update of the weights. One of its figures is replaced: for the gradient of a grouped
convolution's weights it ignores the groups, which is 42 times too high for the training of
EfficientNet-B0. Attention is counted as its matrix products, whatever kernel the device has for it:
FlopCounterMode does not know the CPU's fused kernel and counts zero.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from benchmarks._support.models import peak
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.peak import BATCHED, Call, Clock, Convolution, Probe, Product
from benchmarks.torch._support import execution
from benchmarks.torch._support.framework import torch
from benchmarks.torch._support.workload import Network, example_inputs, example_labels, loss_of

_EXAMPLES = 2  # a batch of one is refused by batch normalisation in training


def count(network: Network, *, training: bool) -> Work:
    """Count the FLOPs of one example, from shapes alone; where that fails, from a real pass."""
    passes = "forward and backward pass" if training else "forward pass"
    try:
        total = _counted(network, "meta", training=training)
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        # The model reads values, or holds tensors that are not parameters.
        try:
            device = next(network.module.parameters()).device.type
            total = _counted(network, device, training=training)
        except (RuntimeError, NotImplementedError) as error:
            why = f"the model cannot be counted: {' '.join(str(error).split())[:200]}"
            return Work(flops_per_example=None, counted_by="", why_unknown=why)
    if not total:
        why = "the model has no convolution, matrix product or attention that could be counted"
        return Work(flops_per_example=None, counted_by="", why_unknown=why)
    return Work(
        flops_per_example=total / _EXAMPLES,
        counted_by=(
            "torch FlopCounterMode: convolutions, matrix products and attention, "
            f"2 per multiply-add, {passes}"
        ),
    )


def _counted(network: Network, device: str, *, training: bool) -> int:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    spec, module = network.spec, network.module
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if device == "meta":
        state = {
            name: torch.empty_like(value, device="meta").requires_grad_(value.requires_grad)
            for name, value in state.items()
        }
    else:  # copies: a pass in training would change the running statistics
        state = {
            name: value.detach().clone().requires_grad_(value.requires_grad)
            for name, value in state.items()
        }
    inputs = example_inputs(spec, network.shape, _EXAMPLES, device=device)
    counter = FlopCounterMode(
        display=False,
        custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward},
    )
    plain = sdpa_kernel(SDPBackend.MATH)
    with torch.random.fork_rng(), torch.set_grad_enabled(training), plain, counter:
        output = torch.func.functional_call(module, state, (inputs,))
        if training:
            loss_of(spec, output, example_labels(spec, inputs)).backward()
    return int(counter.get_total_flops())


def _convolution_backward(
    gradient: Any,
    inputs: Any,
    weight: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    _output_padding: Any,
    _groups: Any,
    wanted: Any,
    **_more: Any,
) -> int:
    """Count, for each gradient that is asked for, the multiply-adds of the forward pass."""
    places = inputs if transposed else gradient
    forward: int = 2 * math.prod(places) * math.prod(weight[1:])
    return forward * (bool(wanted[0]) + bool(wanted[1]))


_QUEUED = 8  # calls for an accelerator at once: waiting for each would be a part of its time


def measured_peak(
    device: torch.device,
    dtype: str,
    done_by_model: float | None = None,
    *,
    clock: Clock = time.perf_counter,
) -> Peak:
    """Measure the device's peak with the threads and the type of the model.

    With a 16-bit type, float32 is tried, too: autocast leaves some operators in float32, and on
    many CPUs the arithmetic of float16 is slower by orders of magnitude.
    """
    with torch.inference_mode(), _products_as_convolutions(device):
        return peak.measured(probes_of(device, dtype), done_by_model=done_by_model, clock=clock)


def probes_of(device: torch.device, dtype: str) -> list[Probe]:
    """Return the probes of a device; types and kinds take turns."""
    each = [_of_type(device, name) for name in dict.fromkeys(("float32", dtype))]
    return list(chain.from_iterable(zip(*each, strict=True)))


def _of_type(device: torch.device, dtype: str) -> list[Probe]:
    accelerated, threads = device.type != "cpu", torch.get_num_threads()
    products = peak.products(threads=threads, accelerated=accelerated)
    convolutions = list(peak.convolutions(threads=threads, accelerated=accelerated))
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
            execution.wait(self._device)

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

"""How much arithmetic a PyTorch model asks for, and how much the device can do.

Counted by torch.utils.flop_counter.FlopCounterMode: convolutions, matrix products and attention, a
multiply-add being two. Not counted are all others: normalisation, activations, softmax, pooling,
embeddings, the loss, the update of the weights. One of its figures is replaced by ours: for the
gradient of a grouped convolution's weights it leaves out the groups, and is 42 times too high for
the training of EfficientNet-B0. Attention is counted as its matrix products, whatever kernel the
device has for it: of the CPU's fused one FlopCounterMode knows nothing and counts zero.
"""

from __future__ import annotations

import math
import time
from typing import Any

from benchmarks.models.figures import Peak, Work
from benchmarks.torch import device as devices
from benchmarks.torch.framework import torch
from benchmarks.torch.workload import Network, example_inputs, example_labels, loss_of

_EXAMPLES = 2  # a batch of one is refused by batch normalisation in training
_LEAST_S = 0.02  # of one product: long enough for threads to start and clocks to rise
_PEAK_S, _ROUNDS = 0.15, 3  # for each side, at least
_SIDES = (512, 1024, 2048, 4096, 8192)


def count(network: Network, *, training: bool) -> Work:
    """Count the FLOPs of one example, from shapes alone; where that fails, from a real pass."""
    passes = "forward and backward pass" if training else "forward pass"
    try:
        total = _counted(network, "meta", training=training)
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        # Something in the model looks at values, or holds tensors that are no parameters.
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
    """As many multiply-adds as the forward pass for each gradient that is wanted."""
    places = inputs if transposed else gradient
    forward: int = 2 * math.prod(places) * math.prod(weight[1:])
    return forward * (bool(wanted[0]) + bool(wanted[1]))


def measured_peak(device: torch.device, dtype: str) -> Peak:
    """Multiply large matrices on the device, in the type: the best of several products.

    Of a 16-bit type and float32 the faster one counts: autocast leaves some operators in float32,
    and on many CPUs products in float16 are slower by orders of magnitude.
    """
    peaks = [_peak_of(device, each) for each in dict.fromkeys((dtype, "float32"))]
    return max(peaks, key=lambda peak: peak.flops_per_second or 0.0)


def _peak_of(device: torch.device, dtype: str) -> Peak:
    fast = _tf32_is_used(device, dtype)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or fast
    try:
        with torch.inference_mode():
            side, fastest_s, rounds = _fastest(device, getattr(torch, dtype))
    except RuntimeError as error:
        why = f"no product of matrices in {dtype}: {' '.join(str(error).split())[:200]}"
        return Peak(flops_per_second=None, measured_by="", why_unknown=why)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    kind = "tf32" if fast else dtype
    return Peak(
        flops_per_second=2 * side**3 / fastest_s,
        measured_by=f"best of {rounds} products of {side} x {side} matrices, {kind}",
    )


def _tf32_is_used(device: torch.device, dtype: str) -> bool:
    """cuDNN's convolutions use TF32 by default where the card has it; matrix products do not."""
    if device.type != "cuda" or dtype != "float32":
        return False
    return bool(torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)


def _fastest(device: torch.device, dtype: torch.dtype) -> tuple[int, float, int]:
    """Return the side of the matrices, the seconds of the fastest product, and how many there were.

    The side grows until a product takes long enough; the best product of all sides is kept.
    """
    found: list[tuple[float, int, float]] = []  # FLOP/s, side, seconds
    for side in _SIDES:
        matrix = torch.randn(side, side, device=device).to(dtype)
        _product_s(matrix, device)  # wakes threads and chooses a kernel
        times_s: list[float] = []
        # On a busy machine most are slow: the short ones have the best chance to slip through.
        while len(times_s) < _ROUNDS or sum(times_s) < _PEAK_S:
            times_s.append(_product_s(matrix, device))
        found += [(2 * side**3 / taken_s, side, taken_s) for taken_s in times_s]
        if min(times_s) >= _LEAST_S:
            break
    _flops, side, fastest_s = max(found)
    return side, fastest_s, len(found)


def _product_s(matrix: Any, device: torch.device) -> float:
    devices.wait(device)
    began = time.perf_counter()
    torch.mm(matrix, matrix)
    devices.wait(device)
    return time.perf_counter() - began

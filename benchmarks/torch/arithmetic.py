"""How much arithmetic a PyTorch model asks for.

Counted by torch.utils.flop_counter.FlopCounterMode: convolutions, matrix products and attention, a
multiply-add being two. Not counted are all others: normalisation, activations, softmax, pooling,
embeddings, the loss, the update of the weights. One of its figures is replaced by ours: for the
gradient of a grouped convolution's weights it leaves out the groups, and is 42 times too high for
the training of EfficientNet-B0. Attention is counted as its matrix products, whatever kernel the
device has for it: of the CPU's fused one FlopCounterMode knows nothing and counts zero.
"""

from __future__ import annotations

import math
from typing import Any

from benchmarks.models.figures import Work
from benchmarks.torch.framework import torch
from benchmarks.torch.workload import Network, example_inputs, example_labels, loss_of

_EXAMPLES = 2  # a batch of one is refused by batch normalisation in training


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

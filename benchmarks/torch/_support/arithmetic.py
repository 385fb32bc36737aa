"""Count the arithmetic of a PyTorch model, and measure the peak of its device.

The operators are those that reach PyTorch's dispatcher, forward and backward.
`benchmarks._support.models.counting` has the formulas. Attention is counted as its matrix products,
whatever kernel the device has for it. PyTorch's own FlopCounterMode ignores the groups in the
gradient of a grouped convolution's weights, 42 times too much for the training of EfficientNet-B0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks._support.models import counting, peak
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.peak import BATCHED, Call, Convolution, Probe, Product
from benchmarks.torch._support import execution
from benchmarks.torch._support.framework import torch
from benchmarks.torch._support.workload import (
    Network,
    example_inputs,
    example_labels,
    loss_of,
    tensors_of,
)

_EXAMPLES = 2  # a batch of one is refused by batch normalisation in training


def count(network: Network, *, training: bool) -> Work:
    """Count the FLOPs of one example, from shapes alone; where that fails, from a real pass."""
    try:
        flops, _ = _passed(network, training=training)
    except _FAILURES as error:
        return counting.unknown(f"the model cannot be counted: {error}")
    return counting.known(flops, examples=_EXAMPLES, training=training)


def output_shapes(network: Network) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of what the model gives for one example; RuntimeError and its like."""
    return tuple(shape[1:] for shape in _passed(network, training=False)[1])


_FAILURES = (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError)


def _passed(network: Network, *, training: bool) -> tuple[int, list[tuple[int, ...]]]:
    """Return the FLOPs and the shapes of the outputs of a pass, made in the first way that does."""
    for way in (_on_meta, _on_fakes):
        with contextlib.suppress(*_FAILURES):
            return _counted(network, way, training=training)
    return _counted(network, _on_copies, training=training)


State = dict[str, Any]


@contextlib.contextmanager
def _on_meta(state: State) -> Iterator[tuple[State, str]]:
    """Give tensors without values: every operator is made of its simplest parts."""
    yield {name: _like(value, "meta") for name, value in state.items()}, "meta"


@contextlib.contextmanager
def _on_fakes(state: State) -> Iterator[tuple[State, str]]:
    """Give tensors that say they are on the CPU: a library sees that only shapes are asked for.

    transformers looks at values for a causal mask unless its tensors are such.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        yield {name: _like(value, "cpu") for name, value in state.items()}, "cpu"


@contextlib.contextmanager
def _on_copies(state: State) -> Iterator[tuple[State, str]]:
    """Give copies of the weights, because a pass in training changes the running statistics."""
    copies = {
        name: value.detach().clone().requires_grad_(value.requires_grad)
        for name, value in state.items()
    }
    yield copies, next(iter(state.values())).device.type


def _like(value: Any, device: str) -> Any:
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return made.requires_grad_(value.requires_grad)


def _counted(
    network: Network, way: Callable[..., Any], *, training: bool
) -> tuple[int, list[tuple[int, ...]]]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    spec, module = network.spec, network.module
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with (
        torch.random.fork_rng(),
        _plain_attention(),
        sdpa_kernel(SDPBackend.MATH),
        way(state) as (tensors, device),
    ):
        inputs = example_inputs(spec, network.shape, _EXAMPLES, device=device)
        counter = Counter()
        with torch.set_grad_enabled(training), counter:
            output = torch.func.functional_call(module, tensors, (inputs,))
            if training:
                loss_of(spec, output, example_labels(spec, inputs)).backward()
    return counter.flops, [tuple(tensor.shape) for tensor in tensors_of(output)]


@contextlib.contextmanager
def _plain_attention() -> Iterator[None]:
    """Keep torch.nn.MultiheadAttention from one operator for all of it, which has no formula."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


# By attribute: an import of torch here would come before the one that is timed.
class Counter(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """A context that counts the multiply-adds of PyTorch's operators in it, as FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        if operator.overloadpacket in _UNCOUNTED:
            raise ValueError(f"the operator {operator} is not counted")
        formula = _FORMULAS.get(operator.overloadpacket)
        if formula is None and operator.namespace == "aten":
            with self:  # `linear` and others come whole under inference_mode
                parts = operator.decompose(*arguments, **(keywords or {}))
            if parts is not NotImplemented:
                return parts
        result = operator(*arguments, **(keywords or {}))
        if formula is not None:
            self.flops += formula(result, *arguments)
        return result


def _product(_result: Any, first: Any, second: Any, *_more: Any) -> int:
    return counting.product(first.shape, second.shape)


def _added_product(_result: Any, _bias: Any, first: Any, second: Any, *_more: Any) -> int:
    return counting.product(first.shape, second.shape)


def _convolution(
    result: Any,
    inputs: Any,
    weight: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    *_more: Any,
) -> int:
    batch, _channels, *places = (inputs if transposed else result).shape
    return counting.convolution(weight.shape, batch=batch, places=places)


def _convolution_backward(
    _result: Any,
    gradient: Any,
    inputs: Any,
    weight: Any,
    _bias_sizes: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    _output_padding: Any,
    _groups: Any,
    wanted: Any,
) -> int:
    batch, _channels, *places = (inputs if transposed else gradient).shape
    forward = counting.convolution(weight.shape, batch=batch, places=places)
    return forward * (bool(wanted[0]) + bool(wanted[1]))


def _attention(_result: Any, query: Any, key: Any, value: Any, *_more: Any) -> int:
    return counting.attention(query.shape, key.shape, value.shape)


def _attention_backward(
    _result: Any, _gradient: Any, query: Any, key: Any, value: Any, *_more: Any
) -> int:
    return 2 * counting.attention(query.shape, key.shape, value.shape)


_FUSED = (
    *("flash_attention", "flash_attention_for_cpu", "efficient_attention"),
    *("cudnn_attention", "fused_attention_overrideable"),
)
_NAMES: Mapping[Callable[..., int], tuple[str, ...]] = {
    _product: ("mm", "bmm", "mv", "dot", "_int_mm", "_scaled_mm"),
    _added_product: ("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation"),
    _convolution: ("convolution", "_convolution", "convolution_overrideable"),
    _convolution_backward: ("convolution_backward", "convolution_backward_overrideable"),
    _attention: tuple(f"_scaled_dot_product_{kind}" for kind in _FUSED),
    _attention_backward: tuple(f"_scaled_dot_product_{kind}_backward" for kind in _FUSED),
}
# Operators with multiply-adds that have no formula here: a model with one has no known FLOPs.
_WITHOUT = (
    *("_native_multi_head_attention", "_transformer_encoder_layer_fwd", "_trilinear"),
    *("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn", "_thnn_fused_lstm_cell"),
    *("_flash_attention_forward", "_efficient_attention_forward", "_grouped_mm"),
)


def _existing(names: Iterable[str]) -> list[Any]:
    """Return the operators of these names; not every version of PyTorch has all."""
    operators = torch.ops.aten
    return [getattr(operators, name) for name in names if hasattr(operators, name)]


_FORMULAS = {each: formula for formula, names in _NAMES.items() for each in _existing(names)}
_UNCOUNTED = frozenset(_existing(_WITHOUT))

_QUEUED = 8  # calls for an accelerator at once: waiting for each would be a part of its time


def measured_peak(device: torch.device, dtype: str, done_by_model: float | None = None) -> Peak:
    """Measure the device's peak with the threads and the type of the model."""
    with torch.inference_mode(), _products_as_convolutions(device):
        return peak.measured(probes_of(device, dtype), done_by_model=done_by_model)


def probes_of(device: torch.device, dtype: str) -> list[Probe]:
    """Return the probes of a device; types and kinds take turns."""
    return peak.in_turns(partial(_of_type, device), dtype)


def _of_type(device: torch.device, dtype: str) -> list[Probe]:
    accelerated, threads = device.type != "cpu", torch.get_num_threads()
    products = peak.products(threads=threads, accelerated=accelerated)
    convolutions = list(peak.convolutions(threads=threads, accelerated=accelerated))
    name = "tf32" if _tf32_is_used(device, dtype) else dtype
    make = _Making(device, getattr(torch, dtype))
    found = peak.probes(products, name, make.product)
    for layout in (torch.channels_last, torch.contiguous_format):
        found += peak.probes(convolutions, name, partial(make.convolution, layout))
    return found


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

    def convolution(self, layout: Any, convolution: Convolution, size: int) -> Call:
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

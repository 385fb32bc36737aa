"""A PyTorch model on its device, one step of inference or training, and the way of its input."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks._support.models import loss_scale
from benchmarks._support.models.descent import Descent
from benchmarks._support.models.loss_scale import LossScale
from benchmarks._support.models.spec import Built, ModelSpec, Shape
from benchmarks.torch._support.execution import Execution
from benchmarks.torch._support.framework import torch
from perfrun import SetupError

_FEW = 10_000  # numbers of an output that are looked at one by one
_AUXILIARY = 0.4  # weight of an auxiliary classifier's loss, as in torchvision's training script


@dataclass(frozen=True, kw_only=True)
class Network(Built):
    """A model with random weights; `called` is the module itself, or its compiled form."""

    module: Any
    called: Any

    def parameter_counts(self) -> tuple[int, int]:
        every = tuple(self.module.parameters())
        trained = (parameter for parameter in every if parameter.requires_grad)
        return sum(each.numel() for each in every), sum(each.numel() for each in trained)


def build(spec: ModelSpec, execution: Execution, shape: Shape | None, *, training: bool) -> Network:
    """Build a model with the seed's weights on its device; SetupError for a wrong shape."""
    shape = spec.shape_for(shape)
    torch.manual_seed(execution.seed)
    began = time.perf_counter()
    module = spec.build(shape).to(execution.device)
    if execution.channels_last:
        if spec.input_kind != "image":
            raise SetupError(f"channels_last is for images; {spec.name} takes {spec.input_kind}")
        module = module.to(memory_format=torch.channels_last)
    module.train(training)
    built_s = time.perf_counter() - began
    return Network(
        spec=spec,
        module=module,
        called=execution.compiled(module),
        shape=shape,
        build_s=built_s,
    )


def example_inputs(spec: ModelSpec, shape: Shape, batch_size: int, **where: Any) -> Any:
    """Make random inputs: tokens of the vocabulary, or normal numbers, as of normalised images."""
    if spec.input_kind == "tokens":
        return torch.randint(spec.classes, (batch_size, *shape), **where)
    return torch.randn(batch_size, *shape, **where)


def example_labels(spec: ModelSpec, inputs: Any) -> Any:
    """Make random classes; for text return the tokens: each is predicted from those before it."""
    if spec.target != "class":
        return inputs
    return torch.randint(spec.classes, (inputs.shape[0],), device=inputs.device)


def in_layout(execution: Execution, inputs: Any) -> Any:
    """Return images with their channels innermost where that is asked for, else unchanged."""
    if execution.channels_last and inputs.dim() == 4:
        return inputs.contiguous(memory_format=torch.channels_last)
    return inputs


class Forward:
    """A step of inference: `step(inputs)` returns the model's output and keeps no gradients."""

    def __init__(self, network: Network, execution: Execution) -> None:
        self._network = network
        self._execution = execution
        self._is_plain = execution.dtype == "float32"

    def __call__(self, inputs: Any) -> Any:
        with torch.inference_mode():
            if self._is_plain:
                return self._network.called(inputs)
            with self._execution.autocast():
                return self._network.called(inputs)


def check_output(spec: ModelSpec, output: Any, batch_size: int) -> None:
    """Raise RuntimeError for an output of the wrong shape, not finite, or with autograd on."""
    for tensor in tensors_of(output):
        shape = tuple(tensor.shape)
        expected = batch_size if spec.target != "class" else (batch_size, spec.classes)
        got = shape[0] if spec.target != "class" else shape
        if got != expected or not _is_finite(tensor):
            raise RuntimeError(
                f"{spec.name} gave {shape}; expected finite numbers, of shape {expected}"
            )
        if tensor.requires_grad:
            raise RuntimeError("autograd was on: training's bookkeeping is in these times")


def _is_finite(tensor: Any) -> bool:
    # `torch.isfinite` would make copies as large as the output, which could be the trial's peak
    # memory, and any operator brings 2 MB of code with it, which for a small model is 1 %.
    if tensor.numel() <= _FEW:
        return all(map(math.isfinite, tensor.flatten().tolist()))
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(tensor))


class Training:
    """A step of training: `step(inputs, labels)` is forward, loss, backward and update.

    It is stochastic gradient descent with momentum. The loss of float16 is scaled, because its
    range is small: then `loss_scaler` is there, and must settle before steps are timed.
    """

    def __init__(self, network: Network, execution: Execution, descent: Descent) -> None:
        self._network = network
        self._execution = execution
        self._optimizer = torch.optim.SGD(
            network.module.parameters(),
            lr=descent.learning_rate,
            momentum=descent.momentum,
            weight_decay=descent.weight_decay,
        )
        half = execution.dtype == "float16"
        self._scaler = torch.amp.GradScaler(
            execution.device.type, growth_interval=loss_scale.NEVER, enabled=half
        )
        self.loss_scaler = LossScaler(self._scaler) if half else None

    def __call__(self, inputs: Any, labels: Any) -> Any:
        self._optimizer.zero_grad(set_to_none=True)
        with self._execution.autocast():
            loss = loss_of(self._network.spec, self._network.called(inputs), labels)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.detach()


class LossScaler(loss_scale.LossScaler):
    """PyTorch's scaler."""

    def __init__(self, scaler: Any) -> None:
        super().__init__(scaler.get_scale())
        self._scaler = scaler

    def read(self) -> LossScale:
        state = self._scaler.state_dict()
        return LossScale(scale=state["scale"], updates=state["_growth_tracker"])

    def halve(self) -> None:
        self._scaler.load_state_dict(
            {**self._scaler.state_dict(), "scale": self._scaler.get_scale() / 2}
        )


def loss_of(spec: ModelSpec, output: Any, labels: Any) -> Any:
    """Return the cross entropy of the class or the next token, else the mean of the squares."""
    results = tuple(tensors_of(output))
    if spec.target == "none":
        return sum(result.float().square().mean() for result in results)
    cross_entropy = torch.nn.functional.cross_entropy
    if spec.target == "next_token":
        logits = results[0][:, :-1].flatten(0, 1)
        return cross_entropy(logits.float(), labels[:, 1:].flatten())
    main, *auxiliary = (cross_entropy(result.float(), labels) for result in results)
    return main + sum(_AUXILIARY * loss for loss in auxiliary)


def tensors_of(output: Any) -> Iterator[Any]:
    """Yield the floating point tensors of a model's output: a tensor, a tuple, or a mapping."""
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif output is not None:
        parts = output.values() if isinstance(output, Mapping) else output
        for part in parts if isinstance(output, (Mapping, tuple, list)) else ():
            yield from tensors_of(part)


Step = Callable[..., Any]


DEVICE, PINNED = "synthetic/device", "synthetic/pinned"


class Transfers:
    """Copies of tensors from the host to the device, and of results from there.

    On the CPU both are copies in memory; pinned memory is for accelerators and has no effect there.
    """

    def __init__(self, tensors: tuple[Any, ...], data: str, execution: Execution) -> None:
        self._execution = execution
        held = tuple(tensor.cpu() for tensor in tensors)
        self.is_pinned = data == PINNED and execution.device.type == "cuda"
        self._source = tuple(tensor.pin_memory() for tensor in held) if self.is_pinned else held

    def bring(self) -> tuple[Any, ...]:
        """Return the input, copied to the device."""
        device = self._execution.device
        return tuple(
            in_layout(self._execution, tensor.to(device, non_blocking=self.is_pinned, copy=True))
            for tensor in self._source
        )

    def out(self, result: Any) -> Any:
        """Return the result in host memory, a copy on the CPU, too."""
        if isinstance(result, torch.Tensor):
            return result.to("cpu", copy=True)
        if isinstance(result, Mapping):
            return {name: self.out(part) for name, part in result.items()}
        if isinstance(result, (tuple, list)):
            return tuple(self.out(part) for part in result)
        return result

    @property
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on the transfers."""
        on_cpu = self._execution.device.type == "cpu"
        kind = "pinned" if self.is_pinned else "pageable"
        return {"data_copied": "within host memory" if on_cpu else f"from {kind} host memory"}

"""The experiments of a lecture on performance in PyTorch: a small network, fusion, scheduling."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from benchmarks._support.kept_memory import keep_freed_memory
from benchmarks._support.knobs import Configured
from benchmarks._support.operators import fusion_metrics, seconds_of
from benchmarks.torch._support import execution
from benchmarks.torch._support.torchscript import scripted

INPUTS, HIDDEN, OUTPUTS = 1000, 100, 10
LEARNING_RATE = 1e-4
SIZE = 1000  # side of the matrices
LONGEST_BLOCK = 1000  # steps


class Lecture(Configured):
    """The lecture's programs; weights and input come from a seed, and a step prints nothing."""

    takes = (
        "batch_size",
        "iterations",
        "warmup",
        "size",
        "device",
        "intra_threads",
        "inter_threads",
        "seed",
    )

    def __init__(self, *args: Any, **knobs: Any) -> None:
        super().__init__(*args, **knobs)
        self._allocator = keep_freed_memory()  # so that no side of a comparison pays for it

    def two_layers(self) -> None:
        """Train the lecture's network of two layers, 1000-100-10, by gradient descent."""
        device, batch = (
            execution.prepared_device(self.settings),
            self.settings.value("batch_size", 64),
        )
        examples = torch.randn(batch, INPUTS, device=device)
        wanted = torch.randn(batch, OUTPUTS, device=device)
        model = torch.nn.Sequential(
            torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, OUTPUTS)
        ).to(device)
        loss_fn = torch.nn.MSELoss(reduction="sum")

        def step() -> None:
            model.zero_grad()
            loss_fn(model(examples), wanted).backward()
            with torch.no_grad():
                for weights in model.parameters():
                    weights -= LEARNING_RATE * weights.grad

        def loss() -> float:
            with torch.inference_mode():
                return float(loss_fn(model(examples), wanted))

        first_loss = loss()
        timed = self._measure(step, items_per_step=batch, item="example")
        if not loss() < first_loss:
            raise RuntimeError(f"the loss went from {first_loss} to {loss()}")
        self._report(timed, device, [{"name": "final_loss", "value": loss()}])

    def recurrent_cell(self) -> None:
        """Calculate the next state of a recurrent cell compiled, and compare with eagerly."""
        device = execution.prepared_device(self.settings)
        shapes = ((1, 10), (1, 20), (20, 10), (20, 20))
        self._compare(_next_state, [torch.randn(*shape, device=device) for shape in shapes])

    def scaled_product(self) -> None:
        """Calculate `x.t() @ y * 100 + 10` compiled, and compare with eagerly: three passes."""
        device, size = execution.prepared_device(self.settings), self.settings.value("size", SIZE)
        self._compare(_scaled_product, [torch.randn(1, size, device=device) for _ in range(2)])

    def recurrent_cell_torchscript(self) -> None:
        """Calculate the recurrent cell by TorchScript, and compare with eagerly."""
        device = execution.prepared_device(self.settings)
        shapes = ((1, 10), (1, 20), (20, 10), (20, 20))
        tensors = [torch.randn(*shape, device=device) for shape in shapes]
        self._compare(_next_state, tensors, by=scripted)

    def scaled_product_torchscript(self) -> None:
        """Calculate `x.t() @ y * 100 + 10` by TorchScript, and compare with eagerly."""
        device, size = execution.prepared_device(self.settings), self.settings.value("size", SIZE)
        tensors = [torch.randn(1, size, device=device) for _ in range(2)]
        self._compare(_scaled_product, tensors, by=scripted)

    def products_in_turn(self) -> None:
        """Calculate `x @ y + 100` and `x @ z + 1000`, which do not need each other, in turn."""
        device, (x, y, z) = self._matrices()
        self._run(lambda: (x @ y + 100) + (x @ z + 1000), device)

    def products_side_by_side(self) -> None:
        """Calculate the same in two threads; give each its processors by `--threads`."""
        device, (x, y, z) = self._matrices()
        with ThreadPoolExecutor(1) as other:

            def step() -> torch.Tensor:
                second = other.submit(_product_plus, x, z, 1000.0)
                return _product_plus(x, y, 100.0) + second.result()

            self._run(step, device)

    def _matrices(self) -> tuple[torch.device, list[torch.Tensor]]:
        device, size = execution.prepared_device(self.settings), self.settings.value("size", SIZE)
        return device, [torch.randn(size, size, device=device) for _ in range(3)]

    def _compare(
        self,
        function: Callable[..., torch.Tensor],
        tensors: list[torch.Tensor],
        by: Callable[..., Any] = torch.compile,
    ) -> None:
        """Time a function eagerly, then compiled in intervals that take as long."""
        with torch.inference_mode():
            began_s = time.perf_counter()
            compiled = by(function)  # TorchScript compiles here, torch.compile in the first call
            result = compiled(*tensors)
            execution.wait(tensors[0].device)
            first_call_s = time.perf_counter() - began_s
            if not torch.allclose(result, function(*tensors), rtol=1e-4, atol=1e-4):
                raise RuntimeError("the compiled result is not that of the plain code")
            eager = self._measure(lambda: function(*tensors), name="eager")
            interval_s = eager.median_s * eager.block_size
            block = round(interval_s / seconds_of(lambda: compiled(*tensors)))
            block = max(1, min(block, LONGEST_BLOCK))
            fused = self._measure(lambda: compiled(*tensors), name="compiled", block_size=block)
        metrics = fusion_metrics(eager, fused, first_call_s)
        how = "torchscript" if by is scripted else "torch.compile"
        self._report(fused, tensors[0].device, metrics, {"compiled_by": how})

    def _run(self, step: Callable[[], Any], device: torch.device) -> None:
        with torch.inference_mode():
            self._report(self._measure(step), device)

    def _measure(self, step: Callable[[], Any], **options: Any) -> Any:
        limits = {name: self.settings.value(name) for name in ("iterations", "warmup")}
        given = {name: value for name, value in limits.items() if value is not None}
        return self.measure(step, **{"item": "operation", "report": False, **given, **options})

    def _report(
        self,
        timed: Any,
        device: torch.device,
        metrics: Sequence[Mapping[str, Any]] = (),
        more: Mapping[str, str] | None = None,
    ) -> None:
        extras = {
            "device": execution.description(device),
            "allocator": self._allocator,
            "threads": torch.get_num_threads(),
            "torch_version": torch.__version__,
            **(more or {}),
        }
        self.report_benchmark(**timed.report_arguments(extras, metrics))


def _next_state(
    x: torch.Tensor, state: torch.Tensor, from_x: torch.Tensor, from_state: torch.Tensor
) -> torch.Tensor:
    return (torch.mm(from_x, x.t()) + torch.mm(from_state, state.t())).tanh()


def _scaled_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.mm(x.t(), y) * 100 + 10


def _product_plus(left: torch.Tensor, right: torch.Tensor, constant: float) -> torch.Tensor:
    with torch.inference_mode():  # which is a matter of the thread
        return left @ right + constant

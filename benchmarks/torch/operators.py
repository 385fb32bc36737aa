"""Single operators of PyTorch: FLOP/s and bytes/s of each, by shape, type and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks._support import operators
from benchmarks._support.operators import CHANNELS, HEAD_SIZE, HEADS, Work, fusion_metrics
from benchmarks.torch._support import execution

_nn = torch.nn.functional


class Operators(operators.Operators):
    """Operators as a model calls them, without autograd."""

    def matmul(self) -> None:
        """Multiply two square matrices."""
        device = execution.prepared_device(self.settings)
        size = self._size("matmul", accelerated=device.type != "cpu")
        left, right = self._normal(device, size, size), self._normal(device, size, size)
        self._run(lambda: left @ right, operators.matmul(size, self._dtype), device)

    def conv2d(self) -> None:
        """Convolve images with 3x3 kernels, 64 channels in and out."""
        device = execution.prepared_device(self.settings)
        batch, size = self._shape("conv2d", device)
        images = self._normal(device, batch, CHANNELS, size, size)
        weights = self._normal(device, CHANNELS, CHANNELS, 3, 3)
        work = operators.conv2d(batch, size, CHANNELS, self._dtype)
        self._run(lambda: _nn.conv2d(images, weights, padding=1), work, device)

    def attention(self) -> None:
        """Scaled dot product attention, 8 heads of 64."""
        device = execution.prepared_device(self.settings)
        batch, tokens = self._shape("attention", device)
        query, key, value = (
            self._normal(device, batch, HEADS, tokens, HEAD_SIZE) for _ in range(3)
        )
        work = operators.attention(batch, HEADS, tokens, HEAD_SIZE, self._dtype)
        self._run(lambda: _nn.scaled_dot_product_attention(query, key, value), work, device)

    def layer_norm(self) -> None:
        """Normalise rows, with scale and shift."""
        device = execution.prepared_device(self.settings)
        rows, features = self._shape("layer_norm", device)
        values = self._normal(device, rows, features)
        scale, shift = self._normal(device, features), self._normal(device, features)
        work = operators.layer_norm(rows, features, self._dtype)
        self._run(lambda: _nn.layer_norm(values, (features,), scale, shift), work, device)

    def elementwise_eager(self) -> None:
        """Run a chain of eight elementwise operators one by one."""
        device, values, size = self._chain_input()
        work = operators.elementwise(size, self._dtype, fused=False)
        self._run(lambda: _chain(values), work, device)

    def elementwise_fused(self) -> None:
        """Run the same chain compiled into one kernel, and compare with running it eagerly."""
        device, values, size = self._chain_input()
        chain = torch.compile(_chain)
        eager_work = operators.elementwise(size, self._dtype, fused=False)
        work = operators.elementwise(size, self._dtype, fused=True)
        with torch.inference_mode():
            began_s = time.perf_counter()
            result = _compiled(chain, values)
            execution.wait(device)
            first_call_s = time.perf_counter() - began_s
            _check_same(result, _chain(values))
            eager, fused = self._timed_both(
                lambda: _chain(values), lambda: chain(values), (eager_work, work)
            )
        metrics = fusion_metrics(eager, fused, first_call_s)
        self._report(fused, work, self._facts(device), metrics)

    def transfer_to_device(self) -> None:
        """Copy a tensor from pinned memory to the device; on the CPU, to another tensor."""
        device = execution.prepared_device(self.settings)
        source = self._normal(torch.device("cpu"), *self._square(device))
        source = source.pin_memory() if device.type == "cuda" else source
        self._copy(source, torch.empty_like(source, device=device), device, "host to device")

    def transfer_from_device(self) -> None:
        """Copy a tensor from the device to pinned memory; on the CPU, to another tensor."""
        device = execution.prepared_device(self.settings)
        source = self._normal(device, *self._square(device))
        target = torch.empty_like(source, device="cpu", pin_memory=device.type == "cuda")
        self._copy(source, target, device, "device to host")

    def _normal(self, device: torch.device, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(getattr(torch, self._dtype))

    def _shape(self, operator: str, device: torch.device) -> tuple[int, int]:
        accelerated = device.type != "cpu"
        batch = self._batch(operator, accelerated=accelerated)
        return batch, self._size(operator, accelerated=accelerated)

    def _square(self, device: torch.device) -> tuple[int, int]:
        size = self._size("transfer", accelerated=device.type != "cpu")
        return size, size

    def _chain_input(self) -> tuple[torch.device, torch.Tensor, int]:
        device = execution.prepared_device(self.settings)
        size = self._size("elementwise", accelerated=device.type != "cpu")
        return device, self._normal(device, size, size), size

    def _copy(
        self, source: torch.Tensor, target: torch.Tensor, device: torch.device, way: str
    ) -> None:
        if device.type == "cpu":
            way = "a copy within the CPU's memory: there is no other device"
        elif device.type == "cuda":
            way += ", pinned memory"
        work = operators.transfer(source.shape[0], self._dtype, way)
        self._run(lambda: target.copy_(source, non_blocking=True), work, device)
        _check_same(target.cpu(), source.cpu())

    def _run(self, step: Callable[[], torch.Tensor], work: Work, device: torch.device) -> None:
        with torch.inference_mode():
            timed = self._timed(step, work)
            if not bool(torch.isfinite(step()).all()):
                raise RuntimeError(f"{work.operator} of {work.shapes} gave values not finite")
        self._report(timed, work, self._facts(device))

    def _facts(self, device: torch.device) -> dict[str, Any]:
        return {
            "device": execution.description(device),
            "threads": torch.get_num_threads(),
            "torch_version": torch.__version__,
        }


def _chain(values: torch.Tensor) -> torch.Tensor:
    """Calculate `operations.CHAIN`."""
    kept = torch.clamp_min(values * 1.5 + 0.5, 0.0) * values
    return torch.abs(kept - 1.0) * 0.5 + values


def _compiled(chain: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """Make the first call, which compiles."""
    try:
        return chain(values)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RuntimeError(
            f"torch.compile does not work here ({type(error).__name__}: {reason}); on a CPU it "
            "needs a C++ compiler (g++), on a GPU Triton"
        ) from error


def _check_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-5 if expected.dtype == torch.float32 else 5e-2
    if not torch.allclose(found.float(), expected.float(), rtol=tolerance, atol=tolerance):
        raise RuntimeError("the result differs from the reference; these times mean nothing")

"""Input that lives on the host, and its way to the device and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.torch.execution import Execution
from benchmarks.torch.framework import torch
from benchmarks.torch.workload import in_layout

DEVICE, PINNED = "synthetic/device", "synthetic/pinned"


class Transfers:
    """Copies of tensors from the host to the device, and of results from there.

    On the CPU both are copies in memory; pinned memory is for accelerators and without effect here.
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
        """Return what a report says about it."""
        on_cpu = self._execution.device.type == "cpu"
        kind = "pinned" if self.is_pinned else "pageable"
        return {"data_copied": "within host memory" if on_cpu else f"from {kind} host memory"}

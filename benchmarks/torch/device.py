"""The device a PyTorch benchmark runs on, and how to wait for it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import timing


def current() -> torch.device:
    """Return the accelerator where PyTorch sees one, else the CPU."""
    if not hasattr(torch, "accelerator"):  # PyTorch before 2.6
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def synchronizer(device: torch.device) -> Callable[[], object]:
    """Return what waits until all work queued on the device is done."""
    if device.type == "cpu":
        return timing.no_wait
    wait: Callable[[], object] = getattr(torch, "accelerator", torch.cuda).synchronize
    return wait


def description(device: torch.device) -> str:
    """Return the device's type, and its model where PyTorch tells it."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return str(device.type)

"""The device a PyTorch benchmark runs on."""

from __future__ import annotations

from benchmarks.torch.framework import torch
from perfrun import SetupError


def current() -> torch.device:
    """Return the accelerator where PyTorch sees one, else the CPU."""
    if not hasattr(torch, "accelerator"):  # PyTorch before 2.6
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def description(device: torch.device) -> str:
    """Return the device's type, and its model where PyTorch tells it."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return str(device.type)


def chosen(name: str) -> torch.device:
    """Return the device that the knob `device` names; SetupError where PyTorch does not see it."""
    if name == "auto":
        return current()
    kind, _, index = name.partition(":")
    if kind == "gpu":  # whichever accelerator there is
        kind = current().type if current().type != "cpu" else "cuda"
    if kind != "cpu" and (kind != current().type or int(index or 0) >= count()):
        raise SetupError(f"device is {name!r}; PyTorch {torch.__version__} sees {_seen()} here")
    return torch.device(f"{kind}:{index}" if index else kind)


def count() -> int:
    """Return how many accelerators PyTorch sees."""
    if not hasattr(torch, "accelerator"):
        return int(torch.cuda.device_count())
    return int(torch.accelerator.device_count())


def _seen() -> str:
    return "no accelerator" if not count() else f"{count()} of the type {current().type}"


def wait(device: torch.device) -> None:
    """Return when the device has done all that was queued for it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type != "cpu":
        torch.accelerator.synchronize(device)

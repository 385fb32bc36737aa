"""The device a PyTorch benchmark runs on."""

from __future__ import annotations

import torch


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

"""NVIDIA devices, by the management library (nvidia-ml-py). The only module that knows it."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from perfrun.dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Accelerators:
    """The devices of this machine. Made only when there is at least one."""

    model: str  # of the first device that is not there for the display
    count: int
    driver_version: str
    models: tuple[str, ...]
    memory_bytes: tuple[int | None, ...]  # None where the device has none of its own


def accelerators() -> Accelerators | None:
    """Return the NVIDIA devices, or None when there is no driver or no device.

    The model is the first device's, or the second's where the first is a Quadro and there are two
    or more: PerfZero's rule for workstations whose first card drives the screen.
    """
    with _nvml() as nvml:
        if nvml is None:
            return None
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            models = tuple(_text(nvml.nvmlDeviceGetName(handle)) for handle in handles)
            memory = tuple(_memory_bytes(nvml, handle) for handle in handles)
            driver = _text(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError:
            return None
    if not models:
        return None
    return Accelerators(
        model=main_model(models),
        count=len(models),
        driver_version=driver,
        models=models,
        memory_bytes=memory,
    )


def _memory_bytes(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # devices that share the host's memory do not say
        return None


def main_model(models: tuple[str, ...]) -> str:
    """PerfZero's choice among several devices."""
    return models[1] if len(models) > 1 and "Quadro" in models[0] else models[0]


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """The library, started; None where there is none to start."""
    try:
        # Whether there is a driver at all is known for a hundredth of what the binding costs.
        ctypes.CDLL("libnvidia-ml.so.1")
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, or a library that does not fit it: the same to us
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

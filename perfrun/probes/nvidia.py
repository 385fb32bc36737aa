"""Read NVIDIA devices through NVML (nvidia-ml-py); no other module uses that library.

Source of the figures and their units: NVML API reference.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from perfrun.probes.accelerators import Accelerators, DeviceReading

NO_DRIVER = "no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded"
# Constants of the API and the names in a summary. The first two do not mean that the device is held
# back: it is idle, or an application has set its clocks.
_REASON_NAMES = {
    "GpuIdle": "gpu_idle",
    "ApplicationsClocksSetting": "applications_clocks_setting",
    "SwPowerCap": "sw_power_cap",
    "HwSlowdown": "hw_slowdown",
    "SyncBoost": "sync_boost",
    "SwThermalSlowdown": "sw_thermal_slowdown",
    "HwThermalSlowdown": "hw_thermal_slowdown",
    "HwPowerBrakeSlowdown": "hw_power_brake_slowdown",
    "DisplayClockSetting": "display_clock_setting",
}


class NvidiaDevice:
    """One NVIDIA device. A figure that it does not support is None."""

    vendor = "nvidia"

    def __init__(self, nvml: Any, index: int) -> None:
        """Open the device. Raises the library's error when that fails."""
        self._nvml = nvml
        self.index = index
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.name = _text(nvml.nvmlDeviceGetName(self._handle))
        self.uuid = self._asked(lambda: _text(nvml.nvmlDeviceGetUUID(self._handle)))
        self._reasons = reason_bits(nvml)
        memory = self._asked(lambda: nvml.nvmlDeviceGetMemoryInfo(self._handle))
        self.total_bytes: int | None = int(memory.total) if memory else None

    def read(self) -> DeviceReading:
        """Return the current state, by about ten calls into the driver."""
        nvml, handle = self._nvml, self._handle
        memory = self._asked(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        busy = self._asked(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        milliwatts = self._asked(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return DeviceReading(
            used_bytes=int(memory.used) if memory else None,
            utilization_percent=float(busy.gpu) if busy else None,
            memory_utilization_percent=float(busy.memory) if busy else None,
            sm_clock_mhz=self._asked(
                lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
            ),
            memory_clock_mhz=self._asked(
                lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
            ),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            temperature_c=self._asked(
                lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            throttle_reasons=self._throttle_reasons(),
        )

    def processes(self) -> Mapping[int, int | None] | None:
        """Return host pid -> bytes of all processes that compute or draw on the device."""
        nvml, found = self._nvml, {}
        known = False
        for name in ("Compute", "Graphics"):
            call = getattr(nvml, f"nvmlDeviceGet{name}RunningProcesses", None)
            listed = self._asked(lambda call=call: call(self._handle)) if call else None  # type: ignore[misc]
            if listed is None:
                continue
            known = True
            for process in listed:
                used = process.usedGpuMemory
                found[int(process.pid)] = None if used is None else int(used)
        return found if known else None

    def energy_j(self) -> float | None:
        """Return joules since the driver was loaded (Volta and newer; NVML counts millijoules)."""
        call = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        millijoules = self._asked(lambda: call(self._handle))
        return None if millijoules is None else millijoules / 1e3

    def _throttle_reasons(self) -> tuple[str, ...] | None:
        bits = self._asked(lambda: _current_reasons(self._nvml)(self._handle))
        if bits is None:
            return None
        return tuple(name for bit, name in self._reasons.items() if bits & bit)

    def _asked(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call; None where device or driver do not support it."""
        try:
            return call()
        except (self._nvml.NVMLError, AttributeError):
            return None


def _current_reasons(nvml: Any) -> Any:
    """Return the call for the reasons: driver 535 renamed it, older ones know the old name."""
    try:
        return nvml.nvmlDeviceGetCurrentClocksEventReasons
    except AttributeError:
        return nvml.nvmlDeviceGetCurrentClocksThrottleReasons


def reason_bits(nvml: Any) -> dict[int, str]:
    """Return bit -> name of the reasons for lower clocks."""
    found = {}
    for constant, name in _REASON_NAMES.items():
        for prefix in ("nvmlClocksEventReason", "nvmlClocksThrottleReason"):
            bit = getattr(nvml, prefix + constant, None)
            if bit:
                found[int(bit)] = name
                break
    return found


@cache
def nvidia_devices() -> tuple[tuple[NvidiaDevice, ...], str | None]:
    """Return the devices, or the reason why there are none.

    The library stays initialised, since initialising it is slow.
    """
    try:
        # Loading the driver's library costs a hundredth of importing the binding.
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return (), NO_DRIVER
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        devices = tuple(NvidiaDevice(pynvml, index) for index in range(count))
    except Exception as error:  # a library that does not fit its driver fails in many ways
        return (), f"the NVIDIA driver does not answer: {error}"
    return devices, None if devices else "the NVIDIA driver has no device"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def nvidia_accelerators() -> Accelerators | None:
    """Return the NVIDIA devices, or None when there is no driver or no device."""
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
        vendor="nvidia",
        model=main_model(models),
        count=len(models),
        driver_version=driver,
        models=models,
        memory_bytes=memory,
    )


def _memory_bytes(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:  # a device that shares the host's memory
        return None


def main_model(models: tuple[str, ...]) -> str:
    """Return the first model, or the second where the first is a Quadro.

    This is PerfZero's rule for workstations whose first card drives the screen.
    """
    return models[1] if len(models) > 1 and "Quadro" in models[0] else models[0]


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """Initialise the library and shut it down again; yield None where that fails."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver, or a library that does not fit it
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()

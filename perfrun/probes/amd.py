"""Read AMD devices through amdsmi, which comes with ROCm, where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from perfrun.probes.accelerators import DeviceReading

NO_DRIVER = "no AMD driver: there is no /dev/kfd"
NO_LIBRARY = "amdsmi cannot be imported; it comes with ROCm (pip install /opt/rocm/share/amd_smi)"
_MIB = 2**20


class AmdDevice:
    """One AMD device. A figure that it does not support is None."""

    vendor = "amd"

    def __init__(self, smi: Any, index: int, handle: Any) -> None:
        self._smi, self._handle, self.index = smi, handle, index
        asic = self._asked(lambda: smi.amdsmi_get_gpu_asic_info(handle)) or {}
        self.name = str(asic.get("market_name") or "AMD device")
        self.uuid: str | None = self._asked(lambda: str(smi.amdsmi_get_gpu_device_uuid(handle)))
        self.total_bytes = _mebibytes(self._memory().get("vram_total"))

    def read(self) -> DeviceReading:
        """Return the current state."""
        smi, handle = self._smi, self._handle
        busy = self._asked(lambda: smi.amdsmi_get_gpu_activity(handle)) or {}
        power = self._asked(lambda: smi.amdsmi_get_power_info(handle)) or {}
        watts = (power.get("current_socket_power"), power.get("average_socket_power"))
        return DeviceReading(
            used_bytes=_mebibytes(self._memory().get("vram_used")),
            utilization_percent=_number(busy.get("gfx_activity")),
            memory_utilization_percent=_number(busy.get("umc_activity")),
            sm_clock_mhz=self._clock("GFX"),
            memory_clock_mhz=self._clock("MEM"),
            power_w=next((watt for watt in map(_number, watts) if watt), None),
            temperature_c=self._temperature(),
        )

    def processes(self) -> Mapping[int, int | None] | None:
        """Return pid -> bytes of all processes that use the device."""
        listed = self._asked(lambda: self._smi.amdsmi_get_gpu_process_list(self._handle))
        if listed is None:
            return None
        return {int(p["pid"]): int(p["memory_usage"]["vram_mem"]) for p in listed}

    def energy_j(self) -> float | None:
        """Return joules since the driver was loaded; the counter's steps are some microjoules."""
        count = self._asked(lambda: self._smi.amdsmi_get_energy_count(self._handle))
        if not count:
            return None
        steps = count.get("energy_accumulator", count.get("power"))
        if steps is None:
            return None
        return float(steps) * float(count["counter_resolution"]) / 1e6

    def _memory(self) -> Mapping[str, Any]:
        return self._asked(lambda: self._smi.amdsmi_get_gpu_vram_usage(self._handle)) or {}

    def _clock(self, name: str) -> float | None:
        kind = getattr(self._smi.AmdSmiClkType, name, None)
        clock = self._asked(lambda: self._smi.amdsmi_get_clock_info(self._handle, kind)) or {}
        return _number(clock.get("clk", clock.get("cur_clk")))

    def _temperature(self) -> float | None:
        smi = self._smi
        celsius = self._asked(
            lambda: smi.amdsmi_get_temp_metric(
                self._handle,
                smi.AmdSmiTemperatureType.HOTSPOT,
                smi.AmdSmiTemperatureMetric.CURRENT,
            )
        )
        return _number(celsius)

    def _asked(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call; None where device, driver or version do not support it."""
        try:
            return call()
        except Exception:  # its errors share no base class over the versions
            return None


def _number(value: Any) -> float | None:
    """Return a figure; None for the text N/A, which amdsmi uses for an unknown one."""
    return float(value) if isinstance(value, int | float) else None


def _mebibytes(value: Any) -> int | None:
    return int(value) * _MIB if isinstance(value, int | float) else None


@cache
def amd_devices() -> tuple[tuple[AmdDevice, ...], str | None]:
    """Return the devices, or the reason why there are none. The library stays initialised."""
    if not Path("/dev/kfd").exists():
        return (), NO_DRIVER
    try:
        import amdsmi

        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
    except ImportError:
        return (), NO_LIBRARY
    except Exception as error:
        return (), f"the AMD driver does not answer: {error}"
    devices = tuple(AmdDevice(amdsmi, index, handle) for index, handle in enumerate(handles))
    return devices, None if devices else "the AMD driver has no device"

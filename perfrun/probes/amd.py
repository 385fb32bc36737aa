"""Read AMD devices: what they are from /sys, their figures through amdsmi, which comes with ROCm.

Sources: drivers/gpu/drm/amd/amdkfd/kfd_topology.c of the kernel;
Documentation/gpu/amdgpu/driver-misc.rst.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from perfrun.probes.accelerators import Accelerators, DeviceReading
from perfrun.probes.sysfs import Sysfs
from perfrun.worker.cgroups import whole_number

NO_DRIVER = "no AMD driver: there is no /dev/kfd"
NO_LIBRARY = "amdsmi cannot be imported; it comes with ROCm (pip install /opt/rocm/share/amd_smi)"
_MIB = 2**20
_NODES = "/sys/class/kfd/kfd/topology/nodes"


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


def amd_accelerators(sysfs: Sysfs) -> Accelerators | None:
    """Return the AMD devices that this process can compute on; None when there are none.

    The driver lists all of the machine. A container sees those whose render nodes it was given.
    """
    found = []
    for node in sysfs.names(_NODES):
        said = sysfs.table(f"{_NODES}/{node}/properties")
        domain, place, minor, target = (
            _integer(said.get(key))
            for key in ("domain", "location_id", "drm_render_minor", "gfx_target_version")
        )
        if minor and sysfs.exists(f"/dev/dri/renderD{minor}"):  # a CPU is a node without one
            device = f"/sys/class/drm/renderD{minor}/device"
            memory = sysfs.number(f"{device}/mem_info_vram_total")
            name = sysfs.text(f"{device}/product_name")  # of server cards only
            found.append(((domain, place, minor), name, target, memory))
    if not found or not sysfs.exists("/dev/kfd"):
        return None
    found.sort(key=lambda one: one[0])  # as AMD's tools number them
    models = _models([name for _, name, _, _ in found], [target for _, _, target, _ in found])
    return Accelerators(
        vendor="amd",
        model=models[0],
        count=len(models),
        driver_version=sysfs.text("/sys/module/amdgpu/version") or platform.release(),
        models=models,
        memory_bytes=tuple(memory for *_, memory in found),
    )


def _models(named: list[str | None], targets: list[int]) -> tuple[str, ...]:
    """Return a name of each device: the card's, else amdsmi's, else that of its instruction set."""
    known: tuple[str, ...] = ()
    if not all(named):
        devices, _ = amd_devices()
        known = tuple(device.name for device in devices) if len(devices) == len(named) else ()
    return tuple(
        name or (known[place] if known else _target(target))
        for place, (name, target) in enumerate(zip(named, targets, strict=True))
    )


def _target(version: int) -> str:
    """Return `AMD gfx90a` of 90010: two digits each for minor and stepping, this one in hex."""
    if not version:
        return "AMD device"
    return f"AMD gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _integer(text: str | None) -> int:
    return whole_number(text or "") or 0

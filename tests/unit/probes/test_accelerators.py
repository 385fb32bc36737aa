"""Sampling of devices: the real library without a driver, the sampler with known devices.

`RealNvml` has the names, structures and errors of the real nvidia-ml-py; only the driver under it
is made up, because no test machine can be asked to have one.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from worlds import wait_until

from perfrun.probes import accelerators
from perfrun.probes.accelerators import DeviceReading, DeviceSampler, DevicesUsage
from perfrun.probes.amd import AmdDevice, amd_devices
from perfrun.probes.nvidia import NO_DRIVER, NvidiaDevice, nvidia_devices, reason_bits

GIB = 2**30


class RealNvml:
    """pynvml with a driver that answers; all else is from the real module."""

    def __init__(self, *unsupported: str) -> None:
        self._unsupported = unsupported
        self.energy = itertools.count(5_000_000, 40_000)

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def _checked(self, name: str) -> None:
        if name in self._unsupported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return b"GPU-7"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._checked("memory")
        info = pynvml.c_nvmlMemory_t()
        info.total, info.used = 139 * GIB, 3 * GIB
        return info

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        info = pynvml.c_nvmlUtilization_t()
        info.gpu, info.memory = 87, 40
        return info

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._checked("power")
        return 350_500

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[kind]

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return 61

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        bits = pynvml.nvmlClocksEventReasonSwPowerCap
        return int(bits | pynvml.nvmlClocksEventReasonHwThermalSlowdown)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._checked("energy")
        return next(self.energy)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        self._checked("processes")
        return [
            SimpleNamespace(pid=100, usedGpuMemory=2 * GIB),
            SimpleNamespace(pid=900, usedGpuMemory=GIB // 2),
        ]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:
        self._checked("processes")
        return [SimpleNamespace(pid=901, usedGpuMemory=None)]


@pytest.fixture(autouse=True)
def on_a_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let pids be those of the driver, also where the tests run in a container."""
    monkeypatch.setattr(accelerators, "in_pid_namespace", lambda: False)
    nvidia_devices.cache_clear()
    amd_devices.cache_clear()
    yield
    nvidia_devices.cache_clear()
    amd_devices.cache_clear()


def test_without_a_driver_the_reason_is_said() -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a device")
    assert nvidia_devices() == ((), NO_DRIVER)


def test_the_real_library_without_a_driver_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a device")
    load = ctypes.CDLL

    def pretended(name: str, *arguments: Any) -> Any:
        """Let our own quick test find the library, but not the binding's."""
        if name == "libnvidia-ml.so.1" and not arguments:
            monkeypatch.setattr(ctypes, "CDLL", load)
            return None
        return load(name, *arguments)

    monkeypatch.setattr(ctypes, "CDLL", pretended)
    found, reason = nvidia_devices()
    assert found == ()
    assert "NVML Shared Library Not Found" in (reason or "")


def test_a_reading_is_in_the_units_that_it_says() -> None:
    device = NvidiaDevice(RealNvml(), 3)
    assert (device.index, device.name, device.uuid) == (3, "NVIDIA H200", "GPU-7")
    assert device.total_bytes == 139 * GIB
    assert device.read() == DeviceReading(
        used_bytes=3 * GIB,
        utilization_percent=87.0,
        memory_utilization_percent=40.0,
        sm_clock_mhz=1980.0,
        memory_clock_mhz=3201.0,
        power_w=350.5,
        temperature_c=61.0,
        throttle_reasons=("sw_power_cap", "hw_thermal_slowdown"),
    )
    assert device.processes() == {100: 2 * GIB, 900: GIB // 2, 901: None}
    assert device.energy_j() == 5000.0


def test_what_a_device_does_not_support_is_unknown() -> None:
    device = NvidiaDevice(RealNvml("memory", "power", "energy", "processes"), 0)
    reading = device.read()
    assert (device.total_bytes, reading.used_bytes, reading.power_w) == (None, None, None)
    assert reading.sm_clock_mhz == 1980.0
    assert device.energy_j() is None
    assert device.processes() is None


def test_every_reason_of_the_real_library_has_a_name() -> None:
    bits = reason_bits(pynvml)
    everything = int(pynvml.nvmlClocksEventReasonAll)
    assert sum(bits) == everything
    assert len(set(bits.values())) == len(bits)


def sampled(nvml: Any, pids: set[int]) -> DevicesUsage:
    sampler = DeviceSampler([NvidiaDevice(nvml, 0)], lambda: pids, rate_hz=50.0)
    before = dict(sampler.columns())
    sampler.start()
    wait_until(lambda: sampler.columns() != before)
    used = sampler.finish()
    assert before.keys() == sampler.columns().keys()
    assert all(isinstance(value, int | float) for value in sampler.columns().values())
    return used


def test_a_trial_on_a_device_is_told_in_full() -> None:
    used = sampled(RealNvml(), {100})
    assert used.devices is not None
    (device,) = used.devices
    assert used.samples >= 2
    assert used.observer_cpu_s is not None
    assert device.used_before_bytes == device.used_peak_bytes == 3 * GIB
    assert device.process_peak_bytes == 2 * GIB
    assert device.process_reason is None
    assert device.other_processes == {900: GIB // 2, 901: None}
    assert device.utilization_percent is not None
    assert device.utilization_percent.mean == 87.0
    assert device.throttle_reasons == {"sw_power_cap": 1.0, "hw_thermal_slowdown": 1.0}
    assert (device.energy_j, device.energy_source) == (40.0, "counter")


def test_energy_without_a_counter_is_power_over_time() -> None:
    sampler = DeviceSampler([NvidiaDevice(RealNvml("energy"), 0)], lambda: {100})
    begins = [time.perf_counter()]
    sampler.start()
    wait_until(lambda: any(sampler.columns().values()))
    begins.append(time.perf_counter())
    time.sleep(0.25)
    ends = [time.perf_counter()]
    used = sampler.finish()
    ends.append(time.perf_counter())
    assert used.devices is not None
    (device,) = used.devices
    assert device.energy_source == "sampled power"
    assert device.energy_j is not None
    watched_s = device.energy_j / 350.5
    assert ends[0] - begins[1] <= watched_s <= ends[1] - begins[0]


def test_a_trial_that_is_not_on_the_device_is_told_apart_from_one_that_cannot_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (absent,) = sampled(RealNvml(), {5}).devices or ()
    assert absent.process_peak_bytes is None
    assert absent.process_reason == "no process of the trial was seen on the device"
    assert absent.other_processes is not None
    assert len(absent.other_processes) == 3
    monkeypatch.setattr(accelerators, "in_pid_namespace", lambda: True)
    (hidden,) = sampled(RealNvml(), {5}).devices or ()
    assert "as the host does" in (hidden.process_reason or "")
    assert hidden.other_processes is None
    (mute,) = sampled(RealNvml("processes"), {5}).devices or ()
    assert mute.process_reason == "the device does not tell its processes"


def test_readings_that_take_long_are_made_less_often() -> None:
    class Slow(NvidiaDevice):
        readings = 0

        def read(self) -> DeviceReading:
            self.readings += 1
            end = time.thread_time() + 0.01
            while time.thread_time() < end:
                pass
            return super().read()

    slow = Slow(RealNvml(), 0)
    sampler = DeviceSampler([slow], lambda: {1}, rate_hz=50.0)
    sampler.start()
    time.sleep(0.5)
    sampler.finish()
    assert slow.readings == 2  # the first, and the last state


def test_a_driver_that_hangs_does_not_hold_the_end_of_a_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accelerators, "_FINISH_S", 0.05)
    is_asked, may_answer = threading.Event(), threading.Event()
    device = NvidiaDevice(RealNvml(), 0)

    def hang() -> DeviceReading:
        is_asked.set()
        may_answer.wait()
        return DeviceReading()

    monkeypatch.setattr(device, "read", hang)
    sampler = DeviceSampler([device], lambda: {1})
    sampler.start()
    assert is_asked.wait(60)
    try:
        assert sampler.finish().reason == "the driver did not answer within 0.05 s"
    finally:
        may_answer.set()
        sampler.join()


class Smi:
    """amdsmi as its wheel documents it, version 7."""

    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="now")

    def amdsmi_get_gpu_asic_info(self, handle: int) -> Mapping[str, Any]:
        return {"market_name": "AMD Instinct MI300X"}

    def amdsmi_get_gpu_device_uuid(self, handle: int) -> str:
        return "ab-cd"

    def amdsmi_get_gpu_vram_usage(self, handle: int) -> Mapping[str, Any]:
        return {"vram_total": 196_592, "vram_used": 285}

    def amdsmi_get_gpu_activity(self, handle: int) -> Mapping[str, Any]:
        return {"gfx_activity": 99, "umc_activity": 12, "mm_activity": "N/A"}

    def amdsmi_get_power_info(self, handle: int) -> Mapping[str, Any]:
        return {"current_socket_power": "N/A", "average_socket_power": 310}

    def amdsmi_get_clock_info(self, handle: int, kind: str) -> Mapping[str, Any]:
        return {"clk": {"gfx": 2100, "mem": 1300}[kind]}

    def amdsmi_get_temp_metric(self, handle: int, sensor: str, metric: str) -> int:
        return 55

    def amdsmi_get_energy_count(self, handle: int) -> Mapping[str, Any]:
        return {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1}

    def amdsmi_get_gpu_process_list(self, handle: int) -> list[Mapping[str, Any]]:
        return [{"pid": 42, "memory_usage": {"vram_mem": 1000}}]


def test_an_amd_device_is_told_in_the_same_units() -> None:
    device = AmdDevice(Smi(), 0, 0)
    assert (device.name, device.uuid) == ("AMD Instinct MI300X", "ab-cd")
    assert device.total_bytes == 196_592 * 2**20
    assert device.read() == DeviceReading(
        used_bytes=285 * 2**20,
        utilization_percent=99.0,
        memory_utilization_percent=12.0,
        sm_clock_mhz=2100.0,
        memory_clock_mhz=1300.0,
        power_w=310.0,
        temperature_c=55.0,
    )
    assert device.processes() == {42: 1000}
    assert device.energy_j() == pytest.approx(30.6)


def test_without_an_amd_driver_the_reason_is_said() -> None:
    if not Path("/dev/kfd").exists():
        assert amd_devices() == ((), "no AMD driver: there is no /dev/kfd")

"""Sample the memory, utilization, clocks and power of a trial's accelerators, of any vendor.

Each vendor's module (`nvidia`, `amd`) turns its library into `Device`s. Calls into a driver are
not free, so devices are read five times a second at most, in a thread of their own, and less often
where a reading takes long. A figure that a device does not report is None.

Readings go to devices.csv as they are taken. Memory holds only running figures, so a trial of a
week needs no more of it than one of a minute.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from perfrun.dataclass import dataclass
from perfrun.probes.device_log import DeviceLog
from perfrun.probes.sysfs import in_pid_namespace

RATE_HZ = 5.0
_FINISH_S = 30.0  # for the last reading, at the end of a trial
_SHARE = 0.002  # share of a core that reading devices may take in the long run
_PROCESSES_EVERY = 5  # readings


@dataclass(frozen=True, kw_only=True)
class SampledRange:
    """The smallest, mean and largest value of a sampled figure."""

    low: float
    mean: float
    high: float


class RunningRange:
    """The smallest, mean and largest of the values so far, without the values."""

    def __init__(self) -> None:
        self._low = self._high = self._total = 0.0
        self._count = 0

    def add(self, value: float | None) -> None:
        """Take one value; None is ignored."""
        if value is None:
            return
        self._low = min(self._low, value) if self._count else value
        self._high = max(self._high, value) if self._count else value
        self._total += value
        self._count += 1

    def result(self) -> SampledRange | None:
        """Return the figures; None when there was no value."""
        if not self._count:
            return None
        return SampledRange(low=self._low, mean=self._total / self._count, high=self._high)


class RunningShares:
    """The share of the moments at which each name was present."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._known = 0

    def add(self, names: tuple[str, ...] | None) -> None:
        """Take the names of one moment; None when they are not known."""
        if names is not None:
            self._counts.update(set(names))
            self._known += 1

    def shares(self) -> Mapping[str, float] | None:
        """Return the share of each name, 0 to 1; None when the names were never known."""
        if not self._known:
            return None
        return {name: self._counts[name] / self._known for name in sorted(self._counts)}


class RunningIntegral:
    """The integral of a value over time, by trapezoids between the known moments."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._total: float | None = None

    def add(self, at_s: float, value: float | None) -> None:
        """Take the value of one moment; None when it is not known."""
        if value is None:
            return
        if self._last is not None:
            before_s, before = self._last
            self._total = (self._total or 0.0) + (at_s - before_s) * (before + value) / 2
        self._last = at_s, value

    def total(self) -> float | None:
        """Return the integral; None without two moments."""
        return self._total


@dataclass(frozen=True, kw_only=True)
class DeviceReading:
    """The state of one device at one moment."""

    used_bytes: int | None = None  # by all processes, driver included
    utilization_percent: float | None = None  # share of time in which any kernel ran
    memory_utilization_percent: float | None = None  # share of time in which memory was accessed
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] | None = None  # why clocks are lower than they could be


_FIELDS = tuple(DeviceReading.__annotations__)
_FIGURES = attrgetter(*_FIELDS)


class Device(Protocol):
    """An accelerator, as its vendor's library shows it. No method raises."""

    @property
    def vendor(self) -> str:
        """The vendor: `nvidia` or `amd`."""

    @property
    def index(self) -> int:
        """The vendor library's number of it, from 0. Frameworks may count differently."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def uuid(self) -> str | None:
        """The identifier that never changes."""

    @property
    def total_bytes(self) -> int | None:
        """The size of its memory; None where it shares the host's."""

    def read(self) -> DeviceReading:
        """Return the current state."""

    def processes(self) -> Mapping[int, int | None] | None:
        """Return host pid -> bytes held on the device; None when the device cannot tell."""

    def energy_j(self) -> float | None:
        """Return joules since the driver was loaded; only differences mean something."""


@dataclass(frozen=True, kw_only=True)
class Accelerators:
    """The devices of this machine, all of one vendor; there is at least one."""

    model: str  # of the main device: see `nvidia.main_model`
    count: int
    driver_version: str
    models: tuple[str, ...]
    memory_bytes: tuple[int | None, ...]  # None where the device has none of its own
    vendor: str = "nvidia"


@dataclass(frozen=True, kw_only=True)
class DeviceUsage:
    """The figures of one device during a trial: of the whole device, unless noted otherwise."""

    vendor: str
    index: int
    name: str
    uuid: str | None
    total_bytes: int | None
    used_before_bytes: int | None  # at the first reading, just after the worker was started
    used_peak_bytes: int | None
    process_peak_bytes: int | None  # held by the trial's processes
    process_reason: str | None  # why process_peak_bytes is unknown
    other_processes: Mapping[int, int | None] | None  # pid -> bytes, of processes not the trial's
    utilization_percent: SampledRange | None
    memory_utilization_percent: SampledRange | None
    sm_clock_mhz: SampledRange | None
    memory_clock_mhz: SampledRange | None
    power_w: SampledRange | None
    temperature_c: SampledRange | None
    throttle_reasons: Mapping[str, float] | None  # reason -> share of the readings, 0 to 1
    energy_j: float | None
    energy_source: str | None  # the device's counter, or its sampled power over time


@dataclass(frozen=True, kw_only=True)
class DevicesUsage:
    """The figures of all devices during a trial, or the reason why there are none."""

    devices: tuple[DeviceUsage, ...] | None = None
    reason: str | None = None
    samples: int = 0
    sampling_rate_hz: float | None = None
    observer_cpu_s: float | None = None


_RANGES = _FIELDS[1:-1]  # all but used_bytes and throttle_reasons


class DeviceTrack:
    """The figures of one device so far, without the readings themselves."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.samples = 0
        self._energy_before_j = device.energy_j()
        self._used_before: int | None = None
        self._used_peak: int | None = None
        self._ranges = {name: RunningRange() for name in _RANGES}
        self._throttled = RunningShares()
        self._power = RunningIntegral()
        self._own_peak: int | None = None
        self._processes_known = False
        self._others: dict[int, int | None] = {}

    def note(self, reading: DeviceReading, at_s: float) -> None:
        """Take one reading and the time at which it was made."""
        self.samples += 1
        if reading.used_bytes is not None:
            if self._used_before is None:
                self._used_before = reading.used_bytes
            self._used_peak = max(self._used_peak or 0, reading.used_bytes)
        for name, running in self._ranges.items():
            running.add(getattr(reading, name))
        self._throttled.add(reading.throttle_reasons)
        self._power.add(at_s, reading.power_w)

    def note_processes(self, holders: Mapping[int, int | None], pids: Collection[int]) -> None:
        """Take the bytes that each process holds; `pids` are the trial's processes."""
        self._processes_known = True
        own = [size for pid, size in holders.items() if pid in pids]
        if own and all(size is not None for size in own):
            self._own_peak = max(self._own_peak or 0, sum(size or 0 for size in own))
        for pid, size in holders.items():
            if pid not in pids:
                self._others[pid] = max(self._others.get(pid) or 0, size or 0) or None

    def usage(self) -> DeviceUsage:
        """Return the figures; asks the device for its energy once more."""
        device = self.device
        own_peak, reason = self._own_memory()
        energy_j, source = self._energy()
        unknown = not self._processes_known or (reason and not own_peak and in_pid_namespace())
        return DeviceUsage(
            vendor=device.vendor,
            index=device.index,
            name=device.name,
            uuid=device.uuid,
            total_bytes=device.total_bytes,
            used_before_bytes=self._used_before,
            used_peak_bytes=self._used_peak,
            process_peak_bytes=own_peak,
            process_reason=reason,
            other_processes=None if unknown else self._others,
            throttle_reasons=self._throttled.shares(),
            energy_j=energy_j,
            energy_source=source,
            **{name: running.result() for name, running in self._ranges.items()},
        )

    def _own_memory(self) -> tuple[int | None, str | None]:
        if self._own_peak is not None:
            return self._own_peak, None
        if not self._processes_known:
            return None, "the device does not tell its processes"
        if in_pid_namespace():
            return (
                None,
                "the driver names processes as the host does, and perfrun is in a container",
            )
        return None, "no process of the trial was seen on the device"

    def _energy(self) -> tuple[float | None, str | None]:
        """Return the energy by the device's counter, or by its sampled power where it has none."""
        before, after = self._energy_before_j, self.device.energy_j()
        if before is not None and after is not None and after >= before:
            return after - before, "counter"
        sampled = self._power.total()
        return sampled, None if sampled is None else "sampled power"


class DeviceSampler(threading.Thread):
    """A thread that reads devices until `finish`; `pids` returns the trial's current processes.

    `log` is the path of a new file for all readings, which this thread writes.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        pids: Callable[[], Collection[int]],
        rate_hz: float = RATE_HZ,
        log: Path | None = None,
    ) -> None:
        super().__init__(name="perfrun-devices", daemon=True)
        self._tracks = [DeviceTrack(device) for device in devices]
        self._log = DeviceLog(log, ("time", "device", *_FIELDS)) if log else None
        self._pids = pids
        self._interval_s = 1.0 / rate_hz
        self._stop_event = threading.Event()
        self._start_s = time.perf_counter()
        self._cpu_s = 0.0
        self._columns = {key: 0.0 for track in self._tracks for key in _columns(track.device, None)}

    def columns(self) -> Mapping[str, float]:
        """Return the latest figures for process_info.log; an unknown figure is 0."""
        return self._columns

    def run(self) -> None:
        """Read all devices repeatedly until `finish` is called."""
        begin, count = time.thread_time(), 0
        while True:
            before = time.thread_time()
            for track in self._tracks:
                self._read(track, with_processes=count % _PROCESSES_EVERY == 0)
            count += 1
            self._cpu_s = time.thread_time() - begin
            pause_s = max(self._interval_s, (time.thread_time() - before) / _SHARE)
            if self._stop_event.wait(pause_s):
                break
        for track in self._tracks:  # once more: a trial may be shorter than a pause
            self._read(track, with_processes=False)
        self._cpu_s = time.thread_time() - begin

    def finish(self) -> DevicesUsage:
        """Stop reading and return what was seen."""
        self._stop_event.set()
        self.join(_FINISH_S)
        if self.is_alive():  # to ask the driver again would only hold this thread, too
            return DevicesUsage(reason=f"the driver did not answer within {_FINISH_S:g} s")
        elapsed_s = time.perf_counter() - self._start_s
        if self._log:
            self._log.close()
        samples = min((track.samples for track in self._tracks), default=0)
        return DevicesUsage(
            devices=tuple(track.usage() for track in self._tracks),
            samples=samples,
            sampling_rate_hz=samples / elapsed_s if elapsed_s > 0 else None,
            observer_cpu_s=self._cpu_s,
        )

    def _read(self, track: DeviceTrack, *, with_processes: bool) -> None:
        device = track.device
        reading = device.read()
        at_s = time.perf_counter() - self._start_s
        track.note(reading, at_s)
        self._columns = {**self._columns, **_columns(device, reading)}
        if self._log:
            self._log.add(at_s, (f"{device.vendor}{device.index}", *_FIGURES(reading)))
        holders = device.processes() if with_processes else None
        if holders is not None:
            track.note_processes(holders, set(self._pids()))


def _columns(device: Device, reading: DeviceReading | None) -> dict[str, float]:
    """Return numbers only, always under the same keys: a known consumer plots every one."""
    reading = reading or DeviceReading()
    prefix = f"{device.vendor}{device.index}_"
    return {
        prefix + "used": reading.used_bytes or 0,
        prefix + "utilization_percent": reading.utilization_percent or 0.0,
        prefix + "power_w": reading.power_w or 0.0,
        prefix + "sm_clock_mhz": reading.sm_clock_mhz or 0.0,
    }

"""Accelerators while a trial runs: what they held, did, drew and were kept from. Any vendor's.

Each vendor's module (`nvidia`, `amd`) turns its library into `Device`s. Calls into a driver are
not free, so devices are read five times a second at most, in a thread of their own, and less often
where a reading takes long. Whatever a device does not say is None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from perfrun.dataclass import dataclass, field

RATE_HZ = 5.0
_SHARE = 0.002  # of a core, that reading devices may take in the long run
_PROCESSES_EVERY = 5  # readings
_HOST_PID_NAMESPACE = 0xEFFFFFFC  # inode of the first one (include/linux/proc_ns.h)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One device at one moment."""

    used_bytes: int | None = None  # by all processes, driver included
    utilization_percent: float | None = None  # share of time in which any kernel ran
    memory_utilization_percent: float | None = None  # share of time in which memory was accessed
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] | None = None  # why clocks are lower than they could be


class Device(Protocol):
    """An accelerator as its vendor's library shows it. No method raises."""

    @property
    def vendor(self) -> str:
        """`nvidia` or `amd`."""

    @property
    def index(self) -> int:
        """Its number to the vendor's library, from 0. Frameworks may count otherwise."""

    @property
    def name(self) -> str:
        """Model."""

    @property
    def uuid(self) -> str | None:
        """What names it for ever."""

    @property
    def total_bytes(self) -> int | None:
        """Its memory; None where it shares the host's."""

    def read(self) -> Reading:
        """Return the state of this moment."""

    def processes(self) -> Mapping[int, int | None] | None:
        """Return pid (of the host) -> bytes held on the device; None when it cannot be had."""

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded; only differences mean something."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A sampled figure: smallest, mean, largest. The samples are in process_info.log."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, kw_only=True)
class DeviceUsage:
    """What one device did during a trial. Of the whole device, unless it says otherwise."""

    vendor: str
    index: int
    name: str
    uuid: str | None
    total_bytes: int | None
    used_before_bytes: int | None  # at the first reading, just after the worker was started
    used_peak_bytes: int | None
    process_peak_bytes: int | None  # held by the trial's processes
    process_reason: str | None  # why that is unknown
    other_processes: Mapping[int, int | None] | None  # pid -> bytes, of those not the trial's
    utilization_percent: Span | None
    memory_utilization_percent: Span | None
    sm_clock_mhz: Span | None
    memory_clock_mhz: Span | None
    power_w: Span | None
    temperature_c: Span | None
    throttle_reasons: Mapping[str, float] | None  # reason -> share of the readings, 0 to 1
    energy_j: float | None
    energy_source: str | None  # the device's counter, or its sampled power over time


@dataclass(frozen=True, kw_only=True)
class DevicesUsage:
    """All devices of this machine during a trial, or why there are none."""

    devices: tuple[DeviceUsage, ...] | None = None
    reason: str | None = None
    samples: int = 0
    sampling_rate_hz: float | None = None
    observer_cpu_s: float | None = None


@dataclass
class _Track:
    """What was seen of one device so far."""

    device: Device
    energy_before_j: float | None
    readings: list[Reading] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    own_peak: int | None = None
    processes_known: bool = False
    others: dict[int, int | None] = field(default_factory=dict)


class DeviceSampler(threading.Thread):
    """Reads devices until `finish`. `pids` returns the trial's processes at this moment."""

    def __init__(
        self,
        devices: Sequence[Device],
        pids: Callable[[], Collection[int]],
        rate_hz: float = RATE_HZ,
    ) -> None:
        super().__init__(name="perfrun-devices", daemon=True)
        self._tracks = [_Track(device, device.energy_j()) for device in devices]
        self._pids = pids
        self._interval_s = 1.0 / rate_hz
        self._stop_event = threading.Event()
        self._start_s = time.perf_counter()
        self._cpu_s = 0.0
        self._columns = {key: 0.0 for track in self._tracks for key in _columns(track.device, None)}

    def columns(self) -> Mapping[str, float]:
        """Return the latest figures for process_info.log; 0 before the first, and of no figure."""
        return self._columns

    def run(self) -> None:
        """Read all devices, again and again."""
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
        for track in self._tracks:  # the last state: a trial may be shorter than a pause
            self._read(track, with_processes=False)
        self._cpu_s = time.thread_time() - begin

    def finish(self) -> DevicesUsage:
        """Stop reading and return what was seen."""
        self._stop_event.set()
        self.join()
        elapsed_s = time.perf_counter() - self._start_s
        samples = min((len(track.readings) for track in self._tracks), default=0)
        return DevicesUsage(
            devices=tuple(_usage(track) for track in self._tracks),
            samples=samples,
            sampling_rate_hz=samples / elapsed_s if elapsed_s > 0 else None,
            observer_cpu_s=self._cpu_s,
        )

    def _read(self, track: _Track, *, with_processes: bool) -> None:
        reading = track.device.read()
        track.readings.append(reading)
        track.times.append(time.perf_counter())
        self._columns = {**self._columns, **_columns(track.device, reading)}
        if not with_processes:
            return
        holders = track.device.processes()
        if holders is None:
            return
        track.processes_known = True
        pids = set(self._pids())
        own = [size for pid, size in holders.items() if pid in pids]
        if own and all(size is not None for size in own):
            track.own_peak = max(track.own_peak or 0, sum(size or 0 for size in own))
        for pid, size in holders.items():
            if pid not in pids:
                track.others[pid] = max(track.others.get(pid) or 0, size or 0) or None


def _columns(device: Device, reading: Reading | None) -> dict[str, float]:
    """Numbers only, always the same keys: a known consumer plots every one."""
    reading = reading or Reading()
    begin = f"{device.vendor}{device.index}_"
    return {
        begin + "used": reading.used_bytes or 0,
        begin + "utilization_percent": reading.utilization_percent or 0.0,
        begin + "power_w": reading.power_w or 0.0,
        begin + "sm_clock_mhz": reading.sm_clock_mhz or 0.0,
    }


def _usage(track: _Track) -> DeviceUsage:
    device, readings = track.device, track.readings
    used = [reading.used_bytes for reading in readings if reading.used_bytes is not None]
    own_peak, reason = _own_memory(track)
    energy_j, source = _energy(track)
    return DeviceUsage(
        vendor=device.vendor,
        index=device.index,
        name=device.name,
        uuid=device.uuid,
        total_bytes=device.total_bytes,
        used_before_bytes=used[0] if used else None,
        used_peak_bytes=max(used, default=None),
        process_peak_bytes=own_peak,
        process_reason=reason,
        other_processes=None if reason and not own_peak and in_pid_namespace() else _others(track),
        utilization_percent=_span([r.utilization_percent for r in readings]),
        memory_utilization_percent=_span([r.memory_utilization_percent for r in readings]),
        sm_clock_mhz=_span([r.sm_clock_mhz for r in readings]),
        memory_clock_mhz=_span([r.memory_clock_mhz for r in readings]),
        power_w=_span([r.power_w for r in readings]),
        temperature_c=_span([r.temperature_c for r in readings]),
        throttle_reasons=_shares([r.throttle_reasons for r in readings]),
        energy_j=energy_j,
        energy_source=source,
    )


def _own_memory(track: _Track) -> tuple[int | None, str | None]:
    if track.own_peak is not None:
        return track.own_peak, None
    if not track.processes_known:
        return None, "the device does not tell its processes"
    if in_pid_namespace():
        return None, "the driver names processes as the host does, and perfrun is in a container"
    return None, "no process of the trial was seen on the device"


def _others(track: _Track) -> Mapping[int, int | None] | None:
    return track.others if track.processes_known else None


def _energy(track: _Track) -> tuple[float | None, str | None]:
    """From the device's counter; where it has none, from its power, sampled."""
    after = track.device.energy_j()
    before = track.energy_before_j
    if before is not None and after is not None and after >= before:
        return after - before, "counter"
    points = [
        (moment, reading.power_w)
        for moment, reading in zip(track.times, track.readings, strict=True)
        if reading.power_w is not None
    ]
    if len(points) < 2:
        return None, None
    pairs = pairwise(points)
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs), "sampled power"


def _span(values: Sequence[float | None]) -> Span | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Span(low=min(known), mean=sum(known) / len(known), high=max(known))


def _shares(reasons: Sequence[tuple[str, ...] | None]) -> Mapping[str, float] | None:
    known = [names for names in reasons if names is not None]
    if not known:
        return None
    names = sorted({name for names in known for name in names})
    return {name: sum(name in names for names in known) / len(known) for name in names}


def in_pid_namespace() -> bool:
    """True when pids here are not those of the host: in a container. False where unknown."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino != _HOST_PID_NAMESPACE
    except OSError:
        return False

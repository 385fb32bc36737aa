"""Start and stop together all that watches a trial from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.probes.accelerators import Device, DeviceSampler, DevicesUsage
from perfrun.probes.amd import amd_devices
from perfrun.probes.counters import change
from perfrun.probes.machine import MachineState, machine_state
from perfrun.probes.nvidia import nvidia_devices
from perfrun.probes.process_tree import TreeSampler, TreeUsage
from perfrun.probes.rapl import PERIOD_S, Meter, Rapl
from perfrun.worker.cgroups import Cgroup, find_cgroup


@dataclass(frozen=True, kw_only=True)
class Energy:
    """The energy that machine and devices, not the trial alone, drew during a trial."""

    meters: tuple[Meter, ...] = ()
    reasons: Mapping[str, str] | None = None  # source -> why it has no figure
    enable: Mapping[str, str] | None = None  # source -> the command that makes it readable


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The observations of one trial from outside."""

    tree: TreeUsage | None  # None when the worker's processes cannot be seen from here
    devices: DevicesUsage
    energy: Energy
    before: MachineState
    after: MachineState
    own_cgroup: bool  # the trial's control group is not perfrun's
    pid: int | None = None  # the worker's, as this host sees it

    @property
    def harness_cpu_s(self) -> float:
        """The CPU time of perfrun itself, watching included."""
        return self.after.own_cpu_s - self.before.own_cpu_s

    @property
    def children_cpu_s(self) -> float:
        """The CPU time of processes that perfrun waited for: the worker and its orphans."""
        return self.after.children_cpu_s - self.before.children_cpu_s


class Watch:
    """The samplers of process `pid` (None: of the machine only), from creation until `finish`.

    `own_cgroup` says that the process has a control group of its own. A group other than perfrun's
    is no proof of that: a rootless engine without cgroups starts the process in the engine's.
    """

    def __init__(self, pid: int | None, folder: Path, *, own_cgroup: bool) -> None:
        self._pid = pid
        self._folder = folder
        self._cgroup, self._own_cgroup = _cgroup_of(pid if own_cgroup else None)
        self._before = machine_state(folder, cgroup=self._cgroup)
        self._rapl = Rapl()
        self._rapl_thread = _started_reader(self._rapl)
        devices, self._no_devices = _devices()
        self._devices: DeviceSampler | None = None
        if devices:
            log = folder / "perfrun" / "devices.csv"  # no benchmark writes there
            self._devices = DeviceSampler(devices, self._pids, log=log)
        self._tree: TreeSampler | None = None
        if pid is not None:
            self._tree = TreeSampler(
                pid,
                folder / "process_info.log",
                columns=self._devices.columns if self._devices else dict,
                cgroup=self._cgroup if self._own_cgroup else None,
            )
            self._tree.start()
        if self._devices:
            self._devices.start()

    def finish(self) -> Watched:
        """Stop watching and return the observations."""
        tree = self._tree.finish() if self._tree else None
        devices = self._devices.finish() if self._devices else DevicesUsage(reason=self._no_devices)
        after = machine_state(self._folder, cgroup=self._cgroup)
        return Watched(
            tree=tree,
            devices=devices,
            energy=self._energy(devices),
            before=self._before,
            after=after,
            own_cgroup=self._own_cgroup,
            pid=self._pid,
        )

    def _pids(self) -> frozenset[int]:
        return self._tree.pids if self._tree else frozenset()

    def _energy(self, devices: DevicesUsage) -> Energy:
        if self._rapl_thread:
            self._rapl_thread.finish()
        reasons, enable = {}, {}
        if self._rapl.reason:
            reasons["rapl"] = self._rapl.reason
        if self._rapl.enable:
            enable["rapl"] = self._rapl.enable
        if devices.devices is None:
            reasons["devices"] = devices.reason or "unknown"
        return Energy(
            meters=(*self._rapl.meters(), *_device_meters(devices, self._before)),
            reasons=reasons,
            enable=enable,
        )


_FINISH_S = 5.0  # for the last reading of the counters


class _RaplReader(threading.Thread):
    """A thread that reads the counters before they can wrap around."""

    def __init__(self, rapl: Rapl) -> None:
        super().__init__(name="perfrun-rapl", daemon=True)
        self._rapl = rapl
        self._stop_event = threading.Event()

    def run(self) -> None:
        while not self._stop_event.wait(PERIOD_S):
            self._rapl.read()

    def finish(self) -> None:
        self._stop_event.set()
        self.join(_FINISH_S)


def _started_reader(rapl: Rapl) -> _RaplReader | None:
    if not rapl.works:
        return None
    reader = _RaplReader(rapl)
    reader.start()
    return reader


def _cgroup_of(pid: int | None) -> tuple[Cgroup | None, bool]:
    """Return the control group of a process, and True when it is another than perfrun's."""
    if pid is None:
        return find_cgroup(), False
    own, other = find_cgroup(), find_cgroup(str(pid))
    if other is None:
        return own, False
    return other, own is not None and other.path != own.path


def _devices() -> tuple[tuple[Device, ...], str | None]:
    """Return the devices of all vendors, or the reason why there are none."""
    nvidia, no_nvidia = nvidia_devices()
    amd, no_amd = amd_devices()
    found: tuple[Device, ...] = (*nvidia, *amd)
    return found, None if found else f"{no_nvidia}; {no_amd}"


def _device_meters(devices: DevicesUsage, before: MachineState) -> tuple[Meter, ...]:
    seconds = time.monotonic() - before.snapshot.counters.elapsed_s
    return tuple(
        Meter(
            name=f"{device.vendor}{device.index}",
            source=f"{device.name}: {device.energy_source}",
            scope="the whole device",
            energy_j=device.energy_j,
            seconds=seconds,
        )
        for device in devices.devices or ()
        if device.energy_j is not None
    )


def cgroup_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the differences of a control group's counters; None where there was no figure."""
    names = [name for name in after if name.endswith(("_s", "_periods"))]
    return {name: change(before.get(name), after.get(name)) for name in names}

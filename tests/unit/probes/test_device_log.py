"""Readings of devices: they are all on disk, and the summary has its figures without them."""

from __future__ import annotations

import csv
import errno
import os
import pickle
import random
import resource
import tracemalloc
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any

import pytest
from worlds import wait_until

from perfrun.probes.accelerators import DeviceReading, DeviceSampler, DeviceTrack
from perfrun.probes.device_log import DeviceLog

SPANS = (
    *("utilization_percent", "memory_utilization_percent", "sm_clock_mhz", "memory_clock_mhz"),
    *("power_w", "temperature_c"),
)
REASONS = ("sw_power_cap", "hw_thermal_slowdown", "hw_slowdown")


class Scripted:
    """A device that gives these readings in turn, and then the last one again."""

    vendor, index, name, uuid, total_bytes = "nvidia", 3, "made up", None, None

    def __init__(self, readings: Sequence[DeviceReading]) -> None:
        self.readings = readings
        self.count = 0

    def read(self) -> DeviceReading:
        self.count += 1
        return self.readings[min(self.count, len(self.readings)) - 1]

    def processes(self) -> Mapping[int, int | None] | None:
        return None

    def energy_j(self) -> float | None:
        return None


def made_up(generator: random.Random, unknown: float) -> DeviceReading:
    """Make a reading; each of its figures is unknown with this probability."""

    def or_none(value: Any) -> Any:
        return None if generator.random() < unknown else value

    return DeviceReading(
        used_bytes=or_none(generator.randrange(2**37)),
        utilization_percent=or_none(float(generator.randrange(101))),
        memory_utilization_percent=or_none(float(generator.randrange(101))),
        sm_clock_mhz=or_none(float(generator.randrange(345, 1981))),
        memory_clock_mhz=or_none(3201.0),
        power_w=or_none(generator.randrange(60_000, 700_000) / 1000),
        temperature_c=or_none(generator.gauss(60, 5)),
        throttle_reasons=or_none(tuple(r for r in REASONS if generator.random() < 0.3)),
    )


def kept_figures(readings: Sequence[DeviceReading], times: Sequence[float]) -> dict[str, Any]:
    """Compute the same figures from all readings at once."""
    found: dict[str, Any] = {}
    used = [r.used_bytes for r in readings if r.used_bytes is not None]
    found["used_before_bytes"] = used[0] if used else None
    found["used_peak_bytes"] = max(used, default=None)
    for name in SPANS:
        known = [v for r in readings if (v := getattr(r, name)) is not None]
        found[name] = (min(known), reduce(add, known) / len(known), max(known)) if known else None
    told = [r.throttle_reasons for r in readings if r.throttle_reasons is not None]
    names = sorted({name for own in told for name in own})
    found["throttle_reasons"] = (
        {name: sum(name in own for own in told) / len(told) for name in names} if told else None
    )
    points = [
        (at, r.power_w) for at, r in zip(times, readings, strict=True) if r.power_w is not None
    ]
    areas = [(b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points)]
    found["energy_j"] = reduce(add, areas) if areas else None
    found["energy_source"] = "sampled power" if areas else None
    return found


def running_figures(readings: Sequence[DeviceReading], times: Sequence[float]) -> dict[str, Any]:
    track = DeviceTrack(Scripted(readings))
    for reading, at_s in zip(readings, times, strict=True):
        track.note(reading, at_s)
    assert track.samples == len(readings)
    usage = track.usage()
    names = ("used_before_bytes", "used_peak_bytes", "throttle_reasons", "energy_j")
    found = {name: getattr(usage, name) for name in (*names, "energy_source")}
    for name in SPANS:
        span = getattr(usage, name)
        found[name] = span and (span.low, span.mean, span.high)
    return found


@pytest.mark.parametrize("unknown", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, 2000])
def test_the_figures_are_exactly_those_of_all_readings(count: int, unknown: float) -> None:
    generator = random.Random(f"{count}/{unknown}")
    readings = [made_up(generator, unknown) for _ in range(count)]
    times = [at / 5 + generator.random() / 10 for at in range(count)]
    assert running_figures(readings, times) == kept_figures(readings, times)


@pytest.mark.slow
def test_a_million_readings_take_no_more_memory_than_a_thousand() -> None:
    generator = random.Random(1)
    readings = [made_up(generator, 0.1) for _ in range(100)]
    track = DeviceTrack(Scripted(readings))
    sizes = []
    for begin, end in ((0, 1000), (1000, 1_000_000)):
        for at in range(begin, end):
            track.note(readings[at % 100], at / 5)
        sizes.append(len(pickle.dumps(track)))  # with all that it refers to
    assert track.samples == 1_000_000
    assert sizes[1] < sizes[0] + 64  # a number may have more digits


@pytest.mark.parametrize("room", [None, 0])
def test_rows_wait_a_moment_in_memory_and_never_for_a_disk(
    tmp_path: Path, room: int | None
) -> None:
    log = DeviceLog(tmp_path / "devices.csv", ("time", "device"))

    def kept_after(begin: int, end: int) -> int:
        for at in range(begin, end):
            log.add(at / 5, ("nvidia0", 87.0))
        return tracemalloc.get_traced_memory()[0]

    with file_size_limit(room):
        tracemalloc.start()
        try:
            first, last = kept_after(0, 1000), kept_after(1000, 20_000)
        finally:
            tracemalloc.stop()
        log.close()
    assert last < first + 4096
    is_written = (tmp_path / "devices.csv").stat().st_size > 0
    assert is_written == (room is None)


@contextmanager
def file_size_limit(size: int | None) -> Iterator[None]:
    """Let no file of this process grow further, so that writes fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_full_disk_costs_whole_rows_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "devices.csv"
    log = DeviceLog(path, ("time", "device", "value"))
    for at in range(10):  # written at once, and when five seconds are over
        log.add(at, ("nvidia0", at))
    kept = path.stat().st_size
    with file_size_limit(kept + 5):  # room for a part of a row
        for at in range(10, 20):
            log.add(at, ("nvidia0", at))
        assert path.stat().st_size == kept
    for at in range(20, 30):
        log.add(at, ("nvidia0", at))
    log.close()
    values = [int(row["value"]) for row in rows_of(path)]
    assert values == sorted(values)
    assert {*range(6), *range(25, 30)} <= set(values)
    assert {row["device"] for row in rows_of(path)} == {"nvidia0"}


def test_the_header_comes_before_the_first_rows_that_the_disk_takes(tmp_path: Path) -> None:
    path = tmp_path / "devices.csv"
    log = DeviceLog(path, ("time", "device"))
    with file_size_limit(3):
        log.add(0.0, ("nvidia0",))
    log.add(10.0, ("nvidia1",))
    log.close()
    assert path.read_text() == "time,device\n10.000,nvidia1\n"


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "folder is missing"])
def test_what_is_there_already_is_left_alone(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "devices.csv", tmp_path / "other"
    if kind == "file":
        path.write_text("mine")
    elif kind == "folder is missing":
        path = tmp_path / "nowhere" / "devices.csv"
    else:
        path.symlink_to(other)
    if kind == "link":
        other.write_text("mine")
    before = {one: one.lstat() for one in tmp_path.iterdir()}
    log = DeviceLog(path, ("time",))
    for at in range(1000):
        log.add(at, ("nvidia0",))
    log.close()
    assert {one: one.lstat().st_mtime_ns for one in tmp_path.iterdir()} == {
        one: status.st_mtime_ns for one, status in before.items()
    }


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    device = Scripted([DeviceReading(power_w=350.5)])
    folder = tmp_path / "read only"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):  # root may: a file in place of the folder does the same
        folder.rmdir()
        folder.touch()
    sampler = DeviceSampler([device], no_pids, log=folder / "devices.csv")
    sampler.start()
    wait_until(lambda: device.count >= 2)
    (used,) = sampler.finish().devices or ()
    assert used.power_w is not None
    assert used.power_w.mean == 350.5


def no_pids() -> Collection[int]:
    return ()


def test_every_reading_of_a_trial_is_on_disk(tmp_path: Path) -> None:
    generator = random.Random(2)
    devices = [Scripted([made_up(generator, 0.2) for _ in range(20)]) for _ in range(2)]
    devices[1].index = 4
    path = tmp_path / "devices.csv"
    sampler = DeviceSampler(devices, no_pids, rate_hz=200.0, log=path)
    sampler.start()
    wait_until(lambda: devices[0].count > 10)
    used = sampler.finish()
    rows = rows_of(path)
    assert len(rows) == sum(device.count for device in devices) == 2 * used.samples
    times = [float(row["time"]) for row in rows]
    assert times == sorted(times)
    for device in devices:
        own = [row for row in rows if row["device"] == f"nvidia{device.index}"]
        assert list(map(read_back, own[:20])) == device.readings[: len(own)]


def read_back(row: Mapping[str, str]) -> DeviceReading:
    """Return the reading from which a row was written."""
    told = row["throttle_reasons"]
    reasons = {"": None, "none": ()}.get(told, tuple(told.split("+")))
    used, figures = row["used_bytes"], {n: float(row[n]) if row[n] else None for n in SPANS}
    return DeviceReading(
        used_bytes=int(used) if used else None, throttle_reasons=reasons, **figures
    )


def test_the_limit_of_these_tests_is_felt(tmp_path: Path) -> None:
    with file_size_limit(4), (tmp_path / "x").open("wb", buffering=0) as file:
        assert file.write(b"123456") == 4
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            file.write(b"7")

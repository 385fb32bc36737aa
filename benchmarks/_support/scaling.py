"""Weak and strong scaling over devices: the methods, and figures from the ranks' step times.

A level is one number of devices. The slowest rank decides how long a step took. Efficiency is the
rate of a device at a level over the rate of one device alone; it is not capped at 1.
"""

from __future__ import annotations

import json
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from benchmarks._support import child
from benchmarks._support.knobs import Configured
from benchmarks._support.machine import usable_processors
from perfrun import SetupError

SUSPICIOUS_EFFICIENCY = 1.05  # more devices do not make each of them faster

Rounds = tuple[tuple[tuple[float, ...], ...], ...]
"""Seconds by round, rank and step."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """The step times that were measured with a number of devices."""

    devices: int
    examples_per_step: int  # of all devices together
    rounds: Rounds


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one level. Times are in seconds."""

    devices: int
    examples_per_step: int
    steps: int
    step_median_s: float
    step_min_s: float
    step_max_s: float
    examples_per_second: float
    examples_per_second_per_device: float
    scaling_efficiency: float
    efficiency_by_round: tuple[float, ...]  # of the same rounds of one device
    slowest_rank: int
    rank_medians_s: tuple[float, ...]


def levels_up_to(devices: int, *, divisors: bool) -> list[int]:
    """Return the numbers of devices to measure: all up to 4, then powers of two and the last.

    With `divisors`, only those are returned that divide the last one's work evenly.
    """
    if divisors:
        return [number for number in range(1, devices + 1) if devices % number == 0]
    powers = {2**exponent for exponent in range(devices.bit_length()) if 2**exponent <= devices}
    return sorted({number for number in range(1, devices + 1) if number <= 4} | powers | {devices})


def figures(levels: Sequence[Level], *, lockstep: bool) -> list[Figures]:
    """Return the figures of all levels, of which the first is a single device.

    In lockstep, where ranks wait for each other in every step, a step takes as long as in its
    slowest rank. Otherwise steps have no partners, and the rank with the slowest median decides.
    """
    alone = levels[0]
    if alone.devices != 1:
        raise ValueError(f"efficiency is against one device; the first level has {alone.devices}")
    return [_figures(level, alone, lockstep=lockstep) for level in levels]


def _figures(level: Level, alone: Level, *, lockstep: bool) -> Figures:
    ranks = [tuple(_flat(rounds)) for rounds in zip(*level.rounds, strict=True)]
    medians = [statistics.median(times) for times in ranks]
    slowest = _slowest_rank(ranks, medians, lockstep=lockstep)
    steps = [max(step) for step in zip(*ranks, strict=True)] if lockstep else list(ranks[slowest])
    median_s = statistics.median(steps)
    rate = level.examples_per_step / median_s
    by_round = tuple(
        _rate(level, own, lockstep=lockstep) / level.devices / _rate(alone, base, lockstep=lockstep)
        for own, base in zip(level.rounds, alone.rounds, strict=True)
    )
    alone_s = statistics.median(_flat(rounds[0] for rounds in alone.rounds))
    return Figures(
        devices=level.devices,
        examples_per_step=level.examples_per_step,
        steps=len(steps),
        step_median_s=median_s,
        step_min_s=min(steps),
        step_max_s=max(steps),
        examples_per_second=rate,
        examples_per_second_per_device=rate / level.devices,
        scaling_efficiency=rate / level.devices / (alone.examples_per_step / alone_s),
        efficiency_by_round=by_round,
        slowest_rank=slowest,
        rank_medians_s=tuple(medians),
    )


def _rate(level: Level, ranks: Sequence[Sequence[float]], *, lockstep: bool) -> float:
    """Return the examples per second in one round."""
    step_s: float
    if lockstep:
        step_s = statistics.median(max(step) for step in zip(*ranks, strict=True))
    else:
        step_s = max(statistics.median(times) for times in ranks)
    return level.examples_per_step / step_s


def _slowest_rank(
    ranks: Sequence[Sequence[float]], medians: Sequence[float], *, lockstep: bool
) -> int:
    """Return the rank that was last in most steps; without lockstep, that of the slowest median."""
    if not lockstep:
        return medians.index(max(medians))
    last = [step.index(max(step)) for step in zip(*ranks, strict=True)]
    return max(range(len(ranks)), key=last.count)


def _flat(parts: Any) -> list[float]:
    return [time_s for part in parts for time_s in part]


def suspicions(found: Sequence[Figures]) -> list[str]:
    """Return warnings about figures that are implausible, or that fall with more devices."""
    said = [
        f"efficiency {one.scaling_efficiency:.3g} with {one.devices} devices: more than "
        f"{SUSPICIOUS_EFFICIENCY} (was one device slowed down by something else?)"
        for one in found
        if one.scaling_efficiency > SUSPICIOUS_EFFICIENCY
    ]
    said += [
        f"{more.devices} devices do {more.examples_per_second:.4g} examples/s, "
        f"{fewer.devices} did {fewer.examples_per_second:.4g}"
        for fewer, more in pairwise(found)
        if more.examples_per_second < fewer.examples_per_second
    ]
    return said


def metrics(one: Figures) -> list[dict[str, Any]]:
    """Return the metrics of a level, for its report; the same in every framework."""
    values = {
        "latency_median_s": one.step_median_s,
        "latency_min_s": one.step_min_s,
        "latency_max_s": one.step_max_s,
        "examples_per_second": one.examples_per_second,
        "examples_per_second_per_device": one.examples_per_second_per_device,
        "scaling_efficiency": one.scaling_efficiency,
        "devices": one.devices,
        "slowest_rank": one.slowest_rank,
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def extras(kind: str, found: Sequence[Figures], suspicious: Sequence[str]) -> dict[str, Any]:
    """Return the notes of a report; the same in every framework."""
    per_level = (f"{one.devices}: {one.scaling_efficiency:.4g}" for one in found)
    per_rank = (f"{time_s:.6g}" for time_s in found[-1].rank_medians_s)
    return {
        "scaling": kind,
        "scaling_suspicious": "; ".join(suspicious) or "no",
        "efficiency_by_devices": ", ".join(per_level),
        "rank_medians_s": ", ".join(per_rank),
    }


ROUNDS = 3
MODEL, BATCH_SIZE, STEPS, WARMUP, CPU_RANKS = "resnet18", 8, 30, 3, 2
KNOBS: tuple[str, ...] = (
    *("model", "input_shape", "batch_size", "iterations", "warmup", "num_gpus", "device"),
    *("dtype", "intra_threads", "seed"),
)
_REPORTED = ("model", "dtype", "threads_per_rank", "warmup", "seed", "rounds")

Order = Mapping[str, Any]
"""The task of the ranks, as JSON."""


class ScalingMethods(Configured, ABC):
    """Training on 1 to N devices. A framework's class runs the ranks: `_measured`."""

    takes: ClassVar[tuple[str, ...]] = KNOBS
    silence_s: ClassVar[float] = 300.0  # after which ranks that write nothing are taken to hang
    framework: ClassVar[str]  # its name in messages
    dtypes: ClassVar[tuple[str, ...]]

    def weak(self) -> None:
        """Train with a batch for each device: more devices do more work in the same time."""
        self._scale("weak", communication=True)

    def strong(self) -> None:
        """Train with one batch that all devices share: more devices do the same work sooner."""
        self._scale("strong", communication=True)

    def communication_off(self) -> None:
        """Weak scaling of models that never communicate: the upper bound of `weak`."""
        self._scale("communication_off", communication=False)

    @abstractmethod
    def _devices(self) -> tuple[str, int]:
        """Return the kind of device, `cpu` or another, and how many accelerators there are."""

    @abstractmethod
    def _check_model(self, name: str) -> None:
        """Raise SetupError for a model that the catalogue lacks, before any rank starts."""

    @abstractmethod
    def _own_order(self, kind: str) -> dict[str, Any]:
        """Return the framework's own part of the ranks' order."""

    @abstractmethod
    def _measured(self, order: Order, folder: Path) -> tuple[list[Level], dict[str, Any]]:
        """Run the ranks; return the levels, and the report's notes on the framework."""

    def _scale(self, kind: str, *, communication: bool) -> None:
        order = self._order(is_strong=kind == "strong", communication=communication)
        folder = child.new_folder(Path(self.output_dir), f"scaling_{kind}")
        levels, facts = self._measured(order, folder)
        found = figures(levels, lockstep=communication)
        suspicious = suspicions(found) + _oversubscribed(order)
        table = {
            "scaling": kind,
            "suspicious": suspicious,
            "levels": [asdict(one) for one in found],
        }
        (folder / "scaling.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
        most = found[-1]
        self.report_benchmark(
            iters=most.steps,
            wall_time=most.step_median_s,
            throughput=most.examples_per_second,
            metrics=metrics(most),
            extras={
                **{name: order[name] for name in _REPORTED},
                **extras(kind, found, suspicious),
                "batch_size": order["batch_sizes"][most.devices],
                "global_batch_size": most.examples_per_step,
                **facts,
            },
        )

    def _order(self, *, is_strong: bool, communication: bool) -> Order:
        value = self.settings.value
        kind, accelerators = self._devices()
        number = self._number_of_devices(kind, accelerators)
        levels = levels_up_to(number, divisors=is_strong)
        batch_size = value("batch_size", BATCH_SIZE)
        split = number if is_strong else 0  # the largest level's batch, shared by fewer
        model = value("model", MODEL)
        self._check_model(model)
        return {
            "model": model,
            "input_shape": value("input_shape"),
            "levels": levels,
            "batch_sizes": {
                level: batch_size * split // level if split else batch_size for level in levels
            },
            "communication": communication,
            "rounds": ROUNDS,
            "steps_per_round": max(1, value("iterations", STEPS) // ROUNDS),
            "warmup": value("warmup", WARMUP),
            "device": kind,
            "dtype": self.settings.one_of("dtype", "float32", self.dtypes),
            "threads_per_rank": value("intra_threads", max(1, usable_processors() // number)),
            "seed": value("seed", 0),
            **self._own_order(kind),
        }

    def _number_of_devices(self, kind: str, accelerators: int) -> int:
        there = CPU_RANKS if kind == "cpu" else accelerators
        number = self.settings.value("num_gpus", there)
        if kind != "cpu" and number > there:
            raise SetupError(f"num_gpus is {number}; {self.framework} sees {there} here")
        if number < 2:
            hint = "" if kind == "cpu" else "; with --device=cpu, processes are devices"
            raise SetupError(f"scaling needs 2 devices or more, and num_gpus is {number}{hint}")
        return number


def _oversubscribed(order: Order) -> list[str]:
    threads = order["levels"][-1] * order["threads_per_rank"]
    if order["device"] != "cpu" or threads <= usable_processors():
        return []
    return [f"{threads} threads on {usable_processors()} processors: they wait for each other"]

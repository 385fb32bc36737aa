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
from benchmarks._support.datasets import feeding
from benchmarks._support.knobs import Configured
from benchmarks._support.machine import usable_processors
from perfrun import SetupError

SUSPICIOUS_EFFICIENCY = 1.05  # more devices do not make each of them faster

Rounds = tuple[tuple[tuple[float, ...], ...], ...]
"""Seconds by round, rank and step."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The way from the ranks' times to the figures of a level."""

    lockstep: bool  # ranks wait for each other in every step
    summed: bool = False  # each rank has a rate of its own, and the level's is their sum
    from_disk: bool = False  # batches come in bursts, so that a median would say nothing

    def typical(self, times_s: Sequence[float]) -> float:
        """Return the time of a step that the rate is computed from."""
        return statistics.fmean(times_s) if self.from_disk else statistics.median(times_s)


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
    step_s: float  # examples of a step over examples per second
    step_median_s: float
    step_min_s: float
    step_max_s: float
    examples_per_second: float
    examples_per_second_per_device: float
    scaling_efficiency: float
    efficiency_by_round: tuple[float, ...]  # of the same rounds of one device
    slowest_rank: int
    rank_medians_s: tuple[float, ...]
    rank_means_s: tuple[float, ...]
    steps_s: tuple[float, ...]  # in order: of the slowest rank of each step, or of the slowest one


def levels_up_to(devices: int, *, divisors: bool) -> list[int]:
    """Return the numbers of devices to measure: all up to 4, then powers of two and the last.

    With `divisors`, only those are returned that divide the last one's work evenly.
    """
    if divisors:
        return [number for number in range(1, devices + 1) if devices % number == 0]
    powers = {2**exponent for exponent in range(devices.bit_length()) if 2**exponent <= devices}
    return sorted({number for number in range(1, devices + 1) if number <= 4} | powers | {devices})


def figures(
    levels: Sequence[Level], *, lockstep: bool, summed: bool = False, from_disk: bool = False
) -> list[Figures]:
    """Return the figures of all levels, of which the first is a single device.

    In lockstep, where ranks wait for each other in every step, a step takes as long as in its
    slowest rank. Otherwise steps have no partners, and the slowest rank decides; with `summed`
    its times are those of a step, but the rates of all ranks add up.
    """
    alone = levels[0]
    if alone.devices != 1:
        raise ValueError(f"efficiency is against one device; the first level has {alone.devices}")
    how = Reading(lockstep=lockstep, summed=summed, from_disk=from_disk)
    return [_figures(level, alone, how) for level in levels]


def _figures(level: Level, alone: Level, how: Reading) -> Figures:
    ranks = [tuple(_flat(rounds)) for rounds in zip(*level.rounds, strict=True)]
    slowest = _slowest_rank(ranks, how)
    steps = (
        [max(step) for step in zip(*ranks, strict=True)] if how.lockstep else list(ranks[slowest])
    )
    rate = _rate(level, ranks, how)
    by_round = tuple(
        _rate(level, own, how) / level.devices / _rate(alone, base, how)
        for own, base in zip(level.rounds, alone.rounds, strict=True)
    )
    rate_alone = _rate(alone, [_flat(rounds[0] for rounds in alone.rounds)], how)
    return Figures(
        devices=level.devices,
        examples_per_step=level.examples_per_step,
        steps=len(steps),
        step_s=level.examples_per_step / rate,
        step_median_s=statistics.median(steps),
        step_min_s=min(steps),
        step_max_s=max(steps),
        examples_per_second=rate,
        examples_per_second_per_device=rate / level.devices,
        scaling_efficiency=rate / level.devices / rate_alone,
        efficiency_by_round=by_round,
        slowest_rank=slowest,
        rank_medians_s=tuple(statistics.median(times) for times in ranks),
        rank_means_s=tuple(statistics.fmean(times) for times in ranks),
        steps_s=tuple(steps),
    )


def _rate(level: Level, ranks: Sequence[Sequence[float]], how: Reading) -> float:
    """Return the examples per second of all ranks together."""
    if how.lockstep:
        together = [max(step) for step in zip(*ranks, strict=True)]
        return level.examples_per_step / how.typical(together)
    each_s = [how.typical(times) for times in ranks]
    if how.summed:
        return sum(level.examples_per_step / level.devices / step_s for step_s in each_s)
    return level.examples_per_step / max(each_s)


def _slowest_rank(ranks: Sequence[Sequence[float]], how: Reading) -> int:
    """Return the rank that was last in most steps; without lockstep, that of the slowest steps."""
    if not how.lockstep:
        each_s = [how.typical(times) for times in ranks]
        return each_s.index(max(each_s))
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
_REPORTED = ("model", "dtype", "threads_per_rank", "warmup", "seed", "rounds", "weight_decay")
# The knobs of a framework whose ranks do more than train on synthetic input.
FURTHER_KNOBS: tuple[str, ...] = (
    *("forward_only", "weight_decay", "data_dir", *feeding.OF_DATA_SETS),
)

Order = Mapping[str, Any]
"""The task of the ranks, as JSON."""


class ScalingMethods(Configured, ABC):
    """A model on 1 to N devices. A framework's class runs the ranks: `_measured`.

    It is trained. With `forward_only`, where the framework's class takes it, each device infers on
    its own, and with `data_dir` each has images of its own.
    """

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
        found = figures(
            levels,
            lockstep=order["communication"],
            summed=order["forward_only"],
            from_disk=order["data"] is not None,
        )
        suspicious = suspicions(found) + _oversubscribed(order)
        table = {
            "scaling": kind,
            "forward_only": order["forward_only"],
            "suspicious": suspicious,
            "levels": [asdict(one) for one in found],
        }
        (folder / "scaling.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
        most = found[-1]
        self.report_benchmark(
            iters=most.steps,
            wall_time=most.step_s,
            throughput=most.examples_per_second,
            metrics=metrics(most),
            extras={
                **{name: order[name] for name in _REPORTED},
                "forward_only": str(order["forward_only"]).lower(),
                "data": "data_dir" if order["data"] else "synthetic/device",
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
        iterations = value("iterations", STEPS)
        rounds = min(ROUNDS, iterations)
        forward_only = value("forward_only", False)
        return {
            "model": model,
            "input_shape": value("input_shape"),
            "levels": levels,
            "batch_sizes": {
                level: batch_size * split // level if split else batch_size for level in levels
            },
            "communication": communication and not forward_only,
            "forward_only": forward_only,
            "weight_decay": value("weight_decay", 0.0),
            "data": self._data(number),
            "rounds": rounds,
            "steps_by_round": [
                iterations // rounds + (place < iterations % rounds) for place in range(rounds)
            ],
            "warmup": value("warmup", WARMUP),
            "device": kind,
            "dtype": self.settings.one_of("dtype", "float32", self.dtypes),
            "threads_per_rank": value("intra_threads", max(1, usable_processors() // number)),
            "seed": value("seed", 0),
            **self._own_order(kind),
        }

    def _data(self, ranks: int) -> dict[str, Any] | None:
        """Return the data set that all ranks share, as part of their order; None: synthetic input.

        DataError, one line, is raised for a folder that is none, or that has too few images.
        """
        if not self.settings.value("data_dir"):
            return None
        from benchmarks._support.datasets import loading  # and Pillow, which only this needs

        images = loading.open_chosen(self.settings, self.root_data_dir)
        for rank in range(ranks):
            loading.Shard(images, rank, ranks)
        chosen = {name: self.settings.value(name) for name in feeding.OF_DATA_SETS}
        return {**chosen, "data_dir": str(images.folder), "data_backend": images.backend}

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

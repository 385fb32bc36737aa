"""How a benchmark scales over devices: from step times of every rank to figures. Pure.

A level is one number of devices. The slowest rank decides how long a step took; efficiency is what
a device does at a level over what one device does alone, and is never cut off at 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SUSPICIOUS_EFFICIENCY = 1.05  # more devices do not make each of them faster

Rounds = tuple[tuple[tuple[float, ...], ...], ...]
"""Seconds by round, rank and step."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """What was measured with so many devices."""

    devices: int
    examples_per_step: int  # of all devices together
    rounds: Rounds


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What it comes to. Times in seconds."""

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

    With `divisors` only those into which the work of the last one can be split.
    """
    if divisors:
        return [number for number in range(1, devices + 1) if devices % number == 0]
    powers = {2**exponent for exponent in range(devices.bit_length()) if 2**exponent <= devices}
    return sorted({number for number in range(1, devices + 1) if number <= 4} | powers | {devices})


def figures(levels: Sequence[Level], *, lockstep: bool) -> list[Figures]:
    """Work out all levels; the first one is a single device.

    In lockstep (ranks wait for each other in every step) a step takes as long as in its slowest
    rank. Otherwise steps have no partners, and the rank with the slowest median decides.
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
    """Examples per second in one round."""
    step_s: float
    if lockstep:
        step_s = statistics.median(max(step) for step in zip(*ranks, strict=True))
    else:
        step_s = max(statistics.median(times) for times in ranks)
    return level.examples_per_step / step_s


def _slowest_rank(
    ranks: Sequence[Sequence[float]], medians: Sequence[float], *, lockstep: bool
) -> int:
    """The rank that was last in most steps; where steps have no partners, by its median."""
    if not lockstep:
        return medians.index(max(medians))
    last = [step.index(max(step)) for step in zip(*ranks, strict=True)]
    return max(range(len(ranks)), key=last.count)


def _flat(parts: Any) -> list[float]:
    return [time_s for part in parts for time_s in part]


def suspicions(found: Sequence[Figures]) -> list[str]:
    """Return what cannot well be true of these figures, or is worth a look."""
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

"""Three rates side by side: the loader alone, the device alone, and both together. Pure.

A loader of several processes hands out batches in bursts, several at once and then none for a
while, so the time of the median batch says nothing: a rate is images over all of the timed seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LOADER, DEVICE, END_TO_END = "loader", "device", "end_to_end"
# Above this, together they were faster than the slower one alone: noise, or a wrong measurement.
SUSPICIOUS_EFFICIENCY = 1.05

Rounds = Sequence[Any]  # the measurements of one part; their items are images


def blocks(batches: int, size: int) -> int:
    """Return how many timed blocks of `size` batches hold at least so many batches."""
    return -(-batches // size)


def batches(rounds: Rounds) -> int:
    """Return how many batches were timed."""
    return sum(measured.facts["steps"] for measured in rounds)


def seconds(rounds: Rounds) -> float:
    """Return how long they took."""
    return sum(float(measured.facts["timed_s"]) for measured in rounds)


def images_per_second(rounds: Rounds) -> float:
    """Return images over seconds, of all rounds together."""
    return float(rounds[0].items_per_step) * batches(rounds) / seconds(rounds)


def report_arguments(
    parts: Mapping[str, Rounds], *, waited_s: float | None, extras: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments for `report_benchmark` from the parts that were measured.

    `waited_s` is how long the program stood waiting for the next batch while the part end to end
    was timed. Efficiencies are not capped: one above 1 is a note, not a 1.
    """
    rates = {part: images_per_second(rounds) for part, rounds in parts.items()}
    metrics = [{"name": f"{part}_images_per_second", "value": rate} for part, rate in rates.items()]
    notes: dict[str, Any] = {}
    if {LOADER, DEVICE, END_TO_END} <= set(rates):
        compared, notes = _compared(rates)
        metrics += compared
    if waited_s is not None:
        share = waited_s / seconds(parts[END_TO_END])
        metrics.append({"name": "data_wait_share", "value": share})
    for part, rounds in parts.items():
        metrics.append({"name": f"{part}_first_call_s", "value": rounds[0].first_call_s})
        notes.update(_notes(part, rounds))
    main = parts.get(END_TO_END) or next(iter(parts.values()))
    return {
        "iters": batches(main),
        "cpu_time": sum(one.cpu_s * one.facts["steps"] for one in main) / batches(main),
        "wall_time": seconds(main) / batches(main),
        "throughput": images_per_second(main),
        "metrics": metrics,
        "extras": {**notes, **extras},
    }


def _notes(part: str, rounds: Rounds) -> dict[str, Any]:
    found = {
        f"{part}_timed_batches": batches(rounds),
        f"{part}_timed_s": seconds(rounds),
        f"{part}_steadiness": " ".join(measured.steadiness for measured in rounds),
    }
    if len(rounds) > 1:
        each = (images_per_second([measured]) for measured in rounds)
        found[f"{part}_rounds_images_per_second"] = " ".join(f"{rate:.4g}" for rate in each)
    return found


def _compared(rates: Mapping[str, float]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    slower = min((LOADER, DEVICE), key=lambda part: rates[part])
    efficiency = rates[END_TO_END] / rates[slower]
    notes = {"bottleneck": slower}
    if efficiency > SUSPICIOUS_EFFICIENCY:
        notes["ingestion_note"] = (
            f"end to end was {efficiency:.2f} times as fast as the {slower} alone: "
            "the machine was disturbed, or a part was timed wrongly"
        )
    metrics = [
        {"name": "ingestion_efficiency", "value": efficiency},
        {"name": "loader_over_device", "value": rates[LOADER] / rates[DEVICE]},
    ]
    return metrics, notes

"""Three rates side by side: the loader alone, the device alone, and both together. Pure.

A loader of several processes hands out batches in bursts, several at once and then none for a
while, so the time of the median batch says nothing: a rate is images over all of the timed seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOADER, DEVICE, END_TO_END = "loader", "device", "end_to_end"
# Above this, together they were faster than the slower one alone: noise, or a wrong measurement.
SUSPICIOUS_EFFICIENCY = 1.05


def blocks(batches: int, size: int) -> int:
    """Return how many timed blocks of `size` batches hold at least so many batches."""
    return -(-batches // size)


def images_per_second(measured: Any) -> float:
    """Return the rate of a measurement whose items are images."""
    return float(measured.items_per_step * measured.facts["steps"] / measured.facts["timed_s"])


def report_arguments(
    parts: Mapping[str, Any], *, waited_s: float | None, extras: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments for `report_benchmark` from the measurements that there are, by part.

    `waited_s` is how long the program stood waiting for the next batch while the part end to end
    was timed. Efficiencies are not capped: one above 1 is a note, not a 1.
    """
    rates = {part: images_per_second(measured) for part, measured in parts.items()}
    metrics = [{"name": f"{part}_images_per_second", "value": rate} for part, rate in rates.items()]
    notes: dict[str, Any] = {}
    if {LOADER, DEVICE, END_TO_END} <= set(rates):
        compared, notes = _compared(rates)
        metrics += compared
    if waited_s is not None:
        share = waited_s / parts[END_TO_END].facts["timed_s"]
        metrics.append({"name": "data_wait_share", "value": share})
    main = parts.get(END_TO_END) or next(iter(parts.values()))
    for part, measured in parts.items():
        metrics.append({"name": f"{part}_first_call_s", "value": measured.first_call_s})
        notes[f"{part}_steadiness"] = measured.steadiness
        notes[f"{part}_timed_batches"] = measured.facts["steps"]
        notes[f"{part}_timed_s"] = measured.facts["timed_s"]
    return {
        "iters": main.facts["steps"],
        "cpu_time": main.cpu_s,
        "wall_time": main.facts["timed_s"] / main.facts["steps"],
        "throughput": images_per_second(main),
        "metrics": metrics,
        "extras": {**notes, **extras},
    }


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

"""Time the input from a data set: the loader, the device, and both together, as rates.

The parts are timed one after the other. Where they are compared, that is done in several rounds, so
that a machine that becomes slower slows all of them. `iterations` is for all rounds together.
A loader's processes or threads live only while its part is timed, because on a CPU they would take
time from the device.

A loader of several processes delivers batches in bursts: several at once, then none for a while. So
the time of the median batch says nothing, and a rate is all images over all timed seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks._support.knobs import Configured, Settings
from perfrun import SetupError

if TYPE_CHECKING:  # imported where there is a data set
    from benchmarks._support.datasets.loading import Opened

LOADER, DEVICE, END_TO_END = "loader", "device", "end_to_end"
# Above this, both together were faster than the slower one alone: noise, or a wrong measurement.
SUSPICIOUS_EFFICIENCY = 1.05

Rounds = Sequence[Any]  # the measurements of one part; their items are images


def blocks(batches: int, size: int) -> int:
    """Return the number of blocks of `size` batches that hold at least `batches` batches."""
    return -(-batches // size)


def batches(rounds: Rounds) -> int:
    """Return the number of timed batches."""
    return sum(measured.facts["steps"] for measured in rounds)


def seconds(rounds: Rounds) -> float:
    """Return the seconds of the timed batches."""
    return sum(float(measured.facts["timed_s"]) for measured in rounds)


def images_per_second(rounds: Rounds) -> float:
    """Return images over seconds, of all rounds together."""
    return float(rounds[0].items_per_step) * batches(rounds) / seconds(rounds)


def report_arguments(
    parts: Mapping[str, Rounds], *, waited_s: float | None, extras: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments for `report_benchmark` from the parts that were measured.

    `waited_s` is the time that the program waited for batches while the part end to end was timed.
    Efficiencies are not capped: one above 1 stays as it is, and a note says so.
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


WARMUP = 3  # batches, at least
MAX_TIME_S = 3.0  # of a part in a round, where `iterations` does not say how long
PRECISION = 0.02


class Batches(Protocol):
    """The part of a framework's loader that this module uses."""

    batch_size: int
    prefetched: int  # batches that may lie ready before the first is asked for
    burst: int  # batches that come at about the same time

    def __next__(self) -> tuple[Any, Any]: ...

    def close(self) -> None:
        """Stop what loads in the background."""


def measure_loader(benchmark: Configured, loader: Batches, rounds: int = 1) -> Any:
    """Time the loader alone; its batches are dropped."""
    try:
        return _measure(benchmark, LOADER, loader, lambda: next(loader), loader.prefetched, rounds)
    finally:
        loader.close()


def measure_device(
    benchmark: Configured,
    loader: Batches,
    step: Callable[[], object],
    rounds: int = 1,
    **options: Any,
) -> Any:
    """Time steps on a batch that is on the device already. The loader is not used."""
    return _measure(benchmark, DEVICE, loader, step, 0, rounds, **options)


def measure_end_to_end(
    benchmark: Configured,
    loader: Batches,
    step: Callable[[Any], object],
    rounds: int = 1,
    item: str = "image",
    **options: Any,
) -> tuple[Any, float]:
    """Time steps on batches as they are loaded; also return the seconds of waiting for them.

    `options` are more of `measure`'s.
    """
    waits_ns: list[int] = []

    def load_and_step() -> object:
        began = time.perf_counter_ns()
        batch = next(loader)
        waits_ns.append(time.perf_counter_ns() - began)
        return step(batch)

    try:
        measured = _measure(
            benchmark, END_TO_END, loader, load_and_step, loader.prefetched, rounds, item, **options
        )
    finally:
        loader.close()
    timed = measured.facts["steps"]  # the last ones; before them, the first call and the warm-up
    return measured, sum(waits_ns[-timed:]) / 1e9


def _measure(
    benchmark: Configured,
    name: str,
    loader: Batches,
    step: Callable[[], object],
    queued: int,
    rounds: int,
    item: str = "image",
    **options: Any,
) -> Any:
    settings = benchmark.settings
    iterations = settings.value("iterations")
    # Batches that lie ready are taken before the clock starts, or it would time a queue.
    warmup = max(settings.value("warmup", WARMUP), queued)
    return benchmark.measure(
        step,
        name=name,
        item=item,
        items_per_step=loader.batch_size,
        block_size=loader.burst,
        warmup=blocks(warmup, loader.burst),
        iterations=iterations and blocks(iterations, rounds * loader.burst),
        precision=PRECISION,
        max_time_s=MAX_TIME_S,
        report=False,
        **options,
    )


# DLBS always gives these; they have no effect where there is no data set.
OF_DATA_SETS = ("data_backend", "data_shuffle", "num_loader_threads")
KNOBS = ("data_dir", *OF_DATA_SETS, "data_loader_only")


class Feed:
    """Batches of a loader for a model."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._waited_s = 0.0
        self._warmup = 0

    def __next__(self) -> Any:
        return next(self._loader)

    def measure(self, benchmark: Configured, step: Callable[[Any], object], **options: Any) -> Any:
        """Time steps on batches as they are loaded, several of them at a time."""
        measured, self._waited_s = measure_end_to_end(
            benchmark, self._loader, step, item="example", **options
        )
        self._warmup = measured.warmup_iterations * measured.block_size
        return measured

    def metrics(self, measured: Any) -> list[dict[str, Any]]:
        """Return the rate over all of the time, and the share of it that was spent waiting."""
        rate, timed_s = images_per_second([measured]), seconds([measured])
        return [
            {"name": "end_to_end_images_per_second", "value": rate},
            {"name": "data_wait_share", "value": self._waited_s / timed_s},
        ]

    @property
    def notes(self) -> dict[str, Any]:
        """Return the report's notes on the data set."""
        return {"warmup": self._warmup, **self._loader.notes}


def is_wanted(settings: Settings) -> bool:
    """Return True when there is a data set; SetupError where only its loader is asked for."""
    if settings.value("data_dir"):
        return True
    if settings.value("data_loader_only", False):
        raise SetupError("data_loader_only needs data_dir, the folder of a data set")
    return False


def opened(benchmark: Configured) -> Opened | None:
    """Open the data set that the knobs name; None where they name none and input is synthetic.

    DataError, one line, is raised for a folder that is not a data set.
    """
    if not is_wanted(benchmark.settings):
        return None
    from benchmarks._support.datasets import loading

    return loading.open_chosen(benchmark.settings, benchmark.root_data_dir)


def is_alone(settings: Settings) -> bool:
    """Return True when only the loader is to be timed."""
    return is_wanted(settings) and bool(settings.value("data_loader_only", False))


def place(settings: Settings, default: str) -> str:
    """Return the source of the input: `data_dir`, or the knob `data`."""
    return "data_dir" if settings.value("data_dir") else settings.value("data", default)


def unused(settings: Settings) -> dict[str, str]:
    """Return a note on knobs that were given and have no effect on this input."""
    names = ("data",) if settings.value("data_dir") else OF_DATA_SETS
    given = [name for name in names if settings.value(name) is not None]
    why = "input is a data set" if settings.value("data_dir") else "there is no data_dir"
    return {"data_note": f"without effect: {', '.join(given)}; {why}"} if given else {}


def report_loader(benchmark: Configured, loader: Any, extras: dict[str, Any]) -> None:
    """Measure and report the loader alone."""
    measured = measure_loader(benchmark, loader)
    arguments = report_arguments(
        {LOADER: [measured]}, waited_s=None, extras={**extras, **loader.notes}
    )
    benchmark.report_benchmark(**arguments)

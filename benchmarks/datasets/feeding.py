"""A data set in the place of synthetic input, for classes that measure any model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.configured import Configured
from benchmarks.datasets import parts, rates, source
from benchmarks.datasets.source import Opened
from benchmarks.knobs import Settings
from perfrun import SetupError

# Taken, because DLBS gives them always, and without effect where there is no data set.
OF_DATA_SETS = ("data_backend", "data_shuffle", "num_loader_threads")
KNOBS = ("data_dir", *OF_DATA_SETS, "data_loader_only")


class Feed:
    """Batches of a loader for a model."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._waited_s = 0.0
        self._warmup = 0

    def example(self) -> Any:
        """Return a batch that is not measured; it is not kept, so that memory is that of use."""
        return next(self._loader)

    def measure(self, benchmark: Configured, step: Callable[[Any], object]) -> Any:
        """Time steps on batches as they are loaded, several of them at a time."""
        measured, self._waited_s = parts.measure_end_to_end(
            benchmark, self._loader, step, item="example"
        )
        self._warmup = measured.warmup_iterations * measured.block_size
        return measured

    def metrics(self, measured: Any) -> list[dict[str, Any]]:
        """Return the rate over all of the time, and the share of it that was spent waiting."""
        rate, timed_s = rates.images_per_second([measured]), rates.seconds([measured])
        return [
            {"name": "end_to_end_images_per_second", "value": rate},
            {"name": "data_wait_share", "value": self._waited_s / timed_s},
        ]

    @property
    def notes(self) -> dict[str, Any]:
        """What a report says about the data set."""
        return {"warmup": self._warmup, **self._loader.notes}


def is_wanted(settings: Settings) -> bool:
    """Whether there is a data set; SetupError where there is none, but its loader is wanted."""
    if settings.value("data_dir"):
        return True
    if settings.value("data_loader_only", False):
        raise SetupError("data_loader_only needs data_dir, the folder of a data set")
    return False


def opened(benchmark: Configured) -> Opened | None:
    """Open the data set that the knobs name; None where they name none, and input is synthetic.

    DataError, one line, for a folder that is no data set.
    """
    return (
        source.of(benchmark.settings, benchmark.root_data_dir)
        if is_wanted(benchmark.settings)
        else None
    )


def is_alone(settings: Settings) -> bool:
    """Whether only the loader is to be timed."""
    return is_wanted(settings) and bool(settings.value("data_loader_only", False))


def place(settings: Settings, default: str) -> str:
    """Return where input comes from: `data_dir`, or the knob `data`."""
    return "data_dir" if settings.value("data_dir") else settings.value("data", default)


def unused(settings: Settings) -> dict[str, str]:
    """Return a note on knobs that were given and have no effect on this input."""
    names = ("data",) if settings.value("data_dir") else OF_DATA_SETS
    given = [name for name in names if settings.value(name) is not None]
    why = "input is a data set" if settings.value("data_dir") else "there is no data_dir"
    return {"data_note": f"without effect: {', '.join(given)}; {why}"} if given else {}


def report_loader(benchmark: Configured, loader: Any, extras: dict[str, Any]) -> None:
    """Measure and report the loader alone."""
    measured = parts.measure_loader(benchmark, loader)
    arguments = rates.report_arguments(
        {rates.LOADER: [measured]}, waited_s=None, extras={**extras, **loader.notes}
    )
    benchmark.report_benchmark(**arguments)

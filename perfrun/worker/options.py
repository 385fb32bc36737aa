"""What `Benchmark.measure` is given: options with their defaults, and what is refused."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, Mapping, Optional, Sequence

from perfrun.worker.files import SERIES_VARIABLE
from perfrun.worker.measurement import Measurement
from perfrun.worker.measuring import Measuring
from perfrun.worker.recording import observer
from perfrun.worker.stopping import Limits
from perfrun.worker.synchronise import Given

_NAMES = "_perfrun_series_names"  # attribute of a benchmark: the names that are taken
# Functions whose body does not run when they are called, by their flag (inspect.CO_*).
_LAZY = {"a generator": 0x20, "a coroutine": 0x80, "an asynchronous generator": 0x200}


def measuring(
    benchmark: Any,
    method: str,
    *,
    items_per_step: Optional[float] = None,
    item: Optional[str] = None,
    name: Optional[str] = None,
    precision: Optional[float] = Limits().precision,
    iterations: Optional[int] = None,
    min_iterations: int = Limits().min_iterations,
    max_iterations: int = Limits().max_iterations,
    min_time_s: float = Limits().min_time_s,
    max_time_s: float = Limits().max_time_s,
    warmup: Optional[int] = None,
    block_size: Optional[int] = None,
    synchronize: Given = None,
    devices: Optional[int] = None,
    gc: str = "on",
    report: bool = True,
    extras: Optional[Mapping[str, Any]] = None,
    metrics: Sequence[Mapping[str, Any]] = (),
) -> Measuring:
    """Make the measurement that these options describe. `method` names it if nothing else does."""
    _check_number("items_per_step", items_per_step)
    if devices is not None and (isinstance(devices, bool) or not isinstance(devices, int)):
        raise TypeError("devices is %r; it must be a whole number" % (devices,))
    if devices is not None and devices < 1:
        raise ValueError("devices is %d; it must be at least 1" % devices)
    taken = benchmark.__dict__.setdefault(_NAMES, set())
    own = _free(name or method, taken)
    reported = None if own == method else own  # None: `report_benchmark` finds the name

    def make_report(measured: Measurement) -> None:
        taken.add(own)
        if report:
            benchmark.report_benchmark(name=reported, **measured.report_arguments(extras, metrics))

    what = item or ("example" if items_per_step is not None else "step")
    facts: Dict[str, Any] = {
        "report": "%s.%s" % (type(benchmark).__name__, own) if report else None,
        "items_per_step": 1 if items_per_step is None else items_per_step,
        "item": what,
    }
    chosen: Dict[str, Any] = dict(  # noqa: C408 - the keywords of a call
        name=own,
        limits=Limits(
            precision=precision,
            iterations=iterations,
            min_iterations=min_iterations,
            max_iterations=max_iterations,
            min_time_s=min_time_s,
            max_time_s=max_time_s,
            warmup=warmup,
            block_size=block_size,
        ),
        folder=os.environ.get(SERIES_VARIABLE),
        facts=facts,
        synchronize=synchronize,
        collector=gc,
        devices=devices,
        report=make_report,
    )
    watching = observer()
    if watching is None:
        return Measuring(**chosen)
    from perfrun.worker.profiled import ProfiledMeasuring  # only in a profile trial

    return ProfiledMeasuring(watching, **chosen)


def check_step(step: Any) -> None:
    """Refuse what does no work when it is called: its time would look splendid."""
    if not callable(step):
        raise TypeError("the step is %r; it must be a function to call" % (step,))
    flags = getattr(getattr(step, "__code__", None), "co_flags", 0)
    for kind, bit in _LAZY.items():
        if flags & bit:
            raise TypeError(
                "the step is %s: calling it only makes an object and runs nothing; "
                "give a function that runs it to its end" % kind
            )


def _free(name: str, taken: Any) -> str:
    """The name, with a number where a series of this benchmark has it already."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = "%s_%d" % (name, number)
    return free


def _check_number(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("%s is %r; it must be a number" % (name, value))
    if not (value > 0 and math.isfinite(value)):
        raise ValueError("%s is %r; it must be above 0" % (name, value))

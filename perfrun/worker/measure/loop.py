"""The loop behind `Benchmark.measure`, which times a step to its steady state.

A timed interval holds two readings of the clock, the steps, and the wait for the device. All else
(CPU time, page faults, the raw store, the decision to go on) lies between the intervals.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from itertools import repeat
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from perfrun.worker.measure import series_files
from perfrun.worker.measure.interference import (
    GC_MODES,
    CompilationCounters,
    GarbageWatch,
    counter_rises,
)
from perfrun.worker.measure.kernel_work import KernelWork
from perfrun.worker.measure.measurement import Measurement, derive, evaluate
from perfrun.worker.measure.statistics import median
from perfrun.worker.measure.stopping import FIRST, OVERHEAD_SHARE, TIMED, Limits, SeriesProgress
from perfrun.worker.measure.synchronise import (
    Synchroniser,
    SynchronizeOption,
    find_synchroniser,
)
from perfrun.worker.outcome_file import SERIES_VARIABLE
from perfrun.worker.profilers.profile_recorder import observer

Step = Callable[[], Any]
_clock = time.perf_counter_ns
_cpu_clock = time.process_time_ns
_EMPTY_INTERVALS = 51
_LATE_SHARE = 0.05  # of a block: work found after the last one that the wait did not wait for
_NAMES = "_perfrun_series_names"  # attribute of a benchmark: the names that are taken
# Functions whose body does not run when they are called, by their flag (inspect.CO_*).
_LAZY = {"a generator": 0x20, "a coroutine": 0x80, "an asynchronous generator": 0x200}

# One measurement at a time in a process: two would measure each other.
_turn = threading.Lock()
_running: List[Tuple[int, str]] = []  # pid and name; a forked child inherits them, and may measure


def run_block(step: Step, count: int, sync: Synchroniser) -> Tuple[int, int, int]:
    """Run the steps and wait for them; return nanoseconds of wall clock, CPU and device."""
    returned = None
    cpu_ns = _cpu_clock()
    began_ns = _clock()
    if sync.waits:
        sync.begin()
        # All but the last result are dropped at once, as a plain loop drops them.
        for _ in repeat(None, count - 1):
            step()
        if count:
            returned = step()
        sync.finish(returned)
        returned = None  # freeing it is part of the step
    else:
        for _ in repeat(None, count):
            step()
    wall_ns = _clock() - began_ns
    cpu_ns = _cpu_clock() - cpu_ns
    return wall_ns, cpu_ns, sync.device_ns()


def overhead_ns(sync: Synchroniser) -> float:
    """Return the time of an interval without a step: the timer, and the wait for an idle device."""
    empty = [run_block(_nothing, 0, sync)[0] for _ in range(_EMPTY_INTERVALS)]
    return median([float(wall_ns) for wall_ns in empty])


def _nothing() -> None:
    """An empty step."""


class Measuring:
    """One series from its first call to its report, as `with benchmark.measuring()` gives it.

    `for _ in timer:` runs the loop's body as the step. After the `with`, `timer.measurement` holds
    the result.
    """

    def __init__(
        self,
        *,
        name: str,
        limits: Limits,
        folder: Optional[str],
        facts: Mapping[str, Any],
        synchronize: SynchronizeOption,
        collector: str,
        devices: Optional[int],
        after_first_call: Optional[Callable[[], object]],
        report: Callable[[Measurement], None],
        prepare: Optional[Step] = None,
    ) -> None:
        if prepare is not None:
            check_step(prepare)
        self._prepare = prepare
        self._name = name
        self._limits = limits.checked()
        if collector not in GC_MODES:
            raise ValueError("gc is %r; it must be one of %s" % (collector, ", ".join(GC_MODES)))
        if synchronize is True or not (synchronize in (None, False) or callable(synchronize)):
            raise TypeError("synchronize must be a function, None or False, not %r" % synchronize)
        if not (after_first_call is None or callable(after_first_call)):
            raise TypeError("after_first_call must be a function, not %r" % (after_first_call,))
        self._folder = folder
        self._facts: Dict[str, Any] = {"name": name, **facts}
        self._synchronize = synchronize
        self._collector = collector
        self._devices = devices
        self._after_first_call = after_first_call
        self._report = report
        self._notes: List[str] = []
        self._step: Optional[Step] = None
        self._began = False
        self._overhead_ns = 0.0
        self._kernel = KernelWork()
        self.measurement: Optional[Measurement] = None

    def __enter__(self) -> "Measuring":
        _take_turn(self._name)
        try:
            self._garbage = GarbageWatch(self._collector)
            self._progress = SeriesProgress(self._limits)
            self._writer = series_files.SeriesWriter(self._folder, self._header())
            self._find_devices()
            self._garbage.start()
        except BaseException:
            _end_turn()
            raise
        return self

    def __exit__(self, kind: Any, error: Any, _trace: Any) -> None:
        self._garbage.stop()
        try:
            if kind is None and not self._progress.times:
                raise RuntimeError(
                    "%s: nothing was timed; write `for _ in timer: ...`" % self._name
                )
            whole = kind is None and self._progress.stopped_by is not None
            facts = self._finish(error, whole)
        finally:
            self._writer.close()
            _end_turn()
        if kind is None:
            self.measurement = Measurement(facts)
            self._report(self.measurement)

    def run(self, step: Step) -> None:
        """Time a callable; its result is made concrete where its framework needs that."""
        self._step = step
        self._begin()
        count = self._progress.next_count()
        while count:
            if self._prepare is not None:
                self._prepare()
            self._kernel.begin()
            wall_ns, cpu_ns, device_ns = run_block(step, count, self._sync)
            self._kernel.end()
            if self._progress.phase is FIRST and not self._sync.is_current():
                # The first step has loaded a framework or started a device: wait for that, too.
                began_ns = _clock()
                self._find_devices()
                self._sync.finish(None)
                wall_ns += _clock() - began_ns
            count = self._record(count, wall_ns, cpu_ns, device_ns)

    def __iter__(self) -> Iterator[None]:
        """Yield once for each step; the time between two yields is the step's."""
        self._begin()
        count = self._progress.next_count()
        while count:
            sync = self._sync
            if self._prepare is not None:
                self._prepare()
            self._kernel.begin()
            cpu_ns = _cpu_clock()
            began_ns = _clock()
            sync.begin()
            for _ in repeat(None, count):
                yield
            sync.finish(None)
            if self._progress.phase is FIRST and not sync.is_current():
                self._find_devices()
                self._sync.finish(None)
            wall_ns = _clock() - began_ns
            cpu_ns = _cpu_clock() - cpu_ns
            self._kernel.end()
            count = self._record(count, wall_ns, cpu_ns, sync.device_ns())

    def _begin(self) -> None:
        if self._began:
            raise RuntimeError("%s: one measurement is one loop; make a second one" % self._name)
        if not hasattr(self, "_writer"):
            raise RuntimeError("write `with self.measuring() as timer:` around the loop")
        self._began = True
        self._compilations = CompilationCounters(self._step)
        self._counters = self._compilations.read()
        self._sync.finish(None)  # work queued before the series does not count

    def _record(self, count: int, wall_ns: int, cpu_ns: int, device_ns: int) -> int:
        """Do the work between two intervals: store the row, and return the steps of the next."""
        progress = self._progress
        if progress.phase is TIMED:
            self._writer.rows.append(wall_ns, cpu_ns, device_ns, count)
            progress.add(count, wall_ns, _clock())
            self._garbage.between()
            return progress.next_count()
        self._writer.rows.append(wall_ns, cpu_ns, device_ns, -count)
        if progress.phase is FIRST and self._after_first_call is not None:
            self._after_first_call()
        counters = self._compilations.read()
        compiled = any(counter_rises(self._counters, counters).values())
        self._counters = counters
        if progress.phase is FIRST or not self._sync.is_current():
            self._find_devices()
            self._overhead_ns = overhead_ns(self._sync)
            progress.set_overhead(self._overhead_ns)
        progress.add(count, wall_ns, _clock(), compiled)
        if progress.phase is TIMED:
            self._start_timed()
        return progress.next_count()

    def _start_timed(self) -> None:
        self._counters = self._compilations.read()
        self._kernel.forget()
        self._writer.update(self._described())
        self._garbage.start_timed(sum(self._writer.rows.read().wall_ns[1:]))

    def _find_devices(self) -> None:
        self._sync = find_synchroniser(self._synchronize)

    def _header(self) -> Dict[str, Any]:
        """Return the facts that are known before anything is timed."""
        clock = time.get_clock_info("perf_counter")
        return {
            **self._facts,
            "unit": "s per step",
            "direction": "lower",
            "clock": {
                "name": "perf_counter",
                "implementation": clock.implementation,
                "resolution_s": clock.resolution,
            },
            "complete": False,
            "stopped_by": None,
            "target": self._limits._asdict(),
            "notes": self._notes,
        }

    def _described(self) -> Dict[str, Any]:
        """Return the facts that the warm-up has shown."""
        sync = self._sync
        return {
            "block_size": self._progress.block_size,
            "device": sync.device,
            "devices": self._devices or sync.device_count,
            "synchronised_by": list(sync.names),
            "cudnn_autotune": _cudnn_autotune(),
            "timer": {"overhead_s": self._overhead_ns / 1e9, "share": None},
        }

    def _finish(self, error: Optional[BaseException], whole: bool) -> Dict[str, Any]:
        """Put all facts together and write them down."""
        progress = self._progress
        rises = counter_rises(self._counters, self._compilations.read()) if self._began else {}
        in_timed_part = progress.phase is TIMED
        facts = {**self._header(), **self._described()}
        facts["stopped_by"] = progress.stopped_by if error is None else "exception"
        if error is None and progress.stopped_by is None:
            facts["stopped_by"] = "left"  # the loop was left by `break`
        facts["complete"] = whole
        if error is not None:
            facts["report"] = None  # a series that failed is not reported
        facts["recompilations"] = rises if in_timed_part else None
        facts["gc"] = self._garbage.facts(progress.timed_ns) if in_timed_part else None
        facts.update(evaluate(self._writer.rows.read()))
        facts.update(self._kernel.facts(facts["steps"]))
        if progress.times:
            block_ns = progress.timed_ns / len(progress.times)
            share = self._overhead_ns / block_ns if block_ns else None
            facts["timer"]["share"] = share
            self._note_timer(share)
            if error is None:
                self._note_late_work(block_ns)
        if self._writer.rows.trouble:
            self._notes.append("not all raw times are on disk: %s" % self._writer.rows.trouble)
        derive(facts)
        self._writer.finish(facts)
        return facts

    def _note_timer(self, share: Optional[float]) -> None:
        if share is None or share > 2 * OVERHEAD_SHARE:
            self._notes.append(
                "the timer takes %s of an interval; set a larger block_size"
                % ("all" if share is None else "%.2g %%" % (100 * share))
            )

    def _note_late_work(self, block_ns: float) -> None:
        """Note when work was still queued after the last interval: then all times are too short."""
        if self._synchronize is not False and self._sync.is_current():
            return
        whole = find_synchroniser(None)
        began_ns = _clock()
        whole.finish(None)
        late_ns = _clock() - began_ns
        began_ns = _clock()
        whole.finish(None)
        if late_ns - (_clock() - began_ns) > _LATE_SHARE * block_ns:
            self._notes.append(
                "a device was still working when the last interval had ended: the times are too "
                "short (%s was not waited for)" % ", ".join(whole.names)
            )


def _take_turn(name: str) -> None:
    with _turn:
        if _running and _running[0][0] == os.getpid():
            raise RuntimeError(
                "%s cannot be measured while %s is: measurements are neither nested nor run from "
                "several threads at a time" % (name, _running[0][1])
            )
        _running[:] = [(os.getpid(), name)]


def _end_turn() -> None:
    with _turn:
        del _running[:]


def _cudnn_autotune() -> Optional[bool]:
    """Return PyTorch's flag to choose kernels by trying, which slows first calls; None: no CUDA."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        return bool(torch.backends.cudnn.benchmark)
    except Exception:  # noqa: BLE001 - half an import
        return None


class ObservedMeasuring(Measuring):
    """A measurement in a profile trial, which tells the recorder when its timed steps run.

    Its times include the profiler's own work and do not count.
    """

    def __init__(self, observer: Any, **options: Any) -> None:
        super().__init__(**{**options, "limits": observer.limits(options["limits"].checked())})
        self._observer = observer
        self._timed_steps = 0

    def __enter__(self) -> "ObservedMeasuring":
        self._observer.measurement_begins()
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._observer.timed_part_ends(self._timed_steps)
        super().__exit__(kind, error, trace)

    def _record(self, count: int, wall_ns: int, cpu_ns: int, device_ns: int) -> int:
        self._observer.interval_ends()
        if self._progress.phase is TIMED:
            self._timed_steps += count
        following = super()._record(count, wall_ns, cpu_ns, device_ns)
        if following and self._progress.phase is TIMED:
            self._observer.interval_begins(self._name)
        return following


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
    synchronize: SynchronizeOption = None,
    devices: Optional[int] = None,
    after_first_call: Optional[Callable[[], object]] = None,
    gc: str = "on",
    prepare: Optional[Step] = None,
    report: bool = True,
    extras: Optional[Mapping[str, Any]] = None,
    metrics: Sequence[Mapping[str, Any]] = (),
) -> Measuring:
    """Make the measurement that these options describe. Without `name`, `method` names it."""
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
        after_first_call=after_first_call,
        report=make_report,
        prepare=prepare,
    )
    watching = observer()
    if watching is None:
        return Measuring(**chosen)
    return ObservedMeasuring(watching, **chosen)


def check_step(step: Any) -> None:
    """Refuse a step that does no work when it is called: its time would be far too good."""
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
    """Return the name, with a number if a series of this benchmark has it already."""
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

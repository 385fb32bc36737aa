"""The author API: the `Benchmark` base class, for any framework or none.

The constructor is PerfZero's and `report_benchmark` is TensorFlow's, file format included, so a
class written for perfrun also runs under PerfZero, and the other way round.
"""

from __future__ import annotations

import numbers
import os
import sys
from collections.abc import Mapping

from perfrun.worker.outcome_file import SERIES_VARIABLE
from perfrun.worker.test_log import encode_entry

TYPE_CHECKING = False  # `typing` takes 4 ms to import, a tenth of a no-op trial
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Union

    from perfrun.worker.measure.loop import Measuring

    # Imported at the first measurement: a method that takes no times starts faster.
    from perfrun.worker.measure.measurement import Measurement

PREFIX_VARIABLE = "TEST_REPORT_FILE_PREFIX"  # TensorFlow's name; PerfZero sets it too


class SetupError(ValueError):
    """Raised by a benchmark that cannot run with what it was given, or where it runs.

    Raise it for a setting, a data set or a missing package that the user has to put right: perfrun
    shows the message as one line, and keeps the traceback in the summary only.
    """

    __module__ = "perfrun"  # as it is imported, and as a traceback elsewhere names it


class Benchmark:
    """Base class of benchmarks. A benchmark is a method without arguments that reports.

    `output_dir` is the trial's own folder, `root_data_dir` holds the data sets, `tpu` is there for
    PerfZero's classes. `constructor_args` has all other keywords (`--perfzero_constructor_args`).

    A history begins anew when the module's file changes. A class with a `version` (text or int)
    keeps its history as long as that stays the same.
    """

    def __init__(
        self,
        output_dir: Optional[str] = None,
        root_data_dir: Optional[str] = None,
        tpu: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        self.output_dir: str = output_dir or "/tmp"
        self.root_data_dir: Optional[str] = root_data_dir
        self.tpu: Optional[str] = tpu
        self.constructor_args: Dict[str, Any] = kwargs

    def report_benchmark(
        self,
        iters: Optional[int] = None,
        cpu_time: Optional[float] = None,
        wall_time: Optional[float] = None,
        throughput: Optional[float] = None,
        extras: Optional[Mapping[str, Any]] = None,
        name: Optional[str] = None,
        metrics: Optional[Sequence[Mapping[str, Any]]] = None,
    ) -> None:
        """Report one result. Times are in seconds, throughput in units of work per second.

        `extras` are notes: numbers stay numbers, everything else becomes text. `metrics` are dicts
        with `name`, `value` and, where a bound decides success, `min_value` and `max_value` (both
        inclusive). `name` replaces the method's name. A method may report several times; readers
        of PerfZero see the first report. Raises TypeError for anything else.
        """
        entry_name = "%s.%s" % (type(self).__name__, name or self._reporting_method())
        data = encode_entry(
            entry_name,
            iters=_count(iters),
            cpu_time=_number("cpu_time", cpu_time),
            wall_time=_number("wall_time", wall_time),
            throughput=_number("throughput", throughput),
            extras=_checked_extras(extras),
            metrics=_checked_metrics(metrics),
        )
        prefix = os.environ.get(PREFIX_VARIABLE)
        if not prefix:
            # No harness runs this: print the report.
            sys.stdout.write("%s %s %s %s\n" % (entry_name, wall_time, metrics, extras))
            return
        # The whole name is in the file; a file's own name has 255 bytes, the prefix included.
        _write_new(prefix, os.fsdecode(os.fsencode(entry_name.replace("/", "__"))[:200]), data)

    def count_afterwards(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        place: Mapping[str, Any],
        rate: Optional[float],
        name: Optional[str] = None,
    ) -> None:
        """Have the arithmetic behind a report counted by another process, when this one has ended.

        `function` is `package.module.function`; perfrun.worker.companion says how it is called and
        what it returns. `arguments` and `place`, on which the device's peak depends, are what JSON
        can hold: for equal ones the answer is kept. `rate` is in examples per second and device,
        `name` as in `report_benchmark`. Without perfrun's harness nothing is counted.
        """
        folder = os.environ.get(SERIES_VARIABLE)
        if not folder:
            return
        from perfrun.worker.companion import write_request

        module, _, plain = function.rpartition(".")
        request = {
            "report": "%s.%s" % (type(self).__name__, name or self._reporting_method()),
            "module": module,
            "function": plain,
            "arguments": dict(arguments),
            "place": dict(place),
            "rate": rate,
        }
        write_request(folder, request)

    def measure(self, step: Callable[[], Any], **options: Any) -> "Measurement":
        """Time a callable to its steady state, report it, and return what was found.

        All options are given by keyword; docs/guides/benchmarks.md explains them:

        * `items_per_step`, `item`: throughput is items over the median; `item` names them.
        * `name`: of the series and its report; the method's by default.
        * `precision` (share of the median), `min_iterations`, `min_time_s`, `max_iterations`,
          `max_time_s`: when to stop. `iterations`: exactly so many instead.
        * `warmup`: exactly so many untimed iterations after the first call; found by default.
        * `block_size`: steps in an iteration; found by default.
        * `synchronize`: called to wait for a device that no framework in use knows of.
        * `devices`: how many share the work.
        * `after_first_call`: called once between the first step and the warm-up, untimed.
        * `prepare`: called before each timed interval, which does not count it.
        * `gc`: `on` (as it is), `off`, or `between` the timed intervals.
        * `report`: False leaves the report to the benchmark; `extras`, `metrics`: more for it.

        Raises what the step raises, ValueError or TypeError for an option that makes no sense, and
        RuntimeError when another measurement is running in this process.
        """
        from perfrun.worker.measure.loop import check_step

        check_step(step)
        with self.measuring(**options) as timer:
            timer.run(step)
        assert timer.measurement is not None
        return timer.measurement

    def measuring(self, **options: Any) -> "Measuring":
        """Like `measure`, for a loop: `with self.measuring() as timer:`, `for _ in timer: ...`."""
        from perfrun.worker.measure.loop import measuring

        return measuring(self, self._reporting_method(), **options)

    def _reporting_method(self) -> str:
        """Return the name of the outermost function whose `self` is a benchmark: helpers report."""
        name = "report_benchmark"
        frame = sys._getframe(1)
        while frame is not None:
            if isinstance(frame.f_locals.get("self"), Benchmark):
                name = frame.f_code.co_name
            frame = frame.f_back  # type: ignore[assignment]
        return name


def _number(what: str, value: Any) -> float:
    """Return a number as a float, None as zero. A text is no number, even if it looks like one."""
    if isinstance(value, (str, bytes)):
        raise TypeError("%s must be a number, not %r" % (what, value))
    return 0.0 if value is None else float(value)


def _count(iters: Any) -> int:
    _number("iters", iters)
    return 0 if iters is None else int(iters)


def _checked_extras(extras: Optional[Mapping[str, Any]]) -> Dict[str, Union[float, str]]:
    if extras is not None and not isinstance(extras, Mapping):
        raise TypeError("extras must be a dict, not %s" % type(extras).__name__)
    return {
        str(key): float(value) if isinstance(value, numbers.Real) else str(value)
        for key, value in (extras or {}).items()
    }


def _checked_metrics(metrics: Optional[Sequence[Mapping[str, Any]]]) -> List[Dict[str, Any]]:
    if metrics is not None and not isinstance(metrics, (list, tuple)):
        raise TypeError("metrics must be a list of dicts, not %s" % type(metrics).__name__)
    checked = []
    for metric in metrics or ():
        if not isinstance(metric, Mapping) or not {"name", "value"} <= set(metric):
            raise TypeError("each metric is a dict with 'name' and 'value', not %r" % (metric,))
        bounds = {
            key: _number(key, metric[key])
            for key in ("min_value", "max_value")
            if metric.get(key) is not None
        }
        if metric["value"] is None:
            raise TypeError("metric %r has no value" % (metric["name"],))
        value = _number("value", metric["value"])
        checked.append({"name": str(metric["name"]), "value": value, **bounds})
    return checked


def _write_new(prefix: str, name: str, data: bytes) -> None:
    """Write a new file: a second report never replaces the first."""
    for number in range(1, 1_000_000):
        path = prefix + name if number == 1 else "%s%d_%s" % (prefix, number, name)
        try:
            with open(path, "xb") as file:
                file.write(data)
            return
        except FileExistsError:
            continue

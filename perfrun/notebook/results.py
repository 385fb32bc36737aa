"""Results as a Python value: trials to choose from, to compare, to draw, to make a frame of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from perfrun.analysis.stats import median, median_interval
from perfrun.errors import UsageError
from perfrun.notebook.display import as_html, as_text
from perfrun.reports.figures import named_value
from perfrun.reports.table import Column, Table
from perfrun.show.view import view
from perfrun.shown import cell
from perfrun.summary.counted_trials import counted
from perfrun.summary.derived_metrics import judged_metrics
from perfrun.summary.document import Status
from perfrun.summary.metrics import PEAK_RSS, WALL_TIME, MetricValue
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_times import intervals

if TYPE_CHECKING:
    import pandas
    import polars

    from perfrun.notebook.comparison import Comparisons
    from perfrun.notebook.drawing import Picture

_LATEST_S = 253402300799.0  # the end of Python's calendar
_MOST_FAILURES = 5  # kinds that are shown
_COLUMNS = (
    Column(heading="method"),
    Column(heading="metric"),
    Column(heading="median (95 %)"),
    Column(heading="trials", right=True),
    Column(heading="grade"),
)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One metric of one method: a trial's value, or the median of several trials'.

    Values have the base unit `unit` (s, bytes, 1/s; '' when unknown) and are not scaled. `low` and
    `high` are the 95 % confidence interval of the median: over the trials, or of one trial over its
    timed steps. They are None where there is no interval.
    """

    method: str
    metric: str
    value: float
    low: float | None
    high: float | None
    unit: str
    direction: str  # the better one: lower, higher or none
    trials: int  # that count
    grade: str  # A to F, the worst of these trials; '' when not judged
    is_primary: bool

    @property
    def text(self) -> str:
        """The value for people: `wall_time 35.9 ms (28.9..38.3)`."""
        name, value = named_value(self.metric, self.value, self.low, self.high, self.unit)
        return cell(f"{name} {value}".strip())

    def __repr__(self) -> str:
        grade = f", grade {cell(self.grade)}" if self.grade else ""
        return f"<{self.text}, {_many(self.trials)}{grade}: {cell(self.method)}>"

    def _repr_html_(self) -> str:
        return as_html(_table([self]))


@dataclass(frozen=True, repr=False, eq=False)
class Trial:
    """One trial: one fresh process that ran one method once. `record` has all that is known."""

    record: SummaryRecord

    @property
    def method(self) -> str:
        """The method that was measured."""
        return self.record.method

    @property
    def status(self) -> str:
        """The outcome: passed, out_of_bounds, failed, exited, crashed, timed_out and so on."""
        return self.record.status.value

    @property
    def reason(self) -> str | None:
        """Why it did not pass, in one line; None when it did."""
        return self.record.reason

    @property
    def grade(self) -> str:
        """A (best) to F; '' when the trial was not judged."""
        return self.record.grade

    @property
    def time(self) -> datetime:
        """The begin of the method, in UTC."""
        return datetime.fromtimestamp(min(self.record.timestamp, _LATEST_S), timezone.utc)

    @property
    def run(self) -> str:
        """The id of the run; '' in PerfZero's summaries."""
        return self.record.run_id

    @property
    def label(self) -> str:
        """`--execution_label`; '' without one."""
        return self.record.label

    @cached_property
    def metrics(self) -> Mapping[str, Measurement]:
        """The metrics of the trial by name; empty when the method did not end by itself."""
        within = intervals(self.record.document, self.record.metrics)
        return {
            name: _measurement(
                *(self.method, metric, metric.value, within.get(name), (self.record,)),
                is_primary=not metric.derived_from,
            )
            for name, metric in self.record.metrics.items()
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and self.record.uid == other.record.uid

    def __hash__(self) -> int:
        return hash(self.record.uid)

    def __repr__(self) -> str:
        figures = [one.text for one in self.metrics.values() if one.is_primary][:3]
        reason = f" ({cell(self.reason)})" if self.reason else ""
        grade = [f"grade {cell(self.grade)}"] if self.grade else []
        words = [f"{cell(self.method)}: {self.status}{reason}", *grade, *figures]
        return f"<{', '.join(words)}; {self.time:%Y-%m-%d %H:%M:%S} UTC>"

    def _repr_html_(self) -> str:
        figures = [one for one in self.metrics.values() if one.is_primary]
        return as_html(_table(figures), [f"{self!r}"[1:-1]])


class Results(Sequence[Trial]):
    """Trials in the order of time. It does not change: every method returns a new value."""

    def __init__(self, records: Iterable[SummaryRecord]) -> None:
        """Take records; of copies of one trial the first counts."""
        unique = {record.uid: record for record in reversed(list(records))}
        ordered = sorted(unique.values(), key=lambda one: (one.timestamp, one.execution_id))
        self._records = tuple(ordered)

    @property
    def records(self) -> tuple[SummaryRecord, ...]:
        """The checked summaries, one a trial."""
        return self._records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Trial]:
        return map(Trial, self._records)

    @overload
    def __getitem__(self, at: int) -> Trial: ...
    @overload
    def __getitem__(self, at: slice) -> Results: ...
    def __getitem__(self, at: int | slice) -> Trial | Results:
        if isinstance(at, slice):
            return Results(self._records[at])
        return Trial(self._records[at])

    def __add__(self, other: Results) -> Results:
        """Return the trials of both."""
        if not isinstance(other, Results):
            return NotImplemented
        return Results((*self._records, *other._records))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and self._ids == other._ids

    def __hash__(self) -> int:
        return hash(self._ids)

    @cached_property
    def _ids(self) -> tuple[tuple[str, frozenset[str]], ...]:
        return tuple((one.uid, frozenset(one.metrics)) for one in self._records)

    def filter(
        self,
        *,
        method: str | None = None,
        metric: str | None = None,
        status: str | None = None,
        run: str | None = None,
        label: str | None = None,
    ) -> Results:
        """Return the trials that meet all conditions.

        `method` and `metric` are patterns, in which `*` stands for any text; of a trial the metrics
        that fit are kept. `status` is an outcome, or `ran` for passed and out_of_bounds. `run` is
        a run id, `label` an execution label.
        """
        if status not in (None, "ran", *(one.value for one in Status)):
            known = ", ".join(("ran", *(one.value for one in Status)))
            raise UsageError(f"filter(status={status!r}): must be one of {known}")
        chosen = [
            record
            for record in self._records
            if (method is None or _fits(record.method, method))
            and (status is None or status in (record.status.value, "ran" if record.ran else None))
            and (run is None or record.run_id == run)
            and (label is None or record.label == label)
        ]
        if metric is None:
            return Results(chosen)
        kept = [
            replace(one, metrics={n: m for n, m in one.metrics.items() if _fits(n, metric)})
            for one in chosen
        ]
        return Results(one for one in kept if one.metrics)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, sorted."""
        return tuple(sorted({record.method for record in self._records}))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics, sorted."""
        return tuple(sorted({name for record in self._records for name in record.metrics}))

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """Each metric of each method over its trials, primary metrics first.

        Trials that were disturbed are left out as `perfrun compare` does: unless most were. Trials
        of different settings or machines are one figure here; `filter` takes them apart.
        """
        found: dict[str, list[SummaryRecord]] = {}
        for record in self._records:
            if record.ran:
                found.setdefault(record.method, []).append(record)
        return tuple(
            one for method in sorted(found) for one in self._of_method(method, found[method])
        )

    def _of_method(self, method: str, own: Sequence[SummaryRecord]) -> list[Measurement]:
        primaries = judged_metrics(own)
        names = dict.fromkeys(name for record in own for name in record.metrics)
        found = []
        for name in sorted(names, key=lambda name: (name not in primaries, _place(name))):
            trials = counted([record for record in own if name in record.metrics])
            values = [record.values[name] for record in trials]
            metric = trials[-1].metrics[name]
            if len(trials) == 1:
                interval = intervals(trials[0].document, trials[0].metrics).get(name)
            else:
                over = median_interval(values)
                interval = (over.low, over.high) if over else None
            found.append(
                _measurement(
                    *(method, metric, float(median(values)), interval, trials),
                    is_primary=name in primaries,
                )
            )
        return found

    def compare(
        self,
        other: Results,
        *,
        methods: str | None = None,
        metrics: str | None = None,
        min_effect: float | None = None,
        allow_different: Iterable[str] = (),
    ) -> Comparisons:
        """Judge `other` against these results, by the rules of `perfrun compare THESE OTHER`.

        `methods` is a regular expression that is looked for, `metrics` one that the whole name has
        to match. `min_effect` is a share: smaller differences are ignored (default 0.01).
        Raises UsageError for sets that cannot be compared, as those of different machines, unless
        `allow_different` has the kind of the difference: hardware, driver, batch_size, allocator.
        """
        from perfrun.notebook.comparison import compared

        return compared(
            *(self._records, other._records),
            methods=methods,
            metrics=metrics,
            min_effect=min_effect,
            allow_different=tuple(allow_different),
        )

    def to_pandas(self, *, wide: bool = False, checkout: str | None = None) -> pandas.DataFrame:
        """Return a data frame of pandas with one row a metric of a trial, or `wide` one a trial.

        The columns are those of `perfrun export`: `value` has the unit in `unit` and is not scaled,
        `low` and `high` are the 95 % interval within the trial, `time` is in UTC. `attrs` has
        `units` and `directions` by metric. `checkout` names the one whose commit counts.
        """
        from perfrun.notebook.frames import pandas_frame

        return pandas_frame(self._records, wide=wide, checkout=checkout)

    def to_polars(self, *, wide: bool = False, checkout: str | None = None) -> polars.DataFrame:
        """Return a data frame of polars with the columns of `to_pandas`."""
        from perfrun.notebook.frames import polars_frame

        return polars_frame(self._records, wide=wide, checkout=checkout)

    def plot(
        self, kind: str = "distribution", *, metric: str = WALL_TIME, theme: str = "light"
    ) -> Picture:
        """Draw the results with matplotlib; a notebook shows the picture.

        `distribution` has the samples of the newest trial that ran, with its warm-up, `memory` its
        memory over time, `history` the `metric` of each run: medians with 95 % intervals. The
        changes of a history are what `perfrun plot history` draws. `theme` is light or dark.
        """
        from perfrun.notebook.drawing import drawn

        return drawn(self._records, kind, metric, theme)

    @property
    def units(self) -> Mapping[str, str]:
        """The unit of each metric (s, bytes, 1/s; '' when unknown), as the latest trial has it."""
        from perfrun.notebook.frames import stated

        return stated(self._records)[0]

    @property
    def directions(self) -> Mapping[str, str]:
        """The better direction of each metric: lower, higher or none."""
        from perfrun.notebook.frames import stated

        return stated(self._records)[1]

    def __repr__(self) -> str:
        return as_text(_table(self._primaries), self._lines, self._title)

    def _repr_html_(self) -> str:
        return as_html(_table(self._primaries), self._lines, self._title)

    @property
    def _primaries(self) -> list[Measurement]:
        """The figures to show; of metrics that were chosen all, where no primary one is left."""
        found = [one for one in self.measurements if one.is_primary]
        return found or list(self.measurements)

    @property
    def _title(self) -> str:
        methods = len(self.methods)
        return f"{_many(len(self))} of {methods} method{'' if methods == 1 else 's'}"

    @property
    def _lines(self) -> list[str]:
        """Return a line for each way in which trials failed, with what explains the first of it."""
        failed: dict[str, list[SummaryRecord]] = {}
        for record in self._records:
            if not record.ran:
                reason = f" ({record.reason})" if record.reason else ""
                text = f"{record.method}: {record.status.value}{reason}"
                failed.setdefault(text, []).append(record)
        lines = []
        for text, records in list(failed.items())[:_MOST_FAILURES]:
            lines.append(f"{text}, {_many(len(records))}")
            lines += [f"  {one}" for one in view(records[0]).error]
        more = len(failed) - _MOST_FAILURES
        return [*lines, *([f"... and {more} more kinds of failure"] if more > 0 else [])]


def _measurement(
    method: str,
    metric: MetricValue,
    value: float,
    interval: tuple[float, float] | None,
    trials: Sequence[SummaryRecord],
    *,
    is_primary: bool = False,
) -> Measurement:
    low, high = interval or (None, None)
    return Measurement(
        method=method,
        metric=metric.name,
        value=value,
        low=low,
        high=high,
        unit=metric.unit,
        direction=metric.direction,
        trials=len(trials),
        grade=max((record.grade for record in trials), default=""),
        is_primary=is_primary,
    )


def _table(found: Iterable[Measurement]) -> Table:
    rows: list[tuple[Any, ...]] = []
    before = None
    for one in found:
        # The name is whole: it is what `filter` and a data frame know the metric by.
        _, value = named_value(one.metric, one.value, one.low, one.high, one.unit)
        method = one.method if one.method != before else ""
        rows.append((method, one.metric, value, str(one.trials), one.grade or "-"))
        before = one.method
    return Table(columns=_COLUMNS, rows=tuple(rows))


def _place(name: str) -> tuple[int, str]:
    return (0 if name == WALL_TIME else 2 if name == PEAK_RSS else 1), name


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _many(trials: int) -> str:
    return f"{trials} trial{'' if trials == 1 else 's'}"

"""Pictures of results in a notebook, drawn by `perfrun.plots` with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.analysis.stats import median, median_interval
from perfrun.errors import UsageError
from perfrun.notebook.packages import needed
from perfrun.summary.counted_trials import counted
from perfrun.summary.metrics import unit_of
from perfrun.summary.record import SummaryRecord

if TYPE_CHECKING:
    from perfrun.compare.command import CompareResult

KINDS = ("distribution", "history", "memory")
_WIDTH = 720  # points of a notebook's page; the picture has twice as many
_MOST_CASES = 12


class Picture:
    """A figure of matplotlib that a notebook shows, and that `save` writes as SVG or PNG."""

    def __init__(self, figure: Any) -> None:
        """Take the figure."""
        self.figure = figure

    def save(self, path: str | Path) -> None:
        """Write the picture: `.svg` or `.png`. Raises UsageError."""
        from_plots = needed("perfrun.plots.picture", "plot()")
        suffix = from_plots.check_path(Path(path))
        from_plots.save(from_plots.rendered(self.figure, suffix), Path(path))

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        content: bytes = needed("perfrun.plots.picture", "plot()").rendered(self.figure, ".png")
        return content, {"width": _WIDTH}

    def __repr__(self) -> str:
        return "<picture; save('FILE.svg') writes it>"


def drawn(records: Sequence[SummaryRecord], kind: str, metric: str, theme: str) -> Picture:
    """Draw results. Raises UsageError where they have nothing of the kind."""
    if kind not in KINDS:
        raise UsageError(f"plot(kind={kind!r}): must be one of {', '.join(KINDS)}")
    figures = _figures()
    if kind == "history":
        return Picture(figures.history(*_histories(records, metric), theme=theme))
    trials = needed("perfrun.plots.trials", "plot()")
    ran = [record for record in records if record.ran]
    if not ran:
        raise UsageError(f"plot(kind={kind!r}): none of the {len(records)} trials has figures")
    data = (trials.distribution if kind == "distribution" else trials.memory)(ran[-1])
    return Picture(
        (figures.distribution if kind == "distribution" else figures.memory)(data, theme=theme)
    )


def compared(
    found: CompareResult,
    metric: str,
    base: Sequence[SummaryRecord],
    new: Sequence[SummaryRecord],
    theme: str,
) -> Picture:
    """Draw both sides of a comparison as bars with intervals, a case for each method."""
    data = needed("perfrun.plots.data", "plot()")
    figures = _figures()
    methods = [one.method for one in found.comparisons if one.metric == metric]
    if not methods:
        raise UsageError(f"plot(metric={metric!r}): the comparison has no such metric")
    cases = {
        method: tuple(
            _bar(data, label, side, method, metric)
            for label, side in (("base", base), ("new", new))
        )
        for method in methods[:_MOST_CASES]
    }
    one = next(one for one in found.comparisons if one.metric == metric)
    versus = data.VersusData(
        title="new against base",
        metric=metric,
        unit=_unit(base, metric),
        direction=one.direction,
        about=(),
        cases=cases,
    )
    return Picture(figures.versus(versus, theme=theme))


def _figures() -> Any:
    needed("perfrun.plots.picture", "plot()").check_library()
    return needed("perfrun.plots.figures", "plot()")


def _bar(data: Any, label: str, side: Sequence[SummaryRecord], method: str, metric: str) -> Any:
    value, low, high, _, _ = _figure([r for r in side if r.method == method], metric)
    return data.Bar(label=label, value=value, low=low, high=high)


def _figure(
    records: Sequence[SummaryRecord], metric: str
) -> tuple[float, float | None, float | None, int, bool]:
    """Return median, its interval, the number of trials, and whether they were disturbed."""
    trials = counted([record for record in records if metric in record.values])
    values = [record.values[metric] for record in trials]
    interval = median_interval(values) if len(values) > 1 else None
    disturbed = any(record.disturbed for record in trials)
    low, high = (interval.low, interval.high) if interval else (None, None)
    return float(median(values)), low, high, len(values), disturbed


def _histories(records: Sequence[SummaryRecord], metric: str) -> list[Any]:
    """Return the history of each series: an observation for each run, without change points."""
    data = needed("perfrun.plots.data", "plot()")
    series: dict[Any, dict[str, list[SummaryRecord]]] = {}
    for record in records:
        if metric in record.values:
            runs = series.setdefault(record.subject, {})
            runs.setdefault(record.run_id or record.execution_id, []).append(record)
    if not series:
        raise UsageError(f"plot(metric={metric!r}): no trial has this metric")
    made = []
    for subject, runs in list(series.items())[:_MOST_CASES]:
        observations = []
        for trials in runs.values():
            value, low, high, count, disturbed = _figure(trials, metric)
            time = min(trial.timestamp for trial in trials)
            observations.append(
                data.Observed(
                    time=time,
                    value=value,
                    low=low,
                    high=high,
                    trials=count,
                    disturbed=disturbed,
                    counts=True,
                )
            )
        made.append(
            data.HistoryData(
                method=subject.method,
                metric=metric,
                unit=_unit(records, metric),
                direction=_direction(records, metric),
                about=(subject.environment, subject.hardware, subject.settings),
                observations=tuple(sorted(observations, key=lambda one: one.time)),
                in_order_of_time=True,
                levels=(),
                shifts=(),
                cuts=(),
            )
        )
    return made


def _unit(records: Sequence[SummaryRecord], metric: str) -> str:
    stated = [record.metrics[metric].unit for record in records if metric in record.metrics]
    return stated[-1] if stated else unit_of(metric)


def _direction(records: Sequence[SummaryRecord], metric: str) -> str:
    stated = [record.metrics[metric].direction for record in records if metric in record.metrics]
    return stated[-1] if stated else "none"

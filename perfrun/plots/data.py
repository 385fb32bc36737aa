"""The values that pictures are made of, one class a kind: no file, no library, no style.

Values are in the base unit of their metric (seconds, bytes); pictures scale them for people. Texts
may come from anywhere and are cleaned where they are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfrun.analysis.directions import Direction

_LARGEST, _LEAST = 1e100, 1e-100
MOST_RATIO = 1e6  # of a pair; its inverse is the least


def is_drawable(value: float) -> bool:
    """Return False for what no axis has room for: a figure from outside may be any number."""
    return value == 0 or _LEAST <= abs(value) <= _LARGEST


@dataclass(frozen=True, kw_only=True)
class Observed:
    """An observation of a history: the median of the trials of a run or a night."""

    time: float  # seconds since the epoch
    value: float
    low: float | None  # of its 95 % interval; None when unknown
    high: float | None
    trials: int
    disturbed: bool
    counts: bool  # False for a disturbed one that levels and changes leave out


@dataclass(frozen=True, kw_only=True)
class Level:
    """The median of the observations from `first` to `last` (indices), between two changes."""

    first: int
    last: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A change point: the observation `first` is the first one at the new level."""

    first: int
    ratio: float  # after over before
    direction: str  # worse or better


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A change of what the series depends on, before the observation `first`."""

    first: int
    kind: str  # driver, benchmark, or the name of a framework
    text: str
    begins_anew: bool  # True when the observations on both sides are different series


@dataclass(frozen=True, kw_only=True)
class HistoryData:
    """The history of a metric of a method in one environment on one machine."""

    method: str
    metric: str
    unit: str  # '' when unknown
    direction: Direction
    about: tuple[str, ...]  # environment, hardware, settings
    observations: tuple[Observed, ...]
    in_order_of_time: bool  # False where they are in the order of commits
    levels: tuple[Level, ...]
    shifts: tuple[Shift, ...]
    cuts: tuple[Cut, ...]
    older: int = 0  # observations that are left out


@dataclass(frozen=True, kw_only=True)
class DistributionData:
    """The samples of a series of a trial, in seconds a step."""

    method: str
    series: str
    trial: str  # its execution id
    label: str
    environment: str
    about: tuple[str, ...]
    first_call_s: float | None
    warmup_s: tuple[float, ...]
    warmup_every: int  # the samples are every n-th iteration
    times_s: tuple[float, ...]
    times_every: int
    steady_from: int | None  # the first iteration of the steady part
    kind: str  # of steadiness: flat, warmup, ...; '' when unknown
    median_s: float | None
    low_s: float | None
    high_s: float | None

    @property
    def first_steady(self) -> int:
        """The index in `times_s` of the first steady sample; 0 where none is steady."""
        if not self.steady_from:
            return 0
        return min(-(-self.steady_from // self.times_every), len(self.times_s))

    @property
    def panel(self) -> tuple[str, str]:
        """What the trials of one diagram share: the method and its series."""
        return self.method, self.series

    @property
    def steady_s(self) -> tuple[float, ...]:
        """The samples of the steady part; all where none is steady."""
        return self.times_s[self.first_steady :] or self.times_s


@dataclass(frozen=True, kw_only=True)
class Overlaid:
    """The samples of several trials of a method, to be drawn over each other."""

    method: str
    series: str
    trials: tuple[DistributionData, ...]

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the axis of times: a few steps that are far above all others are beyond it.

        That is above Tukey's outer fence of their own trial, as in the histograms of
        `perfrun show`.
        """
        highs = []
        for one in self.trials:
            times = sorted(one.steady_s)
            lower, upper = times[len(times) // 4], times[(3 * len(times)) // 4]
            fence = upper + 3 * max(upper - lower, 0.01 * upper)
            highs.append(max(time for time in times if time <= fence))
        low, high = min(min(one.steady_s) for one in self.trials), max(highs)
        pad = 0.04 * max(high - low, 0.02 * high) or 1e-9
        return low - pad, high + pad

    def name(self, trial: DistributionData) -> str:
        """Return what tells a trial from the others: its label, its id, its environment."""
        parts = (
            trial.label,
            trial.trial,
            trial.environment if len({one.environment for one in self.trials}) > 1 else "",
        )
        return ", ".join(part for part in parts if part)


def overlaid(several: Sequence[DistributionData]) -> tuple[Overlaid, ...]:
    """Group trials by method and series, in the order in which these come first."""
    found: dict[tuple[str, str], list[DistributionData]] = {}
    for one in several:
        found.setdefault(one.panel, []).append(one)
    return tuple(
        Overlaid(method=method, series=series, trials=tuple(trials))
        for (method, series), trials in found.items()
    )


@dataclass(frozen=True, kw_only=True)
class Paired:
    """One pair of `perfrun ab`: the ratio of B to A."""

    number: int
    ratio: float
    first: str  # the arm that ran first
    disturbed: bool


@dataclass(frozen=True, kw_only=True)
class PairsData:
    """The pairs of one method and metric."""

    method: str
    metric: str
    about: tuple[str, ...]
    pairs: tuple[Paired, ...]
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    direction: Direction


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A figure of one arm in one case of a comparison of frameworks."""

    label: str
    value: float | None  # None where the arm failed
    low: float | None
    high: float | None
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class VersusData:
    """The arms of a comparison, by case in the order of the table."""

    title: str
    metric: str
    unit: str
    direction: Direction
    about: tuple[str, ...]
    cases: Mapping[str, tuple[Bar, ...]]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A figure of a trial over time; `times` are seconds since the worker's start."""

    name: str
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves that share a unit."""

    name: str
    unit: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a trial's time: start, import, setup, method."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class MemoryData:
    """What was watched of a trial over time."""

    method: str
    about: tuple[str, ...]
    panels: tuple[Panel, ...]  # memory first
    phases: tuple[Phase, ...]

"""The rule that sizes the intervals of a series and ends it.

A series begins with the first call, alone. Then comes the warm-up, in which the block size grows
until reading the clock takes less than a thousandth of a block, and then the timed intervals. They
end when the median has the precision asked for, but not before a minimum of intervals and time, and
in any case at a maximum of either.
"""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional

from perfrun.worker.measure.statistics import describe, grouped, median_of
from perfrun.worker.measure.steadiness import classify

OVERHEAD_SHARE = 0.001  # of a block, at most, that may be the timer's
_LARGEST_BLOCK = 10**8  # steps; an empty loop of so many takes a second
_GROWTH = 10  # a block has at most this many times the steps of the last: first calls are slow
_MARGIN = 1.25  # blocks differ: aim above the least
_NEXT_CHECK = 1.2  # the precision is checked again when there are so many times more intervals
_WINDOW = 5  # intervals whose medians are compared to end the warm-up
_SETTLED = 0.02  # relative difference of those medians
_WARMUP_SHARE = 0.2  # of the maximum time, at most
_HELD_UP = 2.0  # times the first call: an interval with such long steps is taken again
_CLASSIFIED = 10_000  # longer series are classified by medians of neighbours
_MANY = 10_000  # intervals at most: blocks are so long that the time allowed holds no more

FIRST, WARMUP, TIMED = "first call", "warm-up", "timed"


class Limits(NamedTuple):
    """The limits that an author asks for; `checked` refuses those that make no sense.

    An iteration is one timed interval: one step, or a block of them where a step is short.
    """

    precision: Optional[float] = 0.01  # half-width of the median's interval, relative; None: never
    iterations: Optional[int] = None  # exactly so many; then only this counts
    min_iterations: int = 30
    max_iterations: int = 10_000
    min_time_s: float = 0.5
    max_time_s: float = 3.0
    warmup: Optional[int] = None  # exactly so many untimed iterations; None: until it settles
    block_size: Optional[int] = None  # steps in an iteration; None: found in the warm-up

    def checked(self) -> "Limits":
        """Return these limits. Raises ValueError or TypeError for one that is wrong."""
        for name, least in (("iterations", 1), ("warmup", 0), ("block_size", 1)):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), least)
        if self.block_size is not None and self.block_size > _LARGEST_BLOCK:
            raise ValueError("block_size is %d; at most %d" % (self.block_size, _LARGEST_BLOCK))
        _check_whole("min_iterations", self.min_iterations, 1)
        _check_whole("max_iterations", self.max_iterations, 1)
        for name in ("precision", "min_time_s", "max_time_s"):
            _check_amount(name, getattr(self, name))
        if self.precision is not None and self.precision >= 1:
            raise ValueError("precision is %r; it is a share: 0.01 is 1 %%" % self.precision)
        for what in ("iterations", "time_s"):
            least, most = getattr(self, "min_" + what), getattr(self, "max_" + what)
            # A maximum alone is enough to shorten a series: the default minimum gives way.
            if least > most and least != Limits._field_defaults["min_" + what]:
                raise ValueError("min_%s is %g, above max_%s, %g" % (what, least, what, most))
        return self


def _check_amount(name: str, value: Any) -> None:
    if value is None and name == "precision":
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("%s is %r; it must be a number" % (name, value))
    if not value >= 0 or (value == 0 and name != "min_time_s"):
        raise ValueError("%s is %r; it must be above 0" % (name, value))


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("%s is %r; it must be a whole number" % (name, value))
    if value < least:
        raise ValueError("%s is %d; it must be at least %d" % (name, value, least))


class SeriesProgress:
    """The progress of a series. `add` each interval; `next_count` returns the steps of the next."""

    def __init__(self, limits: Limits, overhead_ns: float = 0.0) -> None:
        self._limits = limits
        self._least_block_ns = 0.0
        self.set_overhead(overhead_ns)
        self.phase = FIRST
        self.block_size = limits.block_size or 1
        self.stopped_by: Optional[str] = None
        self.times: List[float] = []  # nanoseconds per step of the timed intervals
        self.timed_ns = 0
        self._warm: List[float] = []  # nanoseconds per step of the warm-up at this block size
        self._warm_ns = 0
        self._began_ns: Optional[int] = None
        self._first_ns = 0
        self._was_held_up = False
        self._check_at = min(limits.min_iterations, limits.max_iterations)
        self._min_time_s = min(limits.min_time_s, limits.max_time_s)
        self._settling = limits.block_size is None

    def set_overhead(self, overhead_ns: float) -> None:
        """Set the time that timing an interval takes on this device, before the warm-up ends."""
        self._least_block_ns = overhead_ns / OVERHEAD_SHARE
        if self._limits.iterations is None and self._limits.max_iterations >= _MANY:
            self._least_block_ns = max(self._least_block_ns, self._limits.max_time_s * 1e9 / _MANY)

    def next_count(self) -> int:
        """Return the steps of the next interval; 0 when there is none."""
        if self.stopped_by:
            return 0
        return 1 if self.phase is FIRST else self.block_size

    def add(self, steps: int, wall_ns: int, now_ns: int, compiled: bool = False) -> None:
        """Add an interval. `compiled` is true if a framework compiled something in it."""
        if self.phase is FIRST:
            self._first_ns = wall_ns
            self.phase = TIMED if self._limits.warmup == 0 else WARMUP
        elif self.phase is WARMUP:
            self._warmed(steps, wall_ns, compiled)
        else:
            self._timed(steps, wall_ns, now_ns)

    def _warmed(self, steps: int, wall_ns: int, compiled: bool) -> None:
        if self._settling and not compiled and self._is_held_up(wall_ns / steps):
            return
        self._warm_ns += wall_ns
        self._warm.append(wall_ns / steps)
        if self._settling and not compiled:
            self._resize(steps, wall_ns)
        if self._limits.warmup is not None:
            # Intervals that only served to find the block size do not count.
            ended = len(self._warm) >= self._limits.warmup
        else:
            ended = self._warm_ns >= _WARMUP_SHARE * self._limits.max_time_s * 1e9 or (
                not compiled and not self._settling and self._settled()
            )
        if ended:
            self._grow_to_fastest()
            self.phase = TIMED

    def _is_held_up(self, step_ns: float) -> bool:
        """Return True when the first interval of its size must be taken again; once in a series.

        The first call is the slowest as a rule. The machine held up an interval that is far slower,
        and it would end the search for a block size, or the warm-up, too early.
        """
        if self._warm or self._was_held_up or step_ns <= _HELD_UP * self._first_ns:
            return False
        self._was_held_up = True
        return True

    def _grow_to_fastest(self) -> None:
        """Enlarge a block that is too short at the fastest speed, which a disturbance hid."""
        if self._limits.block_size is None and self._warm:
            fastest_ns = max(0.1, min(self._warm))
            least = math.ceil(self._least_block_ns / fastest_ns)
            self.block_size = max(self.block_size, min(least, _LARGEST_BLOCK))

    def _resize(self, steps: int, wall_ns: int) -> None:
        """Enlarge the block until it is long enough."""
        if wall_ns >= self._least_block_ns or steps >= _LARGEST_BLOCK:
            self._settling = False
            return
        wanted = _MARGIN * self._least_block_ns * steps / max(1, wall_ns)
        growth = min(math.ceil(wanted), steps * _GROWTH, _LARGEST_BLOCK)
        self.block_size = max(steps + 1, growth)
        self._warm = []

    def _settled(self) -> bool:
        """Return True when two successive windows of intervals have nearly the same median."""
        if len(self._warm) < 2 * _WINDOW:
            return False
        before = median_of(sorted(self._warm[-2 * _WINDOW : -_WINDOW]))
        after = median_of(sorted(self._warm[-_WINDOW:]))
        return abs(after - before) <= _SETTLED * before

    def _timed(self, steps: int, wall_ns: int, now_ns: int) -> None:
        limits = self._limits
        self.times.append(wall_ns / steps)
        self.timed_ns += wall_ns
        if self._began_ns is None:
            self._began_ns = now_ns - wall_ns
        count, elapsed_s = len(self.times), (now_ns - self._began_ns) / 1e9
        if limits.iterations is not None:
            self.stopped_by = "iterations" if count >= limits.iterations else None
        elif self._check_is_due(count, elapsed_s) and is_precise(self.times, limits):
            self.stopped_by = "precision"
        elif count >= limits.max_iterations:
            self.stopped_by = "max_iterations"
        elif elapsed_s >= limits.max_time_s:
            self.stopped_by = "max_time"

    def _check_is_due(self, count: int, elapsed_s: float) -> bool:
        """Return True when the precision is to be checked, so rarely that the cost stays linear."""
        if self._limits.precision is None or elapsed_s < self._min_time_s:
            return False
        if count < self._check_at:
            return False
        self._check_at = math.ceil(count * _NEXT_CHECK)
        return True


def is_precise(times: List[float], limits: Limits) -> bool:
    """Return True when the median of the steady part has the precision asked for.

    A series that is not steady is not precise, however narrow its interval, and goes on.
    """
    precision = describe(times).precision
    assert limits.precision is not None
    if precision is None or precision > limits.precision:
        return False
    kind, begin = steady_part(times)
    if kind in ("flat", "too_few"):
        return True
    if begin is None or len(times) - begin < min(limits.min_iterations, limits.max_iterations):
        return False
    precision = describe(times[begin:]).precision
    return precision is not None and precision <= limits.precision


class SteadyPart(NamedTuple):
    """The kind of a series (see `steadiness`), and the index from which on it is steady, if any."""

    kind: str
    begin: Optional[int]


def steady_part(times: List[float]) -> SteadyPart:
    """Classify a series of any length."""
    values, size = grouped(times, _CLASSIFIED)
    found = classify(values)
    begin = None if found.steady_from is None else min(len(times) - 1, found.steady_from * size)
    return SteadyPart(found.kind, begin)

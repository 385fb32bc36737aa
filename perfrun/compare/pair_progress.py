"""How the pairs of `perfrun ab` stand while they run, and what an undecided method still needs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from perfrun.analysis.pairs import FIRST_ANALYSIS, PairRule, judge
from perfrun.analysis.stats import numbers_of
from perfrun.reports.figures import interval_text, ratio_text, time_left

_STRIP = 41  # characters of the strip of ratios
_TOO_MANY = 1000  # pairs; a method that needs more needs a quieter machine first
_GROWTH = 1.25  # so much more, at least: fewer new pairs would not change the answer


class PairClock:
    """The time that the pairs of a run take, and what is left of them at most."""

    def __init__(self, methods: Sequence[str], most: int) -> None:
        self._left = dict.fromkeys(methods, most)
        self._begun_s = time.monotonic()
        self._pairs = 0

    def ended(self, method: str, *, is_over: bool) -> None:
        """Take in that a pair has ended, and perhaps its method with it."""
        self._pairs += 1
        self._left[method] = 0 if is_over else self._left[method] - 1

    @property
    def left_s(self) -> float:
        """Time that the pairs will take if none of the methods is decided before its last pair."""
        pair_s = (time.monotonic() - self._begun_s) / max(1, self._pairs)
        return pair_s * sum(self._left.values())


def standing(log_ratios: Sequence[float], rule: PairRule, left_s: float) -> str:
    """Return the ratio so far with its interval and the time that is left at most.

    Before the first interim analysis no interval has the stated confidence; then the range of the
    pairs takes its place, and is called so.
    """
    end = f", at most {time_left(left_s)} left" if left_s else ""
    if not log_ratios:
        return f"b/a ?, no pair has both figures{end}"
    found = judge(log_ratios, "none", rule)
    assert found.ratio is not None
    if found.interval:
        return f"b/a {ratio_text(found.ratio, found.interval.low, found.interval.high)}{end}"
    low, high = math.exp(min(log_ratios)), math.exp(max(log_ratios))
    if len(log_ratios) == 1:
        return f"b/a {found.ratio:.2f}{end}"
    return f"b/a {found.ratio:.2f} (pairs {interval_text(low, high)}){end}"


def strip(log_ratios: Sequence[float], width: int = _STRIP) -> str:
    """Return the ratios of the pairs on a line from the lowest to the highest; `|` is 1.

    A digit stands for as many pairs, and `+` for more than nine.
    """
    low, high = min(0.0, *log_ratios), max(0.0, *log_ratios)
    reach = (high - low) or 1.0
    counts: dict[int, int] = {}
    for ratio in log_ratios:
        place = round((ratio - low) / reach * (width - 1))
        counts[place] = counts.get(place, 0) + 1
    marks = [" "] * width
    marks[round(-low / reach * (width - 1))] = "|"
    for place, count in counts.items():
        marks[place] = "o" if count == 1 else str(count) if count < 10 else "+"
    return f"{math.exp(low):.2f} [{''.join(marks)}] {math.exp(high):.2f}"


def pairs_needed(log_ratios: Sequence[float], rule: PairRule) -> int | None:
    """Return how many pairs would probably decide, by the interval so far; None for too many.

    The interval gets narrower with the root of the number of pairs. It has to leave 1 outside, or
    to lie within the smallest change that matters, whichever is nearer.
    """
    count = len(log_ratios)
    if count < 2:
        return FIRST_ANALYSIS
    found = judge(log_ratios, "none", rule)
    assert found.ratio is not None
    if found.interval:
        half = (math.log(found.interval.high) - math.log(found.interval.low)) / 2
    else:
        half = 2.5 * float(numbers_of(log_ratios).std(ddof=1)) / math.sqrt(count)
    off, matters = abs(math.log(found.ratio)), math.log1p(rule.min_effect)
    needed = math.ceil(count * (half / max(off, matters - off)) ** 2)
    needed = max(needed, math.ceil(_GROWTH * count), FIRST_ANALYSIS)
    return needed if needed <= _TOO_MANY else None


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """A method whose pairs were spent before they decided."""

    method: str
    log_ratios: tuple[float, ...]
    needed: int | None  # pairs in all
    pair_s: float  # duration of one


def undecided_lines(found: Sequence[Undecided]) -> list[str]:
    """Return the pairs of each undecided method as a strip, and how many would decide."""
    lines = []
    for one in found:
        lines.append(f"{one.method}: undecided; b/a of its {len(one.log_ratios)} pairs (| is 1):")
        lines.append(f"  {strip(one.log_ratios)}")
    most = _most_needed(found)
    if most is None:
        lines.append(
            f"More than {_TOO_MANY:,} pairs would be needed: a quieter machine, a longer method "
            "or a larger --min_effect decides sooner."
        )
    elif found:
        spent_s = sum(most * one.pair_s for one in found)
        left = f"{time_left(spent_s)}, from the beginning"
        lines.append(f"About {most} pairs would probably decide ({left}):")
    return lines


def command_lines(found: Sequence[Undecided], words: Sequence[str]) -> list[str]:
    """Return the command that would probably decide; `words` is the command line of this one.

    Its pairs run from the beginning: to look at the same ones again until they decide would raise
    more false alarms than the stated 5 %.
    """
    most = _most_needed(found)
    return [f"  {_command(words, most)}"] if found and most else []


def _most_needed(found: Sequence[Undecided]) -> int | None:
    needs = [one.needed for one in found]
    known = [need for need in needs if need is not None]
    return max(known, default=0) if len(known) == len(needs) else None


def _command(words: Sequence[str], pairs: int) -> str:
    from shlex import join

    kept: list[str] = []
    skip = False
    own = list(words)
    end = own.index("--") if "--" in own else len(own)
    for word in own[:end]:
        if skip:
            skip = False
        elif word in ("--max_pairs", "--time_budget"):
            skip = True
        elif not word.startswith(("--max_pairs=", "--time_budget=")) and word != "--resume":
            kept.append(word)
    return join(["perfrun", "ab", *kept, f"--max_pairs={pairs}", *own[end:]])

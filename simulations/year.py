"""A simulation of a year of a whole suite: recall and precision of `perfrun detect`.

    python -m simulations.year                       # the table of docs/research/detection.md
    python -m simulations.year --on_disk=DIR         # as files, through the commands
    python -m simulations.year --series=50 --nights=120 --changes=5 --years=2

Every series has a noise of its own: one of four kinds, of 0.5 to 3 %. Twenty series change once,
by 3 to 15 %, up or down. The machine is swapped after 60 % of the year, which begins new series as
the index does it, is down for a week, misses single nights, and is slow for six nights, with a
canary in the suite. All nights go through `perfrun.analysis.detection.detect`, as from the index.
"""

from __future__ import annotations

import argparse
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfrun.analysis.detection import FALSE_DISCOVERIES, Detected, History, detect
from perfrun.analysis.scan import FEWEST_BEFORE
from simulations.detect import gaussian, log_normal, outliers
from simulations.noises import Floats, drifting

NOISES = (gaussian, log_normal, outliers, drifting)
SPREADS = (0.005, 0.01, 0.02, 0.03)
SIZES = (0.03, 0.05, 0.07, 0.10, 0.15)
SLOW = 1.05  # what the machine does to every series in its bad nights
SLOW_NIGHTS = 6
_NEAR = 5  # nights between a change and where it is found
_AROUND = 16  # the same for the machine's bad nights, which are few for noisy series
_MISSING = 0.02  # of the nights


@dataclass(frozen=True, kw_only=True)
class MadeChange:
    """One change that was made: the reference value for a finding."""

    series: int  # of the suite
    night: int
    size: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class Year:
    """A suite, and the changes that were made to it."""

    histories: tuple[History, ...]
    owners: tuple[int, ...]  # series of the suite that each history is a part of
    made: tuple[MadeChange, ...]
    slow: range  # the machine's bad nights
    spreads: tuple[float, ...]  # of each history
    back: int  # the night on which the machine is back from its week off


@dataclass(frozen=True, kw_only=True)
class Score:
    """The counts of a simulated year."""

    found: int
    made: int
    false: int
    machine: int  # alarms in the machine's bad nights, marked as such
    machine_unmarked: int
    delays: tuple[int, ...]  # nights to the alarm of what was found
    seconds: float


def make(series: int, nights: int, changes: int, seed: int) -> Year:
    """Draw a year."""
    generator = np.random.default_rng([seed, series, nights])
    swap, down = _swap(nights), range(round(0.4 * nights), round(0.4 * nights) + 7)
    slow = range(round(0.85 * nights), round(0.85 * nights) + SLOW_NIGHTS)
    made = _drawn_changes(generator, series, nights, changes, swap)
    by_series = {change.series: change for change in made}
    histories, owners, spreads = [], [], []
    for number in range(series):
        change = by_series.get(number)
        spread = change.spread if change else float(generator.choice(SPREADS))
        is_canary = number == series - 1
        if is_canary:
            spread = 0.005
        noise = NOISES[number % len(NOISES)] if not is_canary else gaussian
        values = noise(generator, (nights,), spread)
        if change:
            values[change.night :] *= 1 + change.size
        values[slow.start : slow.stop] *= SLOW
        kept = generator.random(nights) >= _MISSING
        kept[down.start : down.stop] = False
        for part in (np.arange(swap), np.arange(swap, nights)):
            histories.append(_history(values, part[kept[part]], is_canary))
            owners.append(number)
            spreads.append(spread)
    return Year(
        histories=tuple(histories),
        owners=tuple(owners),
        made=made,
        slow=slow,
        spreads=tuple(spreads),
        back=down.stop,
    )


def _history(
    values: Floats, nights: np.ndarray[tuple[int], np.dtype[np.int64]], is_canary: bool
) -> History:
    return History(
        values=values[nights].tolist(),
        nights=nights.tolist(),
        direction="lower",
        is_canary=is_canary,
    )


def _drawn_changes(
    generator: np.random.Generator, series: int, nights: int, changes: int, swap: int
) -> tuple[MadeChange, ...]:
    """Draw changes of different series."""
    places = _places(nights, swap)
    chosen = generator.choice(series - 1, changes, replace=False)
    return tuple(
        MadeChange(
            series=int(number),
            night=int(generator.choice(places)),
            size=float(generator.choice(SIZES)) * (1 if at % 2 else -1),
            spread=float(generator.choice(SPREADS)),
        )
        for at, number in enumerate(chosen)
    )


def _places(nights: int, swap: int) -> list[int]:
    """Return nights for changes: a month before and ten nights after each are undisturbed."""
    least = FEWEST_BEFORE + 18
    slow = round(0.85 * nights)
    return [*range(least, swap - 10), *range(swap + least, slow - 10)]


def _swap(nights: int) -> int:
    """Return the first night on the new machine."""
    return round(0.6 * nights)


def impossible(series: int, nights: int, changes: int, years: int) -> str | None:
    """Say in one line why no such year can be drawn; None where it can."""
    fewest = next(count for count in range(366) if _places(count, _swap(count)))
    if nights < fewest:
        return f"--nights={nights}: a change needs nights before and after it: {fewest} or more"
    if not 0 <= changes < series:
        return f"--changes={changes}: must be 0 or more, and fewer than the {series} of --series"
    return None if years > 0 else f"--years={years}: must be 1 or more"


def score(year: Year, false_discoveries: float = FALSE_DISCOVERIES) -> Score:
    """Detect changes, and count them against those that were made."""
    begin = time.process_time()
    found = detect(year.histories, false_discoveries=false_discoveries)
    seconds = time.process_time() - begin
    left = {change.series: change for change in year.made}
    false, marked, unmarked, delays = 0, 0, 0, []
    for one in found:
        nights = year.histories[one.series].nights
        change = left.get(year.owners[one.series])
        if change and _fits(one, change, nights):
            delays.append(nights[one.alarm] - change.night + 1)
            del left[change.series]
        elif _is_of_machine(nights[one.first_after], nights[one.alarm], year.slow):
            marked += one.machine_suspect
            unmarked += not one.machine_suspect
        else:
            false += 1
    return Score(
        found=len(delays),
        made=len(year.made),
        false=false,
        machine=marked,
        machine_unmarked=unmarked,
        delays=tuple(delays),
        seconds=seconds,
    )


def _fits(one: Detected, change: MadeChange, nights: Sequence[int]) -> bool:
    """Return True when it is that change: at most five observations off, in the same direction."""
    is_up = one.ratio > 1
    return abs(one.first_after - bisect_left(nights, change.night)) <= _NEAR and is_up == (
        change.size > 0
    )


def _is_of_machine(first_after: int, alarm: int, slow: range) -> bool:
    """Return True when the bad nights, or the return from them, raised the alarm."""
    near = slow.start - _AROUND <= first_after <= slow.stop + _AROUND
    return near and slow.start <= alarm <= slow.stop + 2 * _AROUND


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=200, help="in the suite (200)")
    parser.add_argument("--nights", type=int, default=365, help="of a year (365)")
    parser.add_argument("--changes", type=int, default=20, help="that are made (20)")
    parser.add_argument("--years", type=int, default=5, help="drawn anew (5)")
    parser.add_argument("--seed", type=int, default=1, help="of the first year (1)")
    parser.add_argument(
        "--on_disk", metavar="DIR", help="write the first year as summaries, and run the commands"
    )
    given = parser.parse_args(arguments)
    if wrong := impossible(given.series, given.nights, given.changes, given.years):
        sys.stderr.write(f"{parser.prog}: {wrong}\n")
        return 2
    if given.on_disk:
        from simulations.disk_year import table

        year = make(given.series, given.nights, given.changes, given.seed)
        sys.stdout.write(table(year, Path(given.on_disk), given.nights, given.seed))
        return 0
    head = (
        "false discoveries, at most",
        "found",
        "false",
        "false a month",
        "precision",
        "median nights to the alarm",
        "machine's bad nights: marked / not",
        "CPU seconds a year",
    )
    years = [
        make(given.series, given.nights, given.changes, given.seed + number)
        for number in range(given.years)
    ]
    sys.stdout.write(f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n")
    for share in (0.01, FALSE_DISCOVERIES, 0.2):
        scores = [score(year, share) for year in years]
        found, false = sum(s.found for s in scores), sum(s.false for s in scores)
        delays = [delay for s in scores for delay in s.delays]
        cells = (
            f"{share:.0%}",
            f"{found} of {sum(s.made for s in scores)}",
            str(false),
            f"{false / given.years / given.nights * 30.4:.2f}",
            f"{100 * found / max(1, found + false):.0f} %",
            f"{np.median(delays) if delays else float('nan'):.0f}",
            f"{sum(s.machine for s in scores)} / {sum(s.machine_unmarked for s in scores)}",
            f"{np.mean([s.seconds for s in scores]):.1f}",
        )
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

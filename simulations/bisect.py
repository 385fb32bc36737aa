"""A simulation of `perfrun bisect`: how often it names the right revision, at which cost.

    python -m simulations.bisect               # the table of docs/research/bisection.md
    python -m simulations.bisect --searches=20
    python -m simulations.bisect --effects 0.05 --spreads 0.05 --seeds 7 8 9 --processes=2

Each search has its own culprit and its own noise, by its seed and number; every trial is one draw.
In the rows with broken revisions a tenth of them do not run, which the search finds when it tries
one; the right answer is then the culprit, or the smallest range of revisions that can be told
apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from perfrun.analysis.bisecting import End, SearchRule, next_move
from perfrun.analysis.culprits import RevisionPair

COUNTS = (30, 1000)
EFFECTS = (0.10, 0.05)
SPREADS = (0.02, 0.05)
BETWEEN = 0.005  # standard deviation of neutral revisions among themselves
BROKEN = 0.1

Draw = Callable[[np.random.Generator, float], float]


@dataclass
class Tally:
    """The outcomes of some searches."""

    answers: Counter[str] = field(default_factory=Counter)
    trials: list[int] = field(default_factory=list)


def gaussian(random: np.random.Generator, spread: float) -> float:
    """Draw one trial's noise, as a logarithm."""
    return float(random.normal(0, spread))


def outliers(random: np.random.Generator, spread: float) -> float:
    """Draw log-normal noise of which every twentieth trial is up to twice as slow."""
    late = random.uniform(0, np.log(2)) if random.random() < 0.05 else 0.0
    return gaussian(random, spread) + float(late)


NOISES: dict[str, Draw] = {"log-normal": gaussian, "5 % outliers": outliers}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--searches", type=int, default=200, help="of each row and seed")
    parser.add_argument("--revisions", type=int, nargs="*", default=COUNTS, help="of a row")
    parser.add_argument("--effects", type=float, nargs="*", default=EFFECTS)
    parser.add_argument("--spreads", type=float, nargs="*", default=SPREADS, help="of a trial")
    parser.add_argument("--between", type=float, default=BETWEEN, help="of neutral revisions")
    parser.add_argument("--seeds", type=int, nargs="*", default=(7,), help="searches of each")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args(arguments)
    header = (
        *("revisions", "effect", "noise of a trial", "broken", "right", "wrong", "undecided"),
        *("not reproduced", "trials: mean", "median", "90 of 100"),
    )
    sys.stdout.write(f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n")
    kinds = [
        (kind, broken)
        for kind in NOISES
        for broken in ((0.0, BROKEN) if kind == "log-normal" else (0.0,))
    ]
    rows = list(product(asked.revisions, asked.effects, asked.spreads, kinds))
    with ProcessPoolExecutor(asked.processes) as pool:
        tallies = [
            [
                pool.submit(
                    *(simulate, count, effect, spread, NOISES[kind], broken),
                    *(asked.searches, seed, asked.between),
                )
                for seed in asked.seeds
            ]
            for count, effect, spread, (kind, broken) in rows
        ]
        for (count, effect, spread, (kind, broken)), several in zip(rows, tallies, strict=True):
            tally = Tally()
            for one in several:
                tally.answers.update(one.result().answers)
                tally.trials.extend(one.result().trials)
            sys.stdout.write(row(count, effect, f"{spread:.0%} {kind}", broken, tally) + "\n")
            sys.stdout.flush()
    return 0


def row(count: int, effect: float, noise: str, broken: float, tally: Tally) -> str:
    """Return one line of the table."""
    total = tally.answers.total()
    shares = [
        f"{tally.answers[answer] / total:.1%}"
        for answer in ("right", "wrong", "undecided", "not_reproduced")
    ]
    trials = [f"{np.mean(tally.trials):.0f}"]
    trials += [f"{found:.0f}" for found in np.percentile(tally.trials, (50, 90))]
    cells = [str(count), f"{effect:.0%}", noise, f"{broken:.0%}", *shares, *trials]
    return f"| {' | '.join(cells)} |"


def simulate(
    count: int,
    effect: float,
    spread: float,
    draw: Draw,
    broken: float,
    searches: int,
    seed: int = 7,
    between: float = BETWEEN,
) -> Tally:
    """Search `searches` times among `count` revisions after the good one."""
    tally = Tally()
    for number in range(searches):
        random = np.random.default_rng([seed, number])
        answer, trials = search(random, count, effect, spread, draw, broken, between)
        tally.answers[answer] += 1
        tally.trials.append(trials)
    return tally


def search(
    random: np.random.Generator,
    count: int,
    effect: float,
    spread: float,
    draw: Draw,
    broken: float,
    between: float = BETWEEN,
) -> tuple[str, int]:
    """Simulate one search among a good revision and `count` after it."""
    culprit = int(random.integers(1, count + 1))
    levels = random.normal(0, between, count + 1)
    levels[culprit:] += np.log1p(effect)
    bad = {int(index) for index in np.flatnonzero(random.random(count + 1) < broken)} - {0, count}
    measured: list[RevisionPair] = []
    found_broken: set[int] = set()
    tried = 0
    while True:
        move = next_move(count + 1, measured, found_broken, SearchRule())
        if isinstance(move, End):
            return _grade(move, culprit, bad), 2 * len(measured) + tried
        fails = {move.a, move.b} & bad
        if fails:
            found_broken |= fails
            tried += 1
            continue
        ratio = levels[move.b] + draw(random, spread) - levels[move.a] - draw(random, spread)
        measured.append(RevisionPair(a=move.a, b=move.b, log_ratio=float(ratio)))


def _grade(end: End, culprit: int, bad: set[int]) -> str:
    if end.status in ("undecided", "not_reproduced"):
        return end.status
    if not end.after < culprit <= end.last:
        return "wrong"
    between = set(range(end.after + 1, end.last))
    return "right" if between <= bad and (end.status == "found" or between) else "wrong"


if __name__ == "__main__":
    raise SystemExit(main())

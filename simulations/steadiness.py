"""A simulation of the steadiness classifier on series of a known kind.

    python -m simulations.steadiness
    python -m simulations.steadiness --series=50 --seed=1 --lengths=100

Every table is made from pseudo-random series of one recorded seed, so that it can be made again.
Where the package `ruptures` is installed, `--compare` also shows what its PELT with least squares
and the usual penalty finds in flat series.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import math
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from perfrun.worker.measure.steadiness import TOLERANCE, classify

KINDS = ("flat", "warmup", "slowdown", "cyclic", "none")
NOISES = ("Gaussian", "log-normal", "5 % outliers", "AR(1) 0.5")
SIZES = (0.01, 0.02, 0.03, 0.05, 0.10, 0.20)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of series; `level` gets the size of the effect, and where in the series it is."""

    kind: str
    name: str
    level: Callable[[float, float], float]


def _constant(_size: float, _place: float) -> float:
    return 1.0


def _exponential(size: float, place: float) -> float:
    return 1 + size * math.exp(-place / 0.1)


def _step_down(size: float, place: float) -> float:
    return 1 + size * (place < 0.2)


def _step_up(size: float, place: float) -> float:
    return 1 + size * (place >= 0.4)


def _drift_up(size: float, place: float) -> float:
    return 1 + size * place


def _square(size: float, place: float) -> float:
    return 1 + size * (int(place * 12) % 2)


def _sine(size: float, place: float) -> float:
    return 1 + size / 2 * (1 + math.sin(2 * math.pi * 5 * place))


def _drift_down(size: float, place: float) -> float:
    return 1 + size * (1 - place)


def _late_step(size: float, place: float) -> float:
    return 1 + size * (place < 0.75)


def _three_levels(size: float, place: float) -> float:
    return 1 + size * (2 if place < 0.35 else 0 if place < 0.7 else 1)


SHAPES = (
    Shape(kind="flat", name="flat", level=_constant),
    Shape(kind="warmup", name="exponential, time constant 10 %", level=_exponential),
    Shape(kind="warmup", name="step at 20 %", level=_step_down),
    Shape(kind="slowdown", name="step at 40 %", level=_step_up),
    Shape(kind="slowdown", name="drift to the end", level=_drift_up),
    Shape(kind="cyclic", name="square wave, 6 periods", level=_square),
    Shape(kind="cyclic", name="sine, 5 periods", level=_sine),
    Shape(kind="none", name="falling to the end", level=_drift_down),
    Shape(kind="none", name="step at 75 %", level=_late_step),
    Shape(kind="none", name="three levels, the last for 30 %", level=_three_levels),
)


def noise(kind: str, count: int, spread: float, source: random.Random) -> list[float]:
    """Draw factors around 1 with a standard deviation of `spread` (outliers of +15 % on top)."""
    if kind == "log-normal":
        # Skewed as run times are: a fixed part, and one that varies by half of itself.
        shape = 0.5
        deviation = math.exp(shape**2 / 2) * math.sqrt(math.exp(shape**2) - 1)
        centre = math.exp(shape**2 / 2)
        return [
            1 + spread * (source.lognormvariate(0, shape) - centre) / deviation
            for _ in range(count)
        ]
    if kind == "AR(1) 0.5":
        values, last = [], source.gauss(0, spread)
        for _ in range(count):
            last = 0.5 * last + source.gauss(0, spread * math.sqrt(1 - 0.25))
            values.append(1 + last)
        return values
    values = [1 + source.gauss(0, spread) for _ in range(count)]
    if kind == "5 % outliers":
        return [value + (0.15 if source.random() < 0.05 else 0.0) for value in values]
    return values


def series(
    shape: Shape, size: float, kind: str, count: int, spread: float, source: random.Random
) -> list[float]:
    """Draw one series of times around 10 ms."""
    factors = noise(kind, count, spread, source)
    return [
        0.01 * factor * shape.level(size, place / count) for place, factor in enumerate(factors)
    ]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A kind of series, its noise and its size: what is simulated many times."""

    shape: Shape
    size: float
    noise: str
    length: int
    spread: float


def found_kinds(cell: Cell, seed: int, repeats: int) -> Counter[str]:
    """Classify `repeats` series of a cell. The seed and the cell decide what they are."""
    name = (cell.shape.name, cell.size, cell.noise, cell.length, cell.spread)
    source = random.Random(f"{seed} {name}")  # noqa: S311 - a simulation
    return Counter(
        classify(series(cell.shape, cell.size, cell.noise, cell.length, cell.spread, source)).kind
        for _ in range(repeats)
    )


def _found(numbers: tuple[int, float, str, int, float], seed: int, repeats: int) -> Counter[str]:
    index, size, kind, length, spread = numbers
    cell = Cell(shape=SHAPES[index], size=size, noise=kind, length=length, spread=spread)
    return found_kinds(cell, seed, repeats)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Put texts into a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def share(found: Counter[str], kind: str) -> str:
    """Return the percent of the series that were called `kind`."""
    return f"{100 * found[kind] / found.total():.1f}"


class Simulation:
    """All cells that the tables need, counted on all processors."""

    def __init__(self, lengths: Sequence[int], spreads: Sequence[float], size: float) -> None:
        self.lengths, self.spreads, self.size = lengths, spreads, size
        self.found: dict[tuple[int, float, str, int, float], Counter[str]] = {}

    def keys(self) -> Iterator[tuple[int, float, str, int, float]]:
        """Yield every shape at the main size, and warm-ups at all sizes."""
        for length in self.lengths:
            for spread in self.spreads:
                for kind in NOISES:
                    for index, shape in enumerate(SHAPES):
                        yield index, self.size, kind, length, spread
                        if shape.kind == "warmup":
                            for size in SIZES:
                                if size != self.size:
                                    yield index, size, kind, length, spread

    def run(self, seed: int, repeats: int) -> None:
        """Make and classify all series."""
        keys = list(self.keys())
        work = functools.partial(_found, seed=seed, repeats=repeats)
        with multiprocessing.Pool() as pool:
            self.found = dict(zip(keys, pool.imap(work, keys, chunksize=4), strict=True))

    def total(self, index: int, size: float, length: int, spread: float) -> Counter[str]:
        """Return what was found in a shape, all noises together."""
        cells = (self.found[index, size, kind, length, spread] for kind in NOISES)
        return sum(cells, Counter())

    def confusion(self, length: int) -> str:
        """Return the table of true kind against found kind, all noises together."""
        rows = []
        for index, shape in enumerate(SHAPES):
            for spread in self.spreads:
                found = self.total(index, self.size, length, spread)
                shares = [share(found, kind) for kind in KINDS]
                rows.append([shape.kind, shape.name, f"{100 * spread:g} %", *shares])
        return table(["true kind", "shape", "noise", *KINDS], rows)

    def false_alarms(self) -> str:
        """Return the table of flat series that were not called flat."""
        rows = []
        for kind in NOISES:
            row = [kind]
            for length in self.lengths:
                for spread in self.spreads:
                    found = self.found[0, self.size, kind, length, spread]
                    row.append(f"{100 - 100 * found['flat'] / found.total():.1f}")
            rows.append(row)
        heads = [f"n={n}, {100 * s:g} %" for n in self.lengths for s in self.spreads]
        return table(["noise", *heads], rows)

    def detectability(self) -> str:
        """Return the table of the share of warm-ups called so, by their size."""
        rows = []
        for index, shape in enumerate(SHAPES):
            if shape.kind != "warmup":
                continue
            for length in self.lengths:
                for spread in self.spreads:
                    row = [shape.name, str(length), f"{100 * spread:g} %"]
                    for size in SIZES:
                        row.append(share(self.total(index, size, length, spread), "warmup"))
                    rows.append(row)
        return table(["warm-up", "n", "noise", *(f"{100 * size:g} %" for size in SIZES)], rows)


def compare_with_ruptures(length: int, spread: float, seed: int, repeats: int) -> str:
    """Return the share of flat series in which PELT finds a change (penalty 2 s^2 log n)."""
    import numpy
    import ruptures

    rows = []
    for kind in NOISES:
        source = random.Random(f"{seed} {kind}")  # noqa: S311 - a simulation
        changed, alarmed = 0, 0
        for _ in range(repeats):
            values = series(SHAPES[0], 0.0, kind, length, spread, source)
            steps = sorted(abs(b - a) for a, b in itertools.pairwise(values))
            sigma = 1.4826 * steps[len(steps) // 2] / math.sqrt(2)
            penalty = 2 * sigma**2 * math.log(length)
            pelt = ruptures.Pelt(model="l2", min_size=3, jump=1)
            cuts = pelt.fit_predict(numpy.array(values).reshape(-1, 1), penalty)
            changed += len(cuts) > 1
            alarmed += classify(values).kind != "flat"
        rows.append([kind, f"{100 * changed / repeats:.1f}", f"{100 * alarmed / repeats:.1f}"])
    return table(["noise", "ruptures PELT l2", "perfrun"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=200, help="series per cell (200)")
    parser.add_argument("--seed", type=int, default=20260601, help="of all random numbers")
    parser.add_argument("--lengths", default="30,100,1000", help="comma list")
    parser.add_argument("--spreads", default="0.01,0.03", help="standard deviations, comma list")
    parser.add_argument("--size", type=float, default=0.10, help="of the effects (0.10)")
    parser.add_argument("--compare", action="store_true", help="with ruptures, where it is there")
    flags = parser.parse_args(argv)
    lengths = [int(word) for word in flags.lengths.split(",")]
    spreads = [float(word) for word in flags.spreads.split(",")]
    simulation = Simulation(lengths, spreads, flags.size)
    simulation.run(flags.seed, flags.series)
    out = sys.stdout.write
    out(f"Seed {flags.seed}, {flags.series} series per cell, tolerance {TOLERANCE:g}.\n\n")
    out(f"Flat series not called flat, percent:\n\n{simulation.false_alarms()}\n")
    for length in lengths:
        out(f"Percent called so, n = {length}, effects of {100 * flags.size:g} %, all noises:\n\n")
        out(f"{simulation.confusion(length)}\n")
    out(f"Warm-ups called so, percent, by size of the effect:\n\n{simulation.detectability()}")
    if flags.compare and importlib.util.find_spec("ruptures"):
        out("\nFlat series with a change, percent, n = 100, noise 2 %:\n\n")
        out(compare_with_ruptures(100, 0.02, flags.seed, flags.series))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

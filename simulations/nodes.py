"""A simulation of `perfrun nodes`: who is named in fleets of equal nodes, and with a slow one.

    python -m simulations.nodes                # tables of docs/research/nodes.md, minutes
    python -m simulations.nodes --fleets=20

A fleet is 40 nodes that run six methods and a canary. Nodes differ by themselves; the slow one is
slower than the middle of the fleet by what the tables say. Methods have noise of 1 to 5 % of four
kinds; a night moves all nodes, and each node a little on its own. The rules were chosen with seeds
below 2000.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perfrun.analysis.nodes import ERROR, Figure, judge_nodes
from simulations.noises import NOISES

NODES = 40
METHODS = 6
SEED = 2000  # the first one held out
KINDS = ("gaussian", "5 % outliers", "skewed", "two modes")
NIGHT = 0.02  # what a night moves all nodes by: a standard deviation
OWN_NIGHT = 0.003  # the same for one node
OWN_METHOD = 0.003  # what a node has for a method of its own
CANARIES = 6  # a night
CANARY_NOISE = 0.01


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """How a fleet is drawn. The odd node is the first one."""

    spread: float  # standard deviation between nodes
    trials: int  # of each method, a night
    nights: int = 1
    slow: float = 0.0  # of the odd node in all methods: 0.08 is 8 %
    slow_methods: int = METHODS  # as many of them
    later: float = 0.0  # of the odd node from its third canary on
    louder: float = 1.0  # noise of the odd node
    kinds: tuple[str, ...] = KINDS
    noise: tuple[float, float] = (0.01, 0.05)


@dataclass
class Tally:
    """Who was named in some fleets."""

    fleets: int = 0
    named: int = 0  # fleets whose odd node was named in the right way
    others: int = 0  # fleets in which another node was named, in any way
    verdicts: Counter[str] = field(default_factory=Counter)  # of the other nodes
    covered: int = 0  # intervals of other nodes that hold their true effect
    intervals: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fleets", type=int, default=100, help="simulated fleets of each kind")
    parser.add_argument("--seed", type=int, default=SEED, help="of the first fleet")
    given = parser.parse_args(arguments)
    equal_nodes(given.fleets * 5, given.seed)
    slow_nodes(given.fleets, given.seed)
    by_error(given.fleets, given.seed)
    odd_nodes(given.fleets, given.seed)
    return 0


def equal_nodes(fleets: int, seed: int) -> None:
    """Print how often a node of a fleet of equal nodes is named, by noise."""
    _head(("noise of trials", "trials a method", "nights", "a node is named", "intervals hold"))
    for kind in KINDS:
        for trials, nights in ((3, 1), (10, 1), (3, 5)):
            fleet = Fleet(spread=0.015, trials=trials, nights=nights, kinds=(kind,))
            tally = simulate(fleet, fleets, seed)
            held = f"{tally.covered / max(1, tally.intervals):.0%}"
            _row((kind, trials, nights, f"{tally.others} of {tally.fleets:,}", held))


def slow_nodes(fleets: int, seed: int) -> None:
    """Print how often a slow node is named, and another, by its slowness and the fleet's spread."""
    _head(("slower by", "spread of nodes", "trials a method", "it is named", "another is named"))
    for slow in (0.02, 0.04, 0.08):
        for spread in (0.01, 0.015, 0.02):
            for trials in (3, 5, 10):
                tally = simulate(Fleet(spread=spread, trials=trials, slow=slow), fleets, seed)
                named, others = f"{tally.named} of {fleets}", f"{tally.others} of {fleets}"
                _row((f"{slow:.0%}", f"{100 * spread:g} %", trials, named, others))


def by_error(fleets: int, seed: int) -> None:
    """Print the same for a node that is 8 % slower, by the error that is asked for."""
    _head(("--error", "spread of nodes", "it is named", "another is named"))
    for error in (0.001, 0.005, 0.05):
        for spread in (0.01, 0.015, 0.02):
            tally = simulate(Fleet(spread=spread, trials=5, slow=0.08), fleets, seed, error)
            named, others = f"{tally.named} of {fleets}", f"{tally.others} of {fleets}"
            _row((f"{100 * error:g} %", f"{100 * spread:g} %", named, others))


def odd_nodes(fleets: int, seed: int) -> None:
    """Print how often other oddities are named."""
    _head(("the odd node", "trials a method", "it is named", "another is named"))
    like = Fleet(spread=0.015, trials=8)
    for name, fleet in (
        ("20 % slow in two of six methods", replace(like, slow=0.2, slow_methods=2)),
        ("10 % slow in two of six methods", replace(like, slow=0.1, slow_methods=2)),
        ("8 % slower from its third canary on", replace(like, later=0.08)),
        ("three times the noise", replace(like, louder=3.0)),
    ):
        for trials in (8, 16):
            tally = simulate(replace(fleet, trials=trials), fleets, seed)
            named, others = f"{tally.named} of {fleets}", f"{tally.others} of {fleets}"
            _row((name, trials, named, others))


def simulate(fleet: Fleet, fleets: int, seed: int = SEED, error: float = ERROR) -> Tally:
    """Judge as many fleets of that kind."""
    tally = Tally()
    wanted = "became_slow" if fleet.later else "noisy" if fleet.louder > 1 else "slow"
    if fleet.slow_methods < METHODS:
        wanted = "slow_in_some"
    is_odd = fleet.later or fleet.slow or fleet.louder > 1
    for number in range(fleets):
        figures, truth = draw(fleet, np.random.default_rng([seed, number]))
        tally.fleets += 1
        others = 0
        for found in judge_nodes(figures, error):
            at = int(found.node[1:])
            if is_odd and at == 0:
                tally.named += found.verdict == wanted
                continue
            others += found.verdict != "like_others"
            tally.verdicts[found.verdict] += 1
            assert found.low is not None
            assert found.high is not None
            tally.covered += found.low <= truth[at] <= found.high
            tally.intervals += 1
        tally.others += others > 0
    return tally


def draw(fleet: Fleet, generator: np.random.Generator) -> tuple[list[Figure], Sequence[float]]:
    """Return the figures of a fleet, and the true effects of its nodes from their middle."""
    effects = fleet.spread * generator.standard_normal(NODES)
    effects -= np.median(effects)
    own = OWN_METHOD * generator.standard_normal((NODES, METHODS + 1))
    if fleet.slow:
        effects[0] = math.log1p(fleet.slow) if fleet.slow_methods == METHODS else 0.0
        own[0] = 0.0
        if fleet.slow_methods < METHODS:
            own[0, : fleet.slow_methods] = math.log1p(fleet.slow)
    kinds = generator.choice(fleet.kinds, METHODS)
    sizes = generator.uniform(*fleet.noise, METHODS)
    figures: list[Figure] = []
    truth = effects.copy()
    for night in range(fleet.nights):
        moved = NIGHT * generator.standard_normal(METHODS + 1)
        of_nodes = OWN_NIGHT * generator.standard_normal(NODES)
        truth += of_nodes / fleet.nights
        for method in range(METHODS + 1):
            is_canary = method == METHODS
            count = CANARIES if is_canary else fleet.trials
            kind, size = ("gaussian", CANARY_NOISE) if is_canary else (kinds[method], sizes[method])
            noise = np.log(NOISES[kind](generator, (NODES, count), size))
            if fleet.louder > 1:
                noise[0] *= fleet.louder
            if fleet.later and is_canary:
                noise[0, 2:] += math.log1p(fleet.later)
            base = effects + own[:, method] + of_nodes + moved[method]
            for node in range(NODES):
                for at, value in enumerate(noise[node].tolist()):
                    time = night * 86400.0 + at * 600.0 + method
                    name = "canary" if is_canary else f"m{method}"
                    whole = float(base[node]) + value
                    figures.append(Figure(f"n{node}", name, night, time, whole, is_canary))
    return figures, (truth - np.median(truth)).tolist()


def _head(cells: Sequence[str]) -> None:
    sys.stdout.write(f"\n| {' | '.join(cells)} |\n|{'---|' * len(cells)}\n")


def _row(cells: Iterable[object]) -> None:
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())

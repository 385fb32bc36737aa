"""The order in which each node of a fleet runs its methods, with canaries between them. Pure.

A node that is measured in one order only cannot be told from that order: what runs last runs on a
warm machine. So the methods form blocks, each method once in each, and the orders of the nodes are
the rows of a Latin square whose rows and columns are drawn at random: over as many nodes as there
are methods, each method stands once on each place.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EVERY = 3  # methods between two canaries


@dataclass(frozen=True, kw_only=True)
class Step:
    """One trial of a node."""

    method: str
    round: int  # from 1; of a canary, that of the method after it
    is_canary: bool = False


def interleaved(
    nodes: Sequence[str],
    methods: Sequence[str],
    canary: str | None = None,
    *,
    rounds: int = 1,
    every: int = EVERY,
    seed: int = 0,
) -> Mapping[str, tuple[Step, ...]]:
    """Return the trials of each node, in their order; the same for the same seed and names.

    A canary comes first, after every `every` methods, and last. It runs on each node at the same
    places, so that nodes can be compared by it. Raises ValueError for names that occur twice and
    for numbers below 1.
    """
    if len({*nodes}) < len(nodes) or len({*methods}) < len(methods):
        raise ValueError("a node or method is named twice")
    if rounds < 1 or every < 1:
        raise ValueError("rounds and every begin at 1")
    own = [method for method in methods if method != canary]
    generator = random.Random(seed)  # noqa: S311 - an order, no secret
    plans: dict[str, list[Step]] = {node: [] for node in nodes}
    since = 0
    for number in range(1, rounds + 1):
        block, rows = generator.sample(own, len(own)), generator.sample(nodes, len(nodes))
        for row, node in enumerate(rows):
            turned = row % len(own) if own else 0
            steps = plans[node]
            for at, method in enumerate((*block[turned:], *block[:turned])):
                if canary is not None and (since + at) % every == 0:
                    steps.append(Step(method=canary, round=number, is_canary=True))
                steps.append(Step(method=method, round=number))
        since += len(own)
    if canary is not None:
        last = Step(method=canary, round=rounds, is_canary=True)
        for steps in plans.values():
            steps.append(last)
    return {node: tuple(steps) for node, steps in plans.items()}

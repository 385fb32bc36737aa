"""Find the nodes that are slower than their equals, or odd in another way. Numbers in, words out.

A figure is a level, which all nodes share on that night, times the effect of its node, times the
noise of its trial. In logarithms:

    figure = level of (group, night) + effect of the node on the group + noise

* Levels and effects are found by turns, each as the median of what the other leaves (Tukey's median
  polish; Exploratory Data Analysis, 1977). A new commit or driver moves the level of a night, and
  so it moves no node.
* Whether the largest effects stand out is asked by Rosner's generalized test for many outliers
  (Technometrics 25, 1983): the farthest node is held against the spread of all others, then the
  next one, and the error rate holds for all nodes together.

How often it is wrong, and what it finds, is in docs/research/nodes.md, by `simulations/nodes.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from perfrun.analysis.stats import MAD_TO_SD

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Verdict = Literal["slow", "slow_in_some", "became_slow", "noisy", "fast", "like_others", "alone"]

FEWEST_NODES = 4  # of a group on a night: fewer do not say which one is odd
CONFIDENCE = 0.95  # of the interval of an effect
ERROR = 0.005  # the share of fleets of equal nodes in which any node is named
# Shares of the error. Few trials have longer tails than the test supposes: where a finding rests on
# them, it has a share that is a few times too small.
_SHARES: dict[Verdict, float] = {
    "slow": 0.8,
    "became_slow": 0.02,
    "slow_in_some": 0.06,
    "noisy": 0.06,
    "fast": 0.06,
}
LEAST = math.log(1.02)  # an effect that matters
LEAST_LATER = math.log(1.03)  # the same from the first canary to later ones of one night
LEAST_NOISE = math.log(1.5)  # the same of a node's noise
_TURNS = 6  # of levels and effects
_REACH = 2.0  # standard deviations at which trials are clipped
_LEAST_SD = 0.002  # of a group's effects: clocks and rounding make less of it no merit
_MOST_SHARE = 4  # at most one node of so many is named
_FEWEST_TRIALS = 8  # of a node in a group in which it may be named slow
_FEWEST_RESIDUALS = 6  # of a node whose noise is judged


class Figure(NamedTuple):
    """The figure of one trial."""

    node: str
    group: str  # what is compared: a method and metric on equal nodes
    night: int
    time: float
    value: float  # logarithm; larger is slower
    is_canary: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeFindings:
    """The findings about one node. Effects are logarithms; 0 is the middle of its equals."""

    node: str
    trials: int  # that have equals to be compared with
    effect: float | None  # None without any
    low: float | None
    high: float | None
    p_value: float | None  # of standing out among all nodes
    verdict: Verdict
    groups: tuple[str, ...] = ()  # those in which a node is slow that is not slow in all
    group_effect: float | None = None  # the middle of its effects on these
    noise_ratio: float | None = None  # its noise over the middle of all
    later: float | None = None  # from its first canary to later ones, on its worst night


class _Units(NamedTuple):
    """One row for each node, group and night."""

    node: Integers
    group: Integers
    cell: Integers  # number of its group and night
    value: Floats
    trials: Integers  # number of them


def judge_nodes(figures: Sequence[Figure], error: float = ERROR) -> tuple[NodeFindings, ...]:
    """Judge every node that has figures, by name. Disturbed trials are the caller's to leave out.

    Among equal nodes one is named in a share `error` of all fleets.
    """
    names = sorted({one.node for one in figures})
    groups = sorted({one.group for one in figures})
    node = _numbers([one.node for one in figures], names)
    group = _numbers([one.group for one in figures], groups)
    night = np.array([one.night for one in figures], dtype=np.int64)
    value = np.array([one.value for one in figures], dtype=np.float64)
    _, _, cell = _pairs(group, night - night.min(initial=0))
    time = np.array([one.time for one in figures], dtype=np.float64)
    is_canary = np.array([one.is_canary for one in figures], dtype=np.bool_)
    is_compared = _has_equals(node, cell)
    found: dict[int, NodeFindings] = {}
    for part in _parts(node, group, is_compared, len(names)):
        rows = np.flatnonzero(is_compared & np.isin(node, part))
        own = _judged(
            names=names,
            groups=groups,
            node=node[rows],
            group=group[rows],
            cell=cell[rows],
            value=value[rows],
            time=time[rows],
            is_canary=is_canary[rows],
            errors={name: share * error for name, share in _SHARES.items()},
        )
        found |= own
    return tuple(found.get(at) or without_equals(name) for at, name in enumerate(names))


def without_equals(name: str) -> NodeFindings:
    """Return the findings about a node that no other can be compared with."""
    return NodeFindings(
        node=name, trials=0, effect=None, low=None, high=None, p_value=None, verdict="alone"
    )


def _numbers(words: Sequence[str], known: Sequence[str]) -> Integers:
    places = {word: at for at, word in enumerate(known)}
    return np.array([places[word] for word in words], dtype=np.int64)


def _pairs(one: Integers, other: Integers) -> tuple[Integers, Integers, Integers]:
    """Return both halves of each pair that occurs, and the number of the pair of each place."""
    width = int(other.max(initial=0)) + 1
    keys, places = np.unique(one * width + other, return_inverse=True)
    return keys // width, keys % width, places


def _has_equals(node: Integers, cell: Integers) -> NDArray[np.bool_]:
    """Return True for the trials whose group had enough nodes on their night."""
    cells, _, _ = _pairs(cell, node)
    nodes_of_cell = np.bincount(cells, minlength=int(cell.max(initial=-1)) + 1)
    enough: NDArray[np.bool_] = nodes_of_cell[cell] >= FEWEST_NODES
    return enough


def _parts(
    node: Integers, group: Integers, is_compared: NDArray[np.bool_], count: int
) -> list[Integers]:
    """Return the nodes that are compared with each other, directly or through others."""
    owner = list(range(count))

    def root(at: int) -> int:
        while owner[at] != at:
            owner[at] = owner[owner[at]]
            at = owner[at]
        return at

    of_groups, nodes, _ = _pairs(group[is_compared], node[is_compared])
    first: dict[int, int] = {}
    for of_group, at in zip(of_groups.tolist(), nodes.tolist(), strict=True):
        owner[root(at)] = root(first.setdefault(of_group, at))
    parts: dict[int, list[int]] = {}
    for at in np.unique(nodes).tolist():
        parts.setdefault(root(at), []).append(at)
    return [np.array(own, dtype=np.int64) for own in parts.values()]


def _judged(
    *,
    names: Sequence[str],
    groups: Sequence[str],
    node: Integers,
    group: Integers,
    cell: Integers,
    value: Floats,
    time: Floats,
    is_canary: NDArray[np.bool_],
    errors: Mapping[Verdict, float],
) -> dict[int, NodeFindings]:
    own_nodes, node = np.unique(node, return_inverse=True)
    own_groups, group = np.unique(group, return_inverse=True)
    _, cell = np.unique(cell, return_inverse=True)
    shape = (len(own_nodes), len(own_groups))
    units, unit_of, noise = _units_of(node, group, cell, value, shape[1])
    levels, effects = _polished(units, shape)
    rest = units.value - levels[units.cell]
    effect, error = _node_effects(units, rest, effects, noise)
    scores = _standardised(effect, error)
    p_slow, p_fast = outliers(scores, errors["slow"]), outliers(-scores, errors["fast"])
    are_slow = (p_slow <= errors["slow"]) & (effect >= LEAST)
    in_groups = _slow_groups(
        effects, value - levels[cell], node, group, are_slow, errors["slow_in_some"]
    )
    loudness = _noise_of_nodes(value - units.value[unit_of], group, node, unit_of, noise, shape[0])
    p_noise = outliers(loudness, errors["noisy"])
    later = _later_canaries(
        value - levels[cell], node, cell, time, is_canary, shape[0], errors["became_slow"]
    )
    quantile = float(special.stdtrit(max(1, len(units.value) - shape[0]), 0.5 + CONFIDENCE / 2))
    reference = 1.2533 * float(np.median(error)) / math.sqrt(shape[0])
    trials = np.bincount(node, minlength=shape[0])
    found: dict[int, NodeFindings] = {}
    for at, number in enumerate(own_nodes.tolist()):
        reach = quantile * math.hypot(error[at], reference)
        some = in_groups[at]
        is_slow = bool(are_slow[at])
        if some and is_slow and not _is_partial(effects[at], some):
            some = []
        verdict: Verdict = "like_others"
        if is_slow and not some:
            verdict = "slow"
        elif later[at] is not None:
            verdict = "became_slow"
        elif some:
            verdict = "slow_in_some"
        elif p_noise[at] <= errors["noisy"] and loudness[at] >= LEAST_NOISE:
            verdict = "noisy"
        elif p_fast[at] <= errors["fast"] and effect[at] <= -LEAST:
            verdict = "fast"
        found[number] = NodeFindings(
            node=names[number],
            trials=int(trials[at]),
            effect=float(effect[at]),
            low=float(effect[at] - reach),
            high=float(effect[at] + reach),
            p_value=float(min(p_slow[at], p_fast[at])),
            verdict=verdict,
            groups=tuple(groups[own_groups[one]] for one in some),
            group_effect=float(np.median(effects[at][some])) if some else None,
            noise_ratio=None if np.isnan(loudness[at]) else math.exp(loudness[at]),
            later=later[at],
        )
    return found


def _units_of(
    node: Integers, group: Integers, cell: Integers, value: Floats, groups: int
) -> tuple[_Units, Integers, Floats]:
    """Return each node's figure of each group and night, and the noise of trials by group.

    The figure is the mean of the trials, of which those far from their median are clipped.
    """
    nodes, cells, unit_of = _pairs(node, cell)
    number = len(nodes)
    count = np.bincount(unit_of, minlength=number)
    middle = _medians(value, unit_of, number)
    apart = value - middle[unit_of]
    group_of = np.zeros(number, dtype=np.int64)
    group_of[unit_of] = group
    several = count[unit_of] > 1
    noise = MAD_TO_SD * _medians(np.abs(apart[several]), group[several], groups)
    # The median of a few trials is near one of them: 2 values lie 0.7 standard deviations apart.
    typical = np.maximum(_medians(count.astype(float), group_of, groups), 2.0)
    noise = noise * np.sqrt(typical / (typical - 1))
    reach = _REACH * np.maximum(noise, _LEAST_SD)[group]
    clipped = np.clip(apart, -reach, reach)
    figure = middle + np.bincount(unit_of, clipped, number) / count
    return _Units(nodes, group_of, cells, figure, count), unit_of, noise


def _medians(values: Floats, keys: Integers, number: int) -> Floats:
    """Return the median of the values of each key; 0 for a key without any."""
    order = np.lexsort((values, keys))
    ordered, counts = values[order], np.bincount(keys, minlength=number)
    first = np.cumsum(counts) - counts
    found = np.zeros(number)
    some = np.flatnonzero(counts)
    low, high = first[some] + (counts[some] - 1) // 2, first[some] + counts[some] // 2
    found[some] = (ordered[low] + ordered[high]) / 2
    return found


def _polished(units: _Units, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Return the level of each cell, and the effect of each node on each group; NaN without one."""
    nodes, groups = shape
    cells = int(units.cell.max()) + 1
    pair = units.node * groups + units.group
    counts = np.bincount(pair, minlength=nodes * groups)
    effects = np.zeros(nodes * groups)
    levels = np.zeros(cells)
    for _ in range(_TURNS):
        levels = _medians(units.value - effects[pair], units.cell, cells)
        effects = _medians(units.value - levels[units.cell], pair, nodes * groups)
        table = np.where(counts > 0, effects, np.nan).reshape(shape)
        table = table - np.nanmedian(table, axis=0)
        effects = np.nan_to_num(table).reshape(-1)
    levels = _medians(units.value - effects[pair], units.cell, cells)
    left = units.value - levels[units.cell]
    scale = MAD_TO_SD * _medians(np.abs(left - effects[pair]), units.group, groups)
    reach = _REACH * np.maximum(scale, _LEAST_SD)[units.group]
    clipped = np.clip(left - effects[pair], -reach, reach)
    effects = effects + np.bincount(pair, clipped, nodes * groups) / np.maximum(counts, 1)
    table = np.where(counts > 0, effects, np.nan).reshape(shape)
    return levels, table - np.nanmedian(table, axis=0)


def _node_effects(
    units: _Units, rest: Floats, effects: Floats, noise: Floats
) -> tuple[Floats, Floats]:
    """Return the effect of each node over its groups, and its standard error.

    A group counts the more, the less its nodes differ; an effect far from the node's others is
    clipped, so that one method does not make a node slow.
    """
    nodes, groups = effects.shape
    spread = np.maximum(MAD_TO_SD * np.nanmedian(np.abs(effects), axis=0), _LEAST_SD)
    weights = np.where(np.isnan(effects), 0.0, 1 / spread**2)
    known = np.nan_to_num(effects)
    middle = np.nanmedian(effects, axis=1)
    for _ in range(3):
        near = np.clip(known - middle[:, None], -_REACH * spread, _REACH * spread)
        middle = middle + (weights * near).sum(axis=1) / weights.sum(axis=1)
    middle = middle - np.median(middle)
    shares = weights / weights.sum(axis=1)[:, None]
    pair = units.node * groups + units.group
    nights = np.bincount(pair, minlength=nodes * groups).reshape(nodes, groups)
    typical = np.array([np.median(own[own > 0]) for own in nights.T])
    if groups > 1:  # what a node's groups say apart from each other
        apart = np.abs(effects - middle[:, None]) / np.sqrt(1 - np.minimum(shares, 0.9))
        of_group = MAD_TO_SD * np.nanmedian(np.where(weights > 0, apart, np.nan), axis=0)
    else:
        freedom = np.maximum(nights.reshape(-1)[pair] - 1, 1)
        apart = np.abs(rest - middle[units.node]) * np.sqrt((freedom + 1) / freedom)
        trials = np.maximum(_medians(units.trials.astype(float), units.group, groups), 1)
        of_night = np.maximum(
            MAD_TO_SD * _medians(apart, units.group, groups), noise / np.sqrt(trials)
        )
        of_group = of_night / np.sqrt(typical)
    variance = of_group**2 * typical / np.maximum(nights, 1)
    error = np.sqrt((shares**2 * variance).sum(axis=1))
    return middle, error


def _standardised(effect: Floats, error: Floats) -> Floats:
    """Return effects over what a node of its precision would show if it were like the others."""
    spread = (MAD_TO_SD * float(np.median(np.abs(effect - np.median(effect))))) ** 2
    own = max(0.0, spread - float(np.median(error**2)))
    found: Floats = (effect - np.median(effect)) / np.sqrt(np.maximum(own + error**2, 1e-12))
    return found


def outliers(values: Floats, error: float) -> Floats:
    """Return for each value the p-value, over all of them, of being too large; NaN is 1.

    Values at or below `error` are outliers by Rosner's test, with the error rate over all values
    together (Student's t of the externally studentized value, corrected by their number).
    """
    found = np.ones(len(values))
    left = np.flatnonzero(np.isfinite(values))
    steps: list[tuple[int, float]] = []
    for _ in range(max(1, len(left) // _MOST_SHARE)):
        number = len(left)
        if number < FEWEST_NODES:
            break
        own = values[left]
        at = int(np.argmax(own))
        spread = float(np.std(own, ddof=1))
        if spread <= 0:
            break
        ratio = min((own[at] - float(np.mean(own))) / spread, (number - 1) / math.sqrt(number))
        rest = (number - 1) ** 2 - number * ratio**2
        score = math.inf if rest <= 1e-9 else ratio * math.sqrt(number * (number - 2) / rest)
        tail = 0.0 if math.isinf(score) else float(special.stdtr(number - 2, -score))
        steps.append((int(left[at]), min(1.0, number * tail)))
        left = np.delete(left, at)
    last = max((at for at, (_, p) in enumerate(steps) if p <= error), default=-1)
    for at, (place, p) in enumerate(steps):
        # What hides behind a larger outlier is one as well: the steps up to the last one all are.
        found[place] = min(own for _, own in steps[at:]) if at <= last else p
    return found


def _slow_groups(
    effects: Floats,
    rest: Floats,
    node: Integers,
    group: Integers,
    are_slow: NDArray[np.bool_],
    error: float,
) -> list[list[int]]:
    """Return for each node the groups in which it is slow.

    Its effect must stand out, and the lower quartile of its trials, too: a few trials that take far
    longer, as happens on every machine, make no node slow. It is asked twice, with half of the
    error each: the second time without the nodes that are slow in all, behind which others hide.
    """
    nodes, groups = effects.shape
    share = error / groups / 2
    found: list[list[int]] = [[] for _ in range(nodes)]
    quartiles = _quartiles(rest, node * groups + group, nodes * groups).reshape(effects.shape)
    asked = [np.zeros(nodes, dtype=np.bool_), *([are_slow] if are_slow.any() else [])]
    for one in range(groups):
        p_values = np.ones(nodes)
        for hidden in asked:
            both = [np.where(hidden, np.nan, own[:, one]) for own in (effects, quartiles)]
            p_values = np.minimum(p_values, np.maximum(*(outliers(own, share) for own in both)))
        is_large = np.nan_to_num(effects[:, one]) >= LEAST
        for at in np.flatnonzero((p_values <= share) & is_large).tolist():
            found[at].append(one)
    return found


def _quartiles(values: Floats, keys: Integers, number: int) -> Floats:
    """Return the lower quartile of the values of each key; NaN below `_FEWEST_TRIALS`."""
    order = np.lexsort((values, keys))
    ordered, counts = values[order], np.bincount(keys, minlength=number)
    first = np.cumsum(counts) - counts
    found = np.full(number, np.nan)
    some = np.flatnonzero(counts >= _FEWEST_TRIALS)
    found[some] = ordered[first[some] + (counts[some] - 1) // 4]
    return found


def _is_partial(effects: Floats, slow: Sequence[int]) -> bool:
    """Return True when a third of a node's groups are hardly slower while others are."""
    half = float(np.median(effects[list(slow)])) / 2
    known = effects[np.isfinite(effects)]
    return 3 * int(np.count_nonzero(known < half)) >= len(known)


def _noise_of_nodes(
    apart: Floats, group: Integers, node: Integers, unit_of: Integers, noise: Floats, nodes: int
) -> Floats:
    """Return the logarithm of each node's noise over the middle of all; NaN where it is unknown."""
    count = np.bincount(unit_of)[unit_of]
    told = (count > 1) & (noise[group] > 0)
    scores = np.minimum(np.abs(apart[told]) / noise[group[told]], 5.0)
    total = np.bincount(node[told], scores, nodes)
    number = np.bincount(node[told], minlength=nodes)
    enough = (number >= _FEWEST_RESIDUALS) & (total > 0)
    found = np.full(nodes, np.nan)
    found[enough] = np.log(total[enough] / number[enough])
    if enough.any():
        found -= float(np.median(found[enough]))
    return found


def _later_canaries(
    rest: Floats,
    node: Integers,
    cell: Integers,
    time: Floats,
    is_canary: NDArray[np.bool_],
    nodes: int,
    error: float,
) -> list[float | None]:
    """Return how much slower later canaries were than the first, for nodes that became slow."""
    found: list[float | None] = [None] * nodes
    rows = np.flatnonzero(is_canary)
    if not len(rows):
        return found
    own_nodes, own_cells, session = _pairs(node[rows], cell[rows])
    order = np.lexsort((time[rows], session))
    counts = np.bincount(session)
    firsts, laters = np.full(len(counts), np.nan), np.full(len(counts), np.nan)
    at = 0
    for number, count in enumerate(counts.tolist()):
        own = rest[rows[order[at : at + count]]]
        at += count
        if count >= 3:
            begin = max(1, count // 4)
            firsts[number] = float(np.median(own[:begin]))
            laters[number] = float(np.median(own[count // 2 :]))
    grown = laters - firsts
    # All nodes may warm up alike on a night.
    grown = grown - _nan_medians(grown, own_cells)[own_cells]
    p_values = outliers(grown, error)
    for number in np.flatnonzero((p_values <= error) & (grown >= LEAST_LATER)).tolist():
        own_node = int(own_nodes[number])
        if firsts[number] < grown[number] / 2:  # before, it was like the others
            found[own_node] = max(found[own_node] or 0.0, float(grown[number]))
    return found


def _nan_medians(values: Floats, keys: Integers) -> Floats:
    told = np.isfinite(values)
    return _medians(values[told], keys[told], int(keys.max()) + 1)

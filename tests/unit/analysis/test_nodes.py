"""Odd nodes are named, and equal ones are not: whole fleets are in `simulations/nodes.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfrun.analysis.nodes import Figure, NodeFindings, judge_nodes, outliers
from simulations.nodes import Fleet, draw, simulate

# Rosner's figures in the NIST handbook (1.3.5.17.3): three outliers at a two-sided 5 %, of which
# the first two pass their limits only because the third does.
ROSNER = """
-0.25 0.68 0.94 1.15 1.20 1.26 1.26 1.34 1.38 1.43 1.49 1.49 1.55 1.56 1.58 1.65 1.69 1.70 1.76
1.77 1.81 1.91 1.94 1.96 1.99 2.06 2.09 2.10 2.14 2.15 2.23 2.24 2.26 2.35 2.37 2.40 2.47 2.54 2.62
2.64 2.90 2.92 2.92 2.93 3.21 3.26 3.30 3.59 3.68 4.30 4.64 5.34 5.42 6.01
"""
EQUAL = Fleet(spread=0.01, trials=3)


def found_in(fleet: Fleet, seed: int = 1) -> dict[str, NodeFindings]:
    figures, _ = draw(fleet, np.random.default_rng(seed))
    return {one.node: one for one in judge_nodes(figures)}


def odd(found: dict[str, NodeFindings]) -> dict[str, str]:
    return {name: one.verdict for name, one in found.items() if one.verdict != "like_others"}


def test_outliers_are_those_of_rosners_example() -> None:
    values = np.array([float(word) for word in ROSNER.split()])
    p_values = outliers(values, 0.025)
    assert sorted(values[p_values <= 0.025]) == [5.34, 5.42, 6.01]
    assert (outliers(-values, 0.025) > 0.025).all()  # nothing is too small


def test_one_node_of_forty_that_is_eight_percent_slower_is_named_and_no_other() -> None:
    tally = simulate(replace(EQUAL, slow=0.08), fleets=20)
    assert (tally.named, tally.others) == (20, 0)


def test_no_node_of_equal_ones_is_named_and_intervals_hold() -> None:
    tally = simulate(EQUAL, fleets=20)
    assert tally.others <= 1  # one fleet in a hundred may have one
    assert 0.92 < tally.covered / tally.intervals < 0.98


@pytest.mark.parametrize(
    ("fleet", "verdict"),
    [
        (Fleet(spread=0.01, trials=10, slow=0.25, slow_methods=2), "slow_in_some"),
        (Fleet(spread=0.01, trials=10, later=0.15), "became_slow"),
        (Fleet(spread=0.01, trials=10, louder=4.0, kinds=("gaussian",)), "noisy"),
    ],
)
def test_another_oddity_is_called_by_its_name(fleet: Fleet, verdict: str) -> None:
    found = found_in(fleet, seed=4)
    assert odd(found) == {"n0": verdict}
    if verdict == "slow_in_some":
        assert found["n0"].groups == ("m0", "m1")


def test_a_night_that_moves_all_nodes_names_none() -> None:
    figures, _ = draw(replace(EQUAL, nights=2), np.random.default_rng(1))
    moved = [one._replace(value=one.value + 0.3 * one.night) for one in figures]
    before = {one.node: one.effect for one in judge_nodes(figures)}
    after = judge_nodes(moved)
    assert all(one.verdict == "like_others" for one in after)
    assert all(one.effect == pytest.approx(before[one.node], abs=1e-9) for one in after)


def test_nodes_are_compared_only_with_those_that_run_the_same_groups() -> None:
    figures, _ = draw(EQUAL, np.random.default_rng(1))

    def moved(one: Figure) -> Figure:
        if one.node in ("n0", "n1", "n2"):  # too few to say which of them is odd
            return one._replace(group=f"few {one.group}", value=one.value + 1.0)
        if int(one.node[1:]) >= 20:  # another kind of node, far slower
            return one._replace(group=f"other {one.group}", value=one.value + 1.0)
        return one

    found = {one.node: one for one in judge_nodes([moved(one) for one in figures])}
    assert odd(found) == dict.fromkeys(("n0", "n1", "n2"), "alone")
    assert found["n0"].effect is None
    effects = [one.effect for one in found.values() if one.effect is not None]
    assert max(map(abs, effects)) < 0.05


def test_a_slow_node_is_named_though_nodes_have_run_other_methods_and_nights() -> None:
    fleet = Fleet(spread=0.01, trials=5, nights=3, slow=0.1)
    figures, _ = draw(fleet, np.random.default_rng(2))
    kept = [
        one
        for at, one in enumerate(figures)
        if (int(one.node[1:]) + int(one.group[-1:].replace("y", "0")) + one.night) % 3 and at % 7
    ]
    assert odd({one.node: one for one in judge_nodes(kept)}) == {"n0": "slow"}


def test_figures_that_are_all_alike_name_nobody() -> None:
    alike = [Figure(f"n{n}", "m", 1, float(n), 0.0) for n in range(8)]
    assert {one.verdict for one in judge_nodes(alike)} == {"like_others"}
    assert [one.verdict for one in judge_nodes(alike[:1])] == ["alone"]
    assert judge_nodes([]) == ()


def test_a_node_that_is_slow_in_some_groups_does_not_hide_behind_one_that_is_slow_in_all() -> None:
    figures, _ = draw(Fleet(spread=0.01, trials=10, slow=0.1), np.random.default_rng(3))
    moved = [
        one._replace(value=one.value + 0.4) if (one.node, one.group) == ("n5", "m2") else one
        for one in figures
        if int(one.node[1:]) < 12
    ]
    found = {one.node: one for one in judge_nodes(moved)}
    assert odd(found) == {"n0": "slow", "n5": "slow_in_some"}
    assert found["n5"].groups == ("m2",)

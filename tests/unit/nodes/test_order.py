"""The order of a fleet: balanced, random by its seed, canaries at the same places of all nodes."""

from __future__ import annotations

from collections import Counter

import pytest

from perfrun.nodes.order import interleaved

NODES = [f"n{number}" for number in range(12)]
METHODS = [f"m{number}" for number in range(6)]


def test_each_node_runs_each_method_once_a_round_and_no_place_is_a_methods_own() -> None:
    plans = interleaved(NODES, METHODS, rounds=4, seed=3)
    places: Counter[tuple[str, int]] = Counter()
    for steps in plans.values():
        for number in range(4):
            block = steps[6 * number : 6 * number + 6]
            assert sorted(step.method for step in block) == METHODS
            assert {step.round for step in block} == {number + 1}
            places.update((step.method, at) for at, step in enumerate(block))
    # 12 nodes in rows of a Latin square: in each round each method stands twice on each place.
    assert set(places.values()) == {8}
    orders = {tuple(step.method for step in steps) for steps in plans.values()}
    assert len(orders) == 12  # no two nodes run alike


def test_canaries_come_first_last_and_between_at_the_same_places_of_all_nodes() -> None:
    plans = interleaved(NODES, METHODS, "canary", rounds=2, every=4, seed=1)
    places = {
        tuple(at for at, step in enumerate(steps) if step.is_canary) for steps in plans.values()
    }
    assert places == {(0, 5, 10, 15)}  # after 0, 4, 8 and all 12 methods
    for steps in plans.values():
        assert [step.method for step in steps if step.is_canary] == ["canary"] * 4
        assert len(steps) == 16


def test_the_seed_decides_and_a_canary_among_the_methods_runs_as_canary_only() -> None:
    one, same = (interleaved(NODES, METHODS, "m0", seed=5) for _ in range(2))
    assert one == same
    assert one != interleaved(NODES, METHODS, "m0", seed=6)
    assert all(step.is_canary == (step.method == "m0") for step in one["n3"])
    assert interleaved(["n"], ["m0"], "m0") == {"n": one["n0"][:1]}
    assert interleaved([], METHODS) == {}


@pytest.mark.parametrize(
    ("nodes", "rounds", "text"), [(["n", "n"], 1, "twice"), (["n"], 0, "begin at 1")]
)
def test_what_is_no_plan_is_refused(nodes: list[str], rounds: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        interleaved(nodes, METHODS, rounds=rounds)

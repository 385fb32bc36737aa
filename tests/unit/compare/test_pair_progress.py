"""How pairs stand while they run, and what is said when they were spent."""

from __future__ import annotations

import math
import random

from perfrun.analysis.pairs import PairRule, judge
from perfrun.analysis.two_sets import Comparison
from perfrun.compare.comparison_table import comparison_table, reason_lines
from perfrun.compare.pair_progress import (
    PairClock,
    Undecided,
    command_lines,
    pairs_needed,
    standing,
    strip,
    undecided_lines,
)
from tests.unit.reports.test_layout import assert_whole, on_screen

RULE = PairRule(max_pairs=12)


def noisy(pairs: int, effect: float, noise: float, seed: int = 1) -> list[float]:
    drawn = random.Random(seed)
    return [math.log(effect) + drawn.gauss(0, noise) for _ in range(pairs)]


def test_the_estimate_so_far_has_an_interval_and_before_that_the_range_of_its_pairs() -> None:
    few = [math.log(ratio) for ratio in (0.8, 1.0, 1.1, 1.2, 1.5)]
    assert standing(few, RULE, 120.0) == "b/a 1.10 (pairs 0.80..1.50), at most 2 min left"
    many = noisy(10, 1.1, 0.05)
    found = judge(many, "none", RULE)
    assert found.interval
    text = f"b/a {found.ratio:.2f} ({found.interval.low:.2f}..{found.interval.high:.2f})"
    assert standing(many, RULE, 0.0) == text
    assert standing(few[:1], RULE, 0.0) == "b/a 0.80"
    assert standing([], RULE, 0.0) == "b/a ?, no pair has both figures"


def test_a_strip_shows_each_pair_between_the_lowest_and_the_highest() -> None:
    ratios = [math.log(ratio) for ratio in (0.5, 1.0, 2.0, 2.0)]
    assert strip(ratios, 11) == "0.50 [o    o    2] 2.00"
    assert strip([math.log(2.0)] * 12, 11) == "1.00 [|         +] 2.00"
    assert strip([0.0], 5) == "1.00 [o    ] 1.00"


def test_the_pairs_that_are_said_to_be_needed_mostly_decide() -> None:
    """The prediction is tried on series of which the truth is known."""
    decided = 0
    for seed in range(40):
        begun = noisy(12, 1.05, 0.08, seed)
        needed = pairs_needed(begun, RULE)
        assert needed is not None
        assert needed >= 15
        found = judge(noisy(needed, 1.05, 0.08, seed + 1000), "lower", PairRule(max_pairs=needed))
        decided += found.verdict != "undecided"
    assert decided >= 20


def test_what_thousands_of_pairs_would_decide_is_not_proposed() -> None:
    ratios = (-3.0, 3.0) * 6
    assert pairs_needed(ratios, RULE) is None
    one = Undecided(method="m.C.m", log_ratios=ratios, needed=None, pair_s=1.0)
    *_, last = undecided_lines([one])
    assert command_lines([one], ["--a=x"]) == []
    assert "More than 1,000 pairs" in last
    assert "--min_effect" in last


def test_an_undecided_method_is_shown_with_the_command_that_goes_on() -> None:
    ratios = tuple(math.log(ratio) for ratio in (0.5, 1.0, 2.0))
    one = Undecided(method="m.C.m", log_ratios=ratios, needed=48, pair_s=10.0)
    words = ["--a=--env='X=1 2'", "--max_pairs", "8", "--resume", "--time_budget=9", "--", "--k=1"]
    title, drawn, about = undecided_lines([one])
    (command,) = command_lines([one], words)
    assert title == "m.C.m: undecided; b/a of its 3 pairs (| is 1):"
    assert drawn.strip().startswith("0.50 [o")
    assert about == "About 48 pairs would probably decide (8 min, from the beginning):"
    assert command == """  perfrun ab '--a=--env='"'"'X=1 2'"'"'' --max_pairs=48 -- --k=1"""
    assert undecided_lines([]) == command_lines([], words) == []


def test_the_time_left_is_that_of_all_pairs_that_may_still_come() -> None:
    clock = PairClock(["m", "n"], 10)
    clock.ended("m", is_over=False)
    clock.ended("m", is_over=False)
    before = clock.left_s
    assert before > 0
    clock.ended("n", is_over=True)
    clock.ended("m", is_over=True)
    assert clock.left_s == 0


def compared(metric: str, verdict: str, reason: str | None = None) -> Comparison:
    return Comparison(
        method="benchmarks.python.interpreter.Interpreter.attribute_access", metric=metric,
        direction="lower", ratio=1.0132, interval=None, verdict=verdict, reason=reason,  # type: ignore[arg-type]
        n_base=8, n_new=10, base_median=0.006248, new_median=0.006431, cliffs_delta=None,
        p_value=None, detectable_effect=None, margin=0.062,
    )  # fmt: skip


def test_a_comparison_is_readable_at_80_columns_and_says_each_reason_once() -> None:
    why = "too noisy for so few trials"
    found = [
        compared("wall_time", "undecided", why),
        compared("operations_per_second_per_device", "undecided", why),
        compared("peak_rss_bytes", "equivalent"),
        compared("loss", "undecided", "all pairs are spent"),
    ]
    table = comparison_table(found)
    assert_whole(table)
    lines = on_screen(table, 80)
    assert len(lines) <= 2 * (len(found) + 5)
    assert any("equivalent ±6.2 %" in line for line in lines)
    assert reason_lines(found) == [
        f"Undecided: {why} (2 figures).",
        "Undecided: all pairs are spent (loss).",
    ]

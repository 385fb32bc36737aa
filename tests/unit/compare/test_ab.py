"""`perfrun ab`: its command line, and its verdicts on pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.analysis.pairs import PairRule
from perfrun.compare.ab import parse_ab
from perfrun.compare.paired_runs import Pair, PairLimits, PairResult, comparisons, decider
from perfrun.errors import UsageError
from perfrun.summary.record import SummaryRecord, record_of
from tests.summaries import summary

METHODS = "--benchmark_methods=pkg.cases.Cases.spin"


def test_common_flags_are_for_both_and_those_of_an_arm_come_last(tmp_path: Path) -> None:
    asked = parse_ab(
        [
            f"--workspace={tmp_path}",
            METHODS,
            "--a=--env=X=1 -- --depth=1",
            "--b=--perfzero_constructor_args='{\"k\": 2}' --env='X=a b'",
            "--timeout=7",
            "--time_budget=2m",
            "--",
            "--batch_size=4",
        ]
    )
    a, b = asked.plans["a"], asked.plans["b"]
    assert (a.timeout_s, b.timeout_s) == (7, 7)
    assert a.benchmark_flags == ("--batch_size=4", "--depth=1")
    assert b.benchmark_flags == ("--batch_size=4",)
    assert (a.env, b.env) == ((("X", "1"),), (("X", "a b"),))
    assert b.constructor_args == {"k": 2}
    assert (a.workspace, b.workspace) == (tmp_path / "ab" / "a", tmp_path / "ab" / "b")
    assert (a.execution_label, b.execution_label) == ("a", "b")
    assert asked.limits == PairLimits(max_pairs=30, time_s=120)


def test_a_label_of_the_user_is_kept(tmp_path: Path) -> None:
    asked = parse_ab([f"--workspace={tmp_path}", METHODS, "--execution_label=night"])
    assert asked.plans["b"].execution_label == "night/b"


@pytest.mark.parametrize(
    "word",
    [
        "--a='",
        "--a=--workspace=elsewhere",
        "--b=--no_such_flag",
        "--a=--precision=1%",
        "--benchmark_num_trials=3",
        "--max_reruns=1",
        "--execution_id=x",
        "--max_pairs=5",
        "--max_pairs=x",
        "--seed=-1",
        "--min_effect=200%",
        "--time_budget=soon",
        "--metrics=x",
        "--env=X",
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(tmp_path: Path, word: str) -> None:
    with pytest.raises(UsageError):
        parse_ab([f"--workspace={tmp_path}", METHODS, word])


def test_without_methods_there_is_nothing_to_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        parse_ab([f"--workspace={tmp_path}"])


def record(wall_time: float, status: str = "passed", **metrics: float) -> SummaryRecord:
    return record_of(summary(wall_time=wall_time, status=status, metrics=metrics), Path("x"))


def pairs_of(*arms: tuple[SummaryRecord, SummaryRecord]) -> PairResult:
    pairs = tuple(Pair(number=number, first="a", a=a, b=b) for number, (a, b) in enumerate(arms, 1))
    return PairResult(
        pairs={"m": pairs},
        stopped_by={"m": "max_pairs"},
        seed=1,
        run_ids={"a": "1", "b": "2"},
        interrupted=False,
        pair_s={"m": 2.0},
    )


def test_each_metric_is_judged_in_its_own_direction() -> None:
    arms = [
        (record(1.0 + at / 1000, images_per_second=9), record(1.2, images_per_second=8 + at / 99))
        for at in range(8)
    ]
    found = {c.metric: c for c in comparisons(pairs_of(*arms), PairRule(), "wall_time")}
    assert next(iter(found)) == "wall_time"
    assert found["wall_time"].verdict == "slower"
    assert found["images_per_second"].verdict == "slower"
    assert found["peak_rss_bytes"].verdict == "equivalent"
    assert found["wall_time"].cliffs_delta == 1.0


def test_failures_are_the_reason_that_is_given() -> None:
    found = comparisons(
        pairs_of(*[(record(1.0), record(1.0, status="oom_killed"))] * 3), PairRule(), "wall_time"
    )
    assert found[0].verdict == "undecided"
    assert found[0].reason == "b oom_killed in 3 of 3 trials"
    assert (found[0].n_base, found[0].n_new, found[0].new_median) == (3, 0, None)


def test_pairs_end_at_interim_analyses_only() -> None:
    decided = decider(PairRule(max_pairs=30))(1)
    clear = [0.3 + at / 1000 for at in range(30)]
    answers = [count for count in range(1, 31) if decided(clear[:count], "lower")]
    assert answers == [8, 10, 13, 17, 22, 30]
    assert not decided([0.0, 0.5, -0.5, 0.3, -0.3, 0.2, -0.2, 0.1], "lower")


def test_methods_that_are_decided_together_share_the_false_alarms() -> None:
    clear = [0.3 + at / 1000 for at in range(30)]
    decided = decider(PairRule(max_pairs=30))(50)
    assert [count for count in range(1, 31) if decided(clear[:count], "lower")] == [17, 22, 30]
    with pytest.raises(UsageError, match="give 13 or more"):
        decider(PairRule(max_pairs=10))(50)

"""The loop of randomised blocks: its order, and what ends it. No process is started here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perfrun.compare.paired_runs import Block, Blocks, Reason, Trial
from perfrun.summary.document import Status, TrialResult
from perfrun.summary.metrics import WALL_TIME
from perfrun.summary.record import SummaryRecord
from tests.summaries import summary

ARMS = ("torch", "tensorflow", "jax")


def trial(wall_time: float = 1.0, status: str = "passed") -> Trial:
    def run(number: int) -> TrialResult:
        document = summary(wall_time=wall_time, status=status)
        return TrialResult(
            name="m", trial_id=number, status=Status(status), summary="x", document=document
        )

    return run


def never(_: str, __: Sequence[Block]) -> Reason | None:
    return None


def has_time(reading: SummaryRecord) -> bool:
    return WALL_TIME in reading.values


def test_every_arm_runs_once_in_each_block_and_no_order_is_favoured() -> None:
    cases = {"batch 1": {name: trial() for name in ARMS}}
    done = Blocks(cases, never, most=120, time_s=None, seed=7).run()
    blocks = done.blocks["batch 1"]
    assert all(sorted(block.order) == sorted(ARMS) for block in blocks)
    assert [block.number for block in blocks] == list(range(1, 121))
    orders = Counter(block.order for block in blocks)
    assert len(orders) == 6
    assert min(orders.values()) >= 8  # 20 are expected: one seed in thousands has fewer
    assert done.stopped_by == {"batch 1": "max_pairs"}


def test_the_same_seed_gives_the_same_orders_so_that_a_resumed_run_goes_on() -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        done = Blocks(
            {"c": {name: trial() for name in ARMS}}, never, most=20, time_s=None, seed=seed
        ).run()
        return [block.order for block in done.blocks["c"]]

    assert orders(1) == orders(1) != orders(2)


def test_a_case_that_is_decided_ends_and_the_others_go_on() -> None:
    def asked(case: str, blocks: Sequence[Block]) -> Reason | None:
        return "decided" if case == "short" and len(blocks) == 2 else None

    cases = {name: {"torch": trial()} for name in ("short", "long")}
    done = Blocks(cases, asked, most=5, time_s=None, seed=1).run()
    assert {name: len(blocks) for name, blocks in done.blocks.items()} == {"short": 2, "long": 5}
    assert done.stopped_by == {"short": "decided", "long": "max_pairs"}


def test_an_arm_that_has_no_figure_three_times_in_a_row_leaves_and_the_others_go_on() -> None:
    cases = {"c": {"torch": trial(), "tensorflow": trial(status="crashed")}}
    done = Blocks(cases, never, most=6, time_s=None, seed=1, is_figure=has_time).run()
    arms = [len(block.order) for block in done.blocks["c"]]
    assert arms == [2, 2, 2, 1, 1, 1]
    assert set(done.blocks["c"][-1].readings) == {"torch"}


def test_when_every_arm_is_lost_the_case_has_failed() -> None:
    cases = {"c": {name: trial(status="oom_killed") for name in ARMS}}
    done = Blocks(cases, never, most=9, time_s=None, seed=1, is_figure=has_time).run()
    assert done.stopped_by == {"c": "failed"}
    assert len(done.blocks["c"]) == 3


def test_an_interruption_gives_back_whole_blocks_only() -> None:
    calls: list[int] = []

    def interrupted(number: int) -> TrialResult | None:
        calls.append(number)
        return trial()(number) if number < 3 else None

    cases = {"c": {"torch": trial(), "tensorflow": interrupted}, "d": {"torch": trial()}}
    done = Blocks(cases, never, most=9, time_s=None, seed=1).run()
    assert done.interrupted
    assert (calls, len(done.blocks["c"])) == ([1, 2, 3], 2)
    assert set(done.stopped_by.values()) == {"interrupted"}


def test_the_first_block_of_a_case_runs_whatever_the_time() -> None:
    cases = {"c": {"torch": trial()}, "d": {"torch": trial()}}
    done = Blocks(cases, never, most=9, time_s=1e-9, seed=1).run()
    assert {name: len(blocks) for name, blocks in done.blocks.items()} == {"c": 1, "d": 1}
    assert set(done.stopped_by.values()) == {"time_budget"}

"""The table of shipped models beside loops written by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from overhead import beside_loops
from overhead.beside_loops import (
    FRAMEWORKS,
    MAPPED,
    PAIRS,
    PHASES,
    SLOW,
    SMALLER,
    Case,
    Figures,
    Pair,
    fastest_ratio,
    missing,
    read,
    shipped_models,
    steps_of,
    summary,
    table,
)
from overhead.processes import ROOT
from overhead.table import Spread, spread


def pair(
    ours_s: float,
    loop_s: float,
    ours_bytes: float = 2.0**20,
    *,
    fastest: tuple[float, float] | tuple[None, None] = (None, None),
    machine: str = "a processor, 2 CPUs",
) -> dict[str, object]:
    """A pair of one case: perfrun's latency, the loop's, and perfrun's peak memory."""
    return asdict(
        Pair(
            case=Case(framework="torch", model="alexnet", phase="training"),
            perfrun=Figures(
                median_s=ours_s,
                fastest_s=fastest[0],
                peak_rss_bytes=ours_bytes,
                parameters=7,
                flops_per_example=2.0e9,
            ),
            loop=Figures(
                median_s=loop_s, fastest_s=fastest[1], peak_rss_bytes=2.0**20, parameters=7
            ),
            machine=machine,
            day="2026-11-26",
        )
    )


def test_a_row_has_the_median_ratio_of_its_pairs_and_their_range() -> None:
    lines = [pair(0.010, 0.010), pair(0.011, 0.010), pair(0.012, 0.010, 2.0**21)]
    row = table([*lines, {"counted": 1.0e9, "model": "alexnet", "phase": "training"}]).splitlines()[
        2
    ]
    assert row == (
        "| alexnet | torch | training | 3 | 11.00 | 1.100 (1.000..1.200) |  "
        "| 1.000 | 1.000 (1.000..2.000) | 7 | 2.000 | 2.0000 |"
    )


def test_the_fastest_steps_of_all_pairs_of_a_machine_are_compared() -> None:
    # The first pair is slow on one side, the second on the other.
    lines = [
        pair(0.030, 0.010, fastest=(0.030, 0.010)),
        pair(0.010, 0.020, fastest=(0.0101, 0.020)),
    ]
    other = pair(0.001, 0.002, fastest=(0.001, 0.002), machine="a faster processor, 2 CPUs")
    assert fastest_ratio([*lines, other]) == pytest.approx(1.01)
    cells = table([*lines, other]).splitlines()[2].split(" | ")
    assert cells[3:7] == ["3", "20.00", "0.500 (0.500..3.000)", "1.010"]


def test_pairs_without_a_fastest_step_have_no_ratio_of_it() -> None:
    assert fastest_ratio([pair(0.010, 0.010)]) is None
    both = [pair(0.010, 0.010), pair(0.010, 0.010, fastest=(0.009, 0.010))]
    assert fastest_ratio(both) == pytest.approx(0.9)


def test_parameters_that_differ_from_the_loops_are_shown() -> None:
    line = pair(1.0, 1.0)
    line["loop"] = {**line["loop"], "parameters": 8}  # type: ignore[dict-item]
    assert "7 (loop 8)" in table([line])


def test_a_count_that_nobody_made_is_unknown() -> None:
    line = pair(1.0, 1.0)
    line["perfrun"] = {**line["perfrun"], "flops_per_example": None}  # type: ignore[dict-item]
    assert table([line]).splitlines()[2].endswith("| unknown |  |")


def test_the_size_of_a_smaller_input_stands_beside_the_phase() -> None:
    line = pair(1.0, 1.0)
    line["case"] = {**line["case"], "model": "efficientnet_b7"}  # type: ignore[dict-item]
    assert table([line]).splitlines()[2].startswith("| efficientnet_b7 | torch | training (64) |")


def test_one_pair_of_each_case_comes_first_and_then_whole_rows_of_the_shortest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long, short = (
        Case(framework="torch", model=model, phase="training") for model in ("vgg19", "vgg11")
    )
    monkeypatch.setattr(beside_loops, "TURNS", 1)
    done: list[dict[str, object]] = []
    order = []
    for case in missing([long, short], 3, done):  # type: ignore[arg-type]
        order.append(case.model)
        done.append({"case": asdict(case), "seconds": 60.0 if case == long else 6.0})
    assert order == ["vgg19", "vgg11", "vgg11", "vgg11", "vgg19", "vgg19"]
    assert list(missing([long, short], 3, done)) == []  # type: ignore[arg-type]
    assert [case.model for case in missing([long, short], 3, done[:-1])] == ["vgg19"]  # type: ignore[arg-type]


def test_the_cases_of_a_group_take_turns() -> None:
    first, second, third = (
        Case(framework="torch", model=model, phase="training")
        for model in ("vgg11", "vgg13", "vgg16")
    )
    done = [{"case": asdict(case), "seconds": 1.0} for case in (first, second, second, third)]
    order = [case.model for case in missing([first, second, third], 3, done)]
    assert order == ["vgg11", "vgg13", "vgg16", "vgg11", "vgg16"]


def test_steps_known_to_be_short_are_timed_for_a_second_and_long_ones_as_often_as_before() -> None:
    case = Case(framework="torch", model="alexnet", phase="training")
    assert steps_of(case, []) == case.steps == (1, 3)
    assert steps_of(case, [pair(0.040, 0.020), {"counted": 1.0e9}]) == (1, 50)
    assert steps_of(case, [pair(0.0005, 0.0005)]) == (1, 1000)
    assert steps_of(case, [pair(0.9, 0.9)]) == (1, 3)
    other = Case(framework="torch", model="vgg16", phase="training")
    assert steps_of(other, [pair(0.040, 0.020)]) == (0, 2)


def test_models_of_other_steps_and_sizes_are_shipped_ones() -> None:
    assert {*SLOW, *SMALLER} <= set(shipped_models("torch"))


def test_the_interval_of_pairs_is_their_range() -> None:
    found = spread([1.2, 0.9, 1.0, 1.1, 0.8])
    assert found == Spread(median=1.0, low=0.8, high=1.2, count=5)


def test_a_line_that_was_cut_off_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "loops.jsonl"
    assert read(file) == []
    whole = json.dumps(pair(1.0, 1.0))
    file.write_text(f"{whole}\n{whole[:40]}", encoding="utf-8")
    assert read(file) == [json.loads(whole)]


def test_a_row_all_of_whose_pairs_are_outside_of_a_bound_is_named() -> None:
    outside, across = [pair(0.0106, 0.010)] * 5, [pair(0.0094, 0.010), pair(0.0100, 0.010)]
    across = [{**one, "case": {**one["case"], "phase": "inference"}} for one in across]  # type: ignore[dict-item]
    assert summary([*outside, *across]).splitlines() == [
        "2 rows, 1 of them with 5 pairs at least",
        "peak_rss_bytes: the median is within 2% of the loop's in 2 rows",
        "median_s: the median is within 5% of the loop's in 1 rows",
        "  alexnet torch training: 1.060..1.060 in 5 pairs",
        "the fastest step is within 5% of the loop's in 0 of 0 rows",
        "7 pairs: a processor, 2 CPUs, 2026-11-26",
    ]


def test_every_shipped_model_is_found_and_can_be_built_by_its_loop() -> None:
    assert {"resnet18", "gpt2", "sensor_net", "vit_b_16"} <= set(shipped_models("torch"))
    assert {"resnet18", "gpt2", "sensor_net", "vit_b_16"} <= set(shipped_models("tensorflow"))
    # The loops of nets that no library has name them one by one.
    loop = (ROOT / "overhead" / "loops" / "torch_loop.py").read_text(encoding="utf-8")
    for name in ("alexnet", "alexnet_owt", "overfeat", "deep_mnist", "acoustic_model"):
        assert f'"{name}": ' in loop


def test_pairs_of_another_allocator_are_not_in_the_row() -> None:
    kept = pair(0.020, 0.010)
    kept["case"] = {**kept["case"], "allocator": "retain"}  # type: ignore[dict-item]
    lines = [pair(0.010, 0.010), kept]
    assert "| 1 | 10.00 | 1.000 (1.000..1.000) |" in table(lines)
    assert "| 1 | 20.00 | 2.000 (2.000..2.000) |" in table(lines, "retain")


def test_five_pairs_with_pages_of_their_own_for_each_block_tell_the_memory_of_a_row() -> None:
    kept = [pair(0.010, 0.010, 1.5 * 2**20)] * 2
    mapped = pair(0.030, 0.010, 1.01 * 2**20)
    mapped["case"] = {**mapped["case"], "allocator": MAPPED}  # type: ignore[dict-item]
    few = [*kept, *[mapped] * 4]
    assert "| 2 | 10.00 | 1.000 (1.000..1.000) |  | 1.500 | 1.500 (1.500..1.500) |" in table(few)
    assert MAPPED not in table(few)
    assert "bytes: the median is within 2% of the loop's in 0 rows" in summary(few)
    assert (
        "| 2 | 10.00 | 1.000 (1.000..1.000) |  | 1.010 | 1.010 (1.010..1.010), 5 mapped |"
    ) in table([*few, mapped])
    assert "bytes: the median is within 2% of the loop's in 1 rows" in summary([*few, mapped])


def test_the_document_has_the_table_of_the_kept_pairs() -> None:
    page = (ROOT / "docs" / "research" / "figures.md").read_text(encoding="utf-8")
    assert table(read(PAIRS)) in page


def test_every_shipped_model_has_a_row_for_inference_and_training() -> None:
    there = {Case(**line["case"]) for line in read(PAIRS) if "case" in line}
    assert there >= {
        Case(framework=framework, model=model, phase=phase)
        for framework in FRAMEWORKS
        for model in shipped_models(framework)
        for phase in PHASES
    }

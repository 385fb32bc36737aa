"""The result of a comparison: figures, ratios, notes, the saved document, the table."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfrun.analysis.pairs import PairRule
from perfrun.compare.differences import Difference
from perfrun.compare.paired_runs import Block
from perfrun.errors import UsageError
from perfrun.reports.layout import drawn
from perfrun.reports.table import as_cell, plain_text
from perfrun.summary.document import to_json
from perfrun.summary.record import SummaryRecord, record_of
from perfrun.versus.answer import answer_of, difference_texts, machine_text
from perfrun.versus.options import VersusPlan, parse_prices, parse_versus
from perfrun.versus.result_file import combine, find_saved, versus_document
from perfrun.versus.saved_comparison import read_saved
from perfrun.versus.trials import Decision, Trials
from perfrun.versus.versus_table import failure_lines, markdown_page, undecided_lines, versus_table
from tests.summaries import summary
from tests.unit.reports.test_layout import assert_whole

LABELS = ("torch", "tensorflow")
EMPTY: dict[str, Any] = {"schema": "perfrun.versus", "schema_version": 1, "begun": 1}
EMPTY |= {"platform_name": "x", "machine": {}, "model": None}
EMPTY |= {"cells": [], "comparisons": [], "notes": []}


def reading(
    wall_time: float,
    *,
    status: str = "passed",
    reason: str = "",
    extras: Mapping[str, Any] | None = None,
    cpu_model: str = "AMD EPYC",
    **metrics: float,
) -> SummaryRecord:
    made = summary(
        wall_time=wall_time, status=status, metrics=metrics, system={"cpu_model": cpu_model}
    )
    made["benchmark_result"]["extras"] = [
        {"name": name, "value": value} for name, value in (extras or {}).items()
    ]
    made["perfrun"]["outcome"]["reason"] = reason or None
    if status == "passed":
        made["perfrun"]["reports"] = [{"name": "m", "throughput": 8 / wall_time}]
    return record_of(made, Path("/results/x"))


def blocks_of(*sides: Mapping[str, SummaryRecord]) -> tuple[Block, ...]:
    return tuple(
        Block(number=number, order=tuple(readings), readings=readings)
        for number, readings in enumerate(sides, 1)
    )


def asked(tmp_path: Path, *words: str) -> VersusPlan:
    names = () if any(word.startswith("--frameworks") for word in words) else LABELS
    frameworks = (f"--frameworks={','.join(names)}",) if names else ()
    found = parse_versus(
        [*frameworks, f"--workspace={tmp_path}", "--batch_sizes=8", "--model=net", *words]
    )
    assert isinstance(found, VersusPlan)
    return found


def trials(blocks: Sequence[Block], **more: Any) -> Trials:
    given: dict[str, Any] = {
        "blocks": {"inference, batch 8": tuple(blocks)},
        "stopped_by": {"inference, batch 8": "decided"},
        "not_run": {},
        "run_ids": {"torch": {8: "20261121-1"}},
        "seed": 3,
        "interrupted": False,
    }
    return Trials(**{**given, **more})


def usual(count: int = 8) -> tuple[Block, ...]:
    return blocks_of(
        *(
            {
                "torch": reading(
                    0.010 + at / 1e5, parameters=5.0e6, flops_per_example=8e8, cold_start_s=4.0
                ),
                "tensorflow": reading(
                    0.015 + at / 1e5,
                    extras={"dtype": "float32"},
                    parameters=5.1e6,
                    trainable_parameters=5.0e6,
                    flops_per_example=8e8,
                    cold_start_s=9.0,
                ),
            }
            for at in range(count)
        )
    )


def test_the_second_is_judged_against_the_first_by_its_latency(tmp_path: Path) -> None:
    answer = answer_of(asked(tmp_path), trials(usual(10)))
    deciding = next(ratio for ratio in answer.ratios if ratio.figure == "latency_s")
    assert (deciding.base, deciding.label, deciding.verdict) == ("torch", "tensorflow", "slower")
    assert deciding.ratio == pytest.approx(1.498, abs=0.001)
    assert deciding.low is not None
    assert deciding.low > 1.4
    cold = next(ratio for ratio in answer.ratios if ratio.figure == "cold_start_s")
    assert (cold.verdict, cold.ratio) == ("slower", pytest.approx(2.25))


def test_all_figures_of_all_cases_and_rivals_share_the_false_alarms(tmp_path: Path) -> None:
    # At 8 pairs the rarest order is 2 in 256; 8 rounds have one interim analysis, at all of
    # the 5 %.
    alone = answer_of(asked(tmp_path, "--rounds=8"), trials(usual()))
    assert {one.figure for one in alone.ratios if one.pairs} == {
        *("latency_s", "peak_memory_bytes", "cold_start_s")
    }
    assert alone.ratios[0].verdict == "slower"
    # 5 % over 3 is enough, over 2 cases of 3 figures still (0.83 %), over 3 cases no more.
    for count, verdict, reason in (
        (2, "slower", None),
        (3, "undecided", "too few rounds: 8, and 10 can decide"),
        (14, "undecided", "too few rounds: 8, and 13 can decide"),
    ):
        sizes = range(8, 8 + count)
        question = asked(tmp_path, "--rounds=8", f"--batch_sizes={','.join(map(str, sizes))}")
        blocks = {f"inference, batch {size}": usual() for size in sizes}
        found = answer_of(question, replace(trials(()), blocks=blocks)).ratios[0]
        assert (found.verdict, found.reason) == (verdict, reason)


def test_what_nothing_was_measured_of_costs_the_others_nothing(tmp_path: Path) -> None:
    # Cases without a pair, and figures that were not reported, cannot raise a false alarm.
    words = ("--rounds=8", "--phase=both", "--batch_sizes=8,9,10,11")
    found = answer_of(asked(tmp_path, *words), trials(usual()))
    assert found.ratios[0].verdict == "slower"
    assert [one.verdict for one in found.ratios if not one.pairs] == ["undecided"] * 29


def test_a_case_ends_by_the_rule_that_judges_it_in_the_end(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    for rounds in (8, 10, 12, 13, 30):
        rule = PairRule(max_pairs=rounds)
        decides = Decision(LABELS[0], LABELS, rounds, rule, names)
        blocks = usual(rounds)
        ended: dict[str, int] = {}
        for count in range(1, rounds + 1):
            for name in names:
                if name not in ended and decides(name, blocks[:count]) == "decided":
                    ended[name] = count
        question = asked(tmp_path, f"--rounds={rounds}", "--batch_sizes=1,2,3")
        done = {
            f"inference, batch {number}": blocks[: ended.get(name, rounds)]
            for number, name in enumerate(names, 1)
        }
        answer = answer_of(question, replace(trials(()), blocks=done))
        verdicts = {one.verdict for one in answer.ratios if one.figure == "latency_s"}
        assert verdicts == ({"slower"} if ended else {"undecided"})
        assert set(ended) in (set(), set(names))


def test_what_a_million_items_cost_comes_from_the_throughput(tmp_path: Path) -> None:
    answer = answer_of(asked(tmp_path, "--price_per_hour=torch=3.6"), trials(usual()))
    torch, tensorflow = answer.cells
    assert torch.cost_per_million is not None
    # 0.001 a second, at 8 items in 10.035 ms
    assert torch.cost_per_million.median == pytest.approx(1000 * 0.010035 / 8, rel=1e-3)
    assert tensorflow.cost_per_million is None


def test_counts_that_differ_are_said_with_the_reason(tmp_path: Path) -> None:
    notes = answer_of(asked(tmp_path), trials(usual())).notes
    (parameters,) = [note for note in notes if note.startswith("Parameters")]
    assert parameters.startswith("Parameters differ: torch 5,000,000, tensorflow 5,100,000")
    assert "trainable are 5,000,000 in each" in parameters
    assert not [note for note in notes if note.startswith("FLOPs")]


def test_counted_operations_that_differ_are_said_with_their_tools(tmp_path: Path) -> None:
    blocks = blocks_of(
        {
            "torch": reading(1.0, extras={"flops_counted_by": "A"}, flops_per_example=8e8),
            "tensorflow": reading(1.0, extras={"flops_counted_by": "B"}, flops_per_example=7.9e8),
        }
    )
    notes = answer_of(asked(tmp_path), trials(blocks)).notes
    assert (
        "FLOPs per example differ: torch 800,000,000, tensorflow 790,000,000 "
        "(counted by torch: A; tensorflow: B)." in notes
    )


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    blocks = blocks_of(
        {
            "torch": reading(1.0, extras={"dtype": "float32", "threads": 2}),
            "tensorflow": reading(1.0, extras={"dtype": "bfloat16"}, cpu_model="Intel"),
        }
    )
    notes = answer_of(asked(tmp_path), trials(blocks)).notes
    assert "Environment: dtype: torch float32, tensorflow bfloat16." in notes
    assert "Environment: threads: torch 2, tensorflow (not reported)." in notes
    assert any("cpu model AMD EPYC -> Intel" in note for note in notes)


def test_of_one_framework_twice_what_is_installed_is_compared_too(tmp_path: Path) -> None:
    def with_version(version: str) -> SummaryRecord:
        document = summary(distributions={"torch": version, "numpy": "2.2"})
        return record_of(document, Path("x"))

    blocks = blocks_of({"old": with_version("2.12"), "new": with_version("2.13")})
    notes = answer_of(asked(tmp_path, "--frameworks=old=torch,new=torch"), trials(blocks)).notes
    assert "Environment: old -> new: torch 2.12 -> 2.13." in notes
    blocks = blocks_of({"torch": with_version("2.12"), "tensorflow": with_version("2.13")})
    assert not [n for n in answer_of(asked(tmp_path), trials(blocks)).notes if "2.12" in n]
    many = [Difference(kind="variable", name=f"V{at}", base=None, new="1") for at in range(20)]
    assert difference_texts(many)[-2:] == ["V11 (none) -> 1", "8 more"]


def test_two_modes_of_one_file_do_not_differ_in_their_source(tmp_path: Path) -> None:
    def of(method: str, source: str) -> SummaryRecord:
        made = summary(method=f"pkg.cases.Cases.{method}")
        made["perfrun"]["module_sha256"] = source * 64
        return record_of(made, Path("x"))

    words = "--frameworks=torch,torch:compiled"
    for source, is_said in (("a", False), ("b", True)):
        sides = {"torch": of("inference", "a"), "torch:compiled": of("inference_compiled", source)}
        notes = answer_of(asked(tmp_path, words), trials(blocks_of(sides))).notes
        assert any("source of" in note for note in notes) == is_said


def test_a_process_that_may_not_use_all_processors_is_said() -> None:
    machine = {"cpu_model": "AMD EPYC", "logical_cpu_count": 2}
    assert machine_text(machine) == "AMD EPYC, 2 CPUs"
    assert machine_text({**machine, "usable_cpu_count": 2}) == "AMD EPYC, 2 CPUs"
    assert machine_text({**machine, "usable_cpu_count": 1}) == "AMD EPYC, 1 of 2 CPUs"


def test_a_container_on_one_side_is_one_difference() -> None:
    def one(kind: str, name: str, base: str | None, new: str | None) -> Difference:
        return Difference(kind=kind, name=name, base=base, new=new)

    whole = [one("container", name, None, "x") for name in ("image_id", "network", "pids")]
    found = [one("python", "python", "3.11.2", "3.12.1"), one("python", "build", "a", "b"), *whole]
    assert difference_texts(found) == ["python 3.11.2 -> 3.12.1", "in a container no -> yes"]
    both = [one("container", "image_id", "a", "b"), one("container", "memory_bytes", None, "7")]
    assert difference_texts(both) == ["image id a -> b", "memory bytes (none) -> 7"]


def test_one_that_failed_is_shown_with_the_reason_and_the_other_with_its_figures(
    tmp_path: Path,
) -> None:
    why = "ValueError: unknown model\n 'net'"
    blocks = blocks_of(
        *(
            {
                "torch": reading(0.01 + at / 1e5),
                "tensorflow": reading(1.0, status="failed", reason=why),
            }
            for at in range(3)
        )
    )
    answer = answer_of(asked(tmp_path), trials(blocks, stopped_by={"inference, batch 8": "failed"}))
    torch, tensorflow = answer.cells
    assert torch.failure is None
    assert torch.figures["latency_s"].trials == 3
    assert not tensorflow.figures
    assert failure_lines(answer.cells) == [
        "tensorflow (inference, batch 8): failed in 3 of 3 trials: ValueError: unknown model 'net'"
    ]
    table = versus_table(answer.cells, answer.ratios)
    verdict = table.headings.index("verdict")
    assert [as_cell(row[verdict]).lines for row in table.rows] == [("base",), ("failed",)]


def test_one_that_could_not_be_put_in_place_is_a_row_too(tmp_path: Path) -> None:
    blocks = blocks_of({"torch": reading(0.01)})
    answer = answer_of(
        asked(tmp_path), trials(blocks, not_run={"tensorflow": "No module named 'tensorflow'"})
    )
    assert answer.cells[1].failure == "No module named 'tensorflow'"
    assert answer.cells[1].trials == 0


def decision(*labels: str, rounds: int = 30) -> Decision:
    return Decision(labels[0], labels, rounds, PairRule(max_pairs=rounds))


def test_a_case_ends_when_all_its_rivals_are_decided() -> None:
    def sides(rivals: Mapping[str, float], at: int) -> dict[str, SummaryRecord]:
        noise = (1, 1.3, 0.8, 1.2)[at % 4]
        times = {name: time + at / 1e5 for name, time in rivals.items()}
        if "noisy" in times:
            times["noisy"] = 0.01 * noise
        return {name: reading(time) for name, time in {"torch": 0.01, **times}.items()}

    clear = blocks_of(*(sides({"tensorflow": 0.02}, at) for at in range(10)))
    asks = decision("torch", "tensorflow")
    assert [asks("c", clear[: count + 1]) for count in range(10)] == [None] * 9 + ["decided"]
    open_one = blocks_of(*(sides({"tensorflow": 0.02, "noisy": 0.01}, at) for at in range(10)))
    assert decision("torch", "tensorflow", "noisy")("c", open_one) is None


def test_whose_rivals_are_lost_goes_on_until_it_has_an_interval() -> None:
    asks = decision("torch", "tensorflow")
    blocks = blocks_of(*({"torch": reading(0.01)} for _ in range(6)))
    assert asks("c", blocks[:5]) is None
    assert asks("c", blocks) == "failed"


def saved(tmp_path: Path, platform: str, begun: float, **more: Any) -> Path:
    question = asked(tmp_path, f"--platform_name={platform}", *more.pop("words", ()))
    done = trials(more.pop("blocks", usual(10)))
    whole = versus_document(question, done, answer_of(question, done), begun)
    folder = tmp_path / f"{platform}-{begun:.0f}" / "versus"
    folder.mkdir(parents=True)
    (folder / "x.json").write_text(to_json({**whole, **more}), encoding="utf-8")
    return folder.parent


def test_a_saved_comparison_reads_back_as_it_was(tmp_path: Path) -> None:
    question = asked(tmp_path, "--platform_name=small", "--price_per_hour=2")
    done = trials(usual(10))
    answer = answer_of(question, done)
    folder = saved(tmp_path, "small", 1.0, words=("--price_per_hour=2",))
    back = read_saved(folder / "versus" / "x.json")
    assert back.cells == answer.cells
    assert back.ratios == answer.ratios
    assert (back.platform_name, back.model) == ("small", "net")


def test_platforms_combine_into_one_table_without_a_verdict_between_them(tmp_path: Path) -> None:
    slow = blocks_of(
        *(
            {name: reading(0.03 + at / 1e5, cpu_model="Intel") for name in LABELS}
            for at in range(10)
        )
    )
    folders = [saved(tmp_path, "small", 1.0), saved(tmp_path, "big", 2.0, blocks=slow)]
    combined = combine(find_saved(folders), parse_prices(["small=1", "big=4"]))
    assert [(cell.label, cell.platform_name) for cell in combined.cells] == [
        *(("torch", "small"), ("torch", "big")),
        *(("tensorflow", "small"), ("tensorflow", "big")),
    ]
    costs = [cell.cost_per_million for cell in combined.cells]
    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[1].median / costs[0].median == pytest.approx(4 * 3, rel=0.01)
    assert any("Between platforms there is no verdict" in note for note in combined.notes)
    table = versus_table(combined.cells, combined.ratios)
    assert "platform" in table.headings
    cells = [as_cell(row[table.headings.index("verdict")]) for row in table.rows]
    verdicts = ["\n".join(cell.lines) for cell in cells]
    assert verdicts == ["base", "base", "slower", "equivalent (within 2 %)"]


def test_of_a_platform_the_newest_comparison_counts_and_the_older_are_counted(
    tmp_path: Path,
) -> None:
    newer = blocks_of(*({name: reading(0.5 + at / 1e3) for name in LABELS} for at in range(8)))
    folders = [
        saved(tmp_path, "small", 2.0, blocks=newer),
        saved(tmp_path, "small", 1.0),
    ]
    combined = combine(find_saved(folders), parse_prices(None))
    assert len(combined.cells) == 2
    assert combined.cells[0].figures["latency_s"].median > 0.4
    assert all(ratio.ratio == pytest.approx(1.0) for ratio in combined.ratios[:1])
    assert "1 older comparisons of the same platforms are left out." in combined.notes
    # Given twice, a file is one file; a folder of workspaces is as good as its workspaces.
    assert len(find_saved([folders[0].parent, *folders])) == len(find_saved(folders))
    assert len(find_saved([folders[0], folders[0] / "versus" / "x.json"])) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read: not JSON"),
        ("[" * 100_000, "cannot be read: JSON nested too deep"),
        ("[]", "was not written by"),
        ('{"schema": "other"}', "was not written by"),
        ('{"schema": "perfrun.versus", "schema_version": 99}', "has version 99"),
        ('{"schema": "perfrun.versus", "schema_version": 1}', "is damaged"),
        (json.dumps({**EMPTY, "cells": [{"phase": "inference"}]}), "is damaged"),
        (json.dumps({**EMPTY, "notes": None}), "is damaged: it is wrong: notes is null"),
        (json.dumps({**EMPTY, "begun": float("nan")}), "begun is nan, not a number"),
        (json.dumps(EMPTY), "is damaged"),
    ],
)
def test_a_file_that_is_no_comparison_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "naïve name.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said) as error:
        find_saved([path])
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_too_large_or_with_one_wrong_row_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = saved(tmp_path, "small", 1.0) / "versus" / "x.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    whole["cells"][1]["figures"] = []
    path.write_text(json.dumps(whole), encoding="utf-8")
    wrong = r"damaged: it is wrong: cells \(x\.json: cells\[1\] is wrong: figures"
    with pytest.raises(UsageError, match=wrong):
        find_saved([path])
    with path.open("wb") as file:
        file.truncate(2**40)  # a terabyte without a block
    with pytest.raises(UsageError, match=r"cannot be read: x\.json is larger than"):
        find_saved([path])


def test_places_without_a_comparison_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no saved comparison"):
        find_saved([tmp_path])
    with pytest.raises(UsageError, match="cannot be read"):
        find_saved([tmp_path / "nowhere.json"])


def test_other_models_and_prices_of_strangers_are_refused(tmp_path: Path) -> None:
    one = saved(tmp_path, "small", 1.0)
    other = saved(tmp_path, "big", 2.0, model="other")
    with pytest.raises(UsageError, match="different models: net, other"):
        combine(find_saved([one, other]), parse_prices(None))
    with pytest.raises(UsageError, match="'huge' is none of"):
        combine(find_saved([one]), parse_prices(["huge=3"]))


def test_the_document_is_plain_json_and_names_every_trial(tmp_path: Path) -> None:
    question = asked(tmp_path)
    done = trials(usual(2))
    whole = json.loads(to_json(versus_document(question, done, answer_of(question, done), 1.0)))
    assert [block["order"] for block in whole["blocks"]] == [list(LABELS)] * 2
    assert whole["blocks"][0]["summaries"] == dict.fromkeys(LABELS, "/results/x")
    assert whole["blocks"][0]["latency_s"] == {"torch": 0.01, "tensorflow": 0.015}
    assert [row["label"] for row in whole["contenders"]] == list(LABELS)


def test_columns_without_anything_are_left_out(tmp_path: Path) -> None:
    answer = answer_of(asked(tmp_path), trials(usual(10)))
    table = versus_table(answer.cells, answer.ratios)
    assert list(table.headings) == [
        *("batch", "framework", "latency", "per second", "peak memory", "cold start", "params"),
        *("FLOPs", "trials", "ratio", "95 % interval", "verdict"),
    ]
    assert plain_text(table).splitlines()[2].split()[:2] == ["8", "torch"]
    priced = [replace(cell, cost_per_million=cell.figures["latency_s"]) for cell in answer.cells]
    assert "cost / million" in versus_table(priced, answer.ratios).headings


def test_a_label_means_nothing_to_markdown(tmp_path: Path) -> None:
    answer = answer_of(asked(tmp_path), trials(usual(10)))
    cells = [replace(cell, label="a_b|c") for cell in answer.cells]
    text = markdown_page("a *title*", versus_table(cells, ()), ["note <b>"])
    assert text.startswith("# a \\*title\\*\n\n| batch | framework |")
    assert "| a\\_b\\|c |" in text
    assert text.endswith("- note \\<b\\>\n")


@pytest.mark.parametrize(("width", "tables"), [(200, 1), (90, 2), (70, 3)])
def test_on_a_narrow_terminal_verdicts_are_a_table_of_their_own(
    tmp_path: Path, width: int, tables: int
) -> None:
    from rich.console import Console

    answer = answer_of(asked(tmp_path), trials(usual(10)))
    assert_whole(versus_table(answer.cells, answer.ratios))
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        for part in drawn(versus_table(answer.cells, answer.ratios), width):
            console.print(part)
    lines = captured.get().splitlines()
    assert sum("framework" in line for line in lines) == tables
    assert all(len(line) <= width for line in lines)
    assert sum("slower" in line for line in lines) == 1


def test_the_same_reason_of_several_is_said_once(tmp_path: Path) -> None:
    one = answer_of(asked(tmp_path, "--rounds=1"), trials(usual(1))).ratios[0]
    found = undecided_lines([one, replace(one, label="jax"), replace(one, reason=None)])
    assert found == ["tensorflow, jax (inference, batch 8): too few rounds: 1, and 7 can decide"]

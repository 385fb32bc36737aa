"""The differences between two sets of trials, and those that forbid comparing them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfrun.compare.differences import differences, forbids, mixtures
from perfrun.errors import UsageError
from perfrun.summary.record import SummaryRecord, read_record
from tests.summaries import summary, write


def reading(folder: Path, **facts: Any) -> SummaryRecord:
    name = f"{len(list(folder.glob('*')))}"
    output = write(folder / name, summary(**facts))
    return read_record(next(output.glob("*/*.json")))


def texts(base: SummaryRecord, new: SummaryRecord) -> list[str]:
    return [difference.text for difference in differences([base], [new])]


def test_one_new_version_is_all_that_is_named(tmp_path: Path) -> None:
    base = reading(tmp_path, distributions={"torch": "2.12", "numpy": "2.2"}, label="a")
    new = reading(tmp_path, distributions={"torch": "2.13", "numpy": "2.2"}, label="b")
    assert texts(base, new) == ["torch 2.12 -> 2.13"]


def test_what_came_and_what_went_is_named(tmp_path: Path) -> None:
    base = reading(tmp_path, distributions={"numpy": "2.2", "six": "1"})
    new = reading(tmp_path, distributions={"numpy": "2.2", "rich": "3"})
    assert texts(base, new) == ["rich (none) -> 3", "six 1 -> (none)"]


def test_code_flags_variables_and_machine_are_named(tmp_path: Path) -> None:
    base = reading(tmp_path, commits={"models": "a" * 40}, flags={"root_data_dir": "/a"})
    new = reading(
        tmp_path,
        commits={"models": "b" * 40},
        flags={"root_data_dir": "/b", "memory": "4g"},
        benchmark_flags=["--depth=2"],
        machine={"kernel": "6.19"},
    )
    assert texts(base, new) == [
        "kernel 6.18 -> 6.19",
        "models aaaaaaaaaaaa -> bbbbbbbbbbbb",
        "flags after -- (none) -> --depth=2",
        "--memory (none) -> 4g",
    ]


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"system": {"cpu_model": "Xeon"}}, "hardware"),
        ({"system": {"logical_cpu_count": 64}}, "hardware"),
        ({"machine": {"memory_bytes": 128 * 2**30}}, "hardware"),
        ({"system": {"accelerator_model": "A100", "accelerator_count": 1}}, "hardware"),
        ({"system": {"accelerator_driver_version": "580"}}, "driver"),
        ({"benchmark_flags": ["--batch_size=8"]}, "batch_size"),
        ({"benchmark_flags": ["--eval_batch_size", "8"]}, "batch_size"),
        ({"flags": {"perfzero_constructor_args": '{"batch_size": 8}'}}, "batch_size"),
        ({"metrics": {"batch_size": 8.0}}, "batch_size"),
    ],
)
def test_other_hardware_driver_or_batch_size_forbids_a_comparison(
    tmp_path: Path, facts: dict[str, Any], kind: str
) -> None:
    base, new = reading(tmp_path), reading(tmp_path, **facts)
    assert kind in [d.kind for d in differences([base], [new]) if forbids(d)]
    assert not mixtures([base, base])


def test_platforms_of_the_same_processor_are_told_apart_by_their_names(tmp_path: Path) -> None:
    unnamed, one, other = (
        reading(tmp_path, system={"platform_name": name} if name else None)
        for name in (None, "cloud a", "cloud b")
    )
    (difference,) = differences([one], [other])
    assert (difference.text, forbids(difference)) == ("platform name cloud a -> cloud b", True)
    assert mixtures([one, other]) == (("hardware", "platform_name"),)
    # Results of before anybody gave names stay comparable.
    assert not any(forbids(d) for d in differences([unnamed], [one]))


def test_a_few_megabytes_that_a_kernel_keeps_are_no_other_hardware(tmp_path: Path) -> None:
    base = reading(tmp_path, machine={"memory_bytes": 33_500_000_000})
    new = reading(tmp_path, machine={"memory_bytes": 33_300_000_000})
    assert not texts(base, new)


def test_perfzeros_summaries_know_less_and_can_be_compared(tmp_path: Path) -> None:
    ours = summary(distributions={str(n): "1" for n in range(300)})
    theirs = {key: value for key, value in ours.items() if key != "perfrun"}
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "one.json").write_text(json.dumps(ours), encoding="utf-8")
    (tmp_path / "x" / "other.json").write_text(json.dumps(theirs), encoding="utf-8")
    base = read_record(tmp_path / "x" / "other.json")
    new = read_record(tmp_path / "x" / "one.json")
    found = differences([base], [new])
    assert not [d for d in found if forbids(d)]
    assert len(found) < 20
    assert "distributions (none) -> 300 recorded" in [d.text for d in found]


def test_an_environment_without_distributions_is_told_from_one_that_was_not_recorded(
    tmp_path: Path,
) -> None:
    base = reading(tmp_path, distributions={})
    new = reading(tmp_path, distributions={"numpy": "2", "torch": "2.13"})
    assert texts(base, new) == ["numpy (none) -> 2", "torch (none) -> 2.13"]


def test_several_values_in_a_set_are_a_mixture(tmp_path: Path) -> None:
    mixed = [reading(tmp_path), reading(tmp_path, system={"cpu_model": "Xeon"})]
    assert mixtures(mixed) == (("hardware", "cpu_model"),)
    found = differences(mixed, mixed[:1])
    assert [(d.base, d.new) for d in found] == [("AMD EPYC | Xeon", "AMD EPYC")]


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"machine": {"memory_bytes": "much"}}, "TypeError"),
        ({"distributions": ["torch"]}, "AttributeError"),
        ({"system": "x"}, "AttributeError"),
        ({"benchmark_info": None}, "KeyError"),
    ],
)
def test_a_summary_that_somebody_has_changed_is_named_in_one_line(
    tmp_path: Path, facts: dict[str, Any], kind: str
) -> None:
    whole, damaged = reading(tmp_path), reading(tmp_path)
    document = json.loads(json.dumps(damaged.document))
    for name, value in facts.items():
        place = document["perfrun"]
        if name == "system":
            document["system_info"] = value
        elif name == "benchmark_info":
            del document[name]
        elif name == "distributions":
            place["environment"] = {"distributions": value}
        else:
            place[name] = value
    with pytest.raises(
        UsageError, match=rf"perfzero_summary.json: is damaged: {kind}: .*; leave it out"
    ):
        differences([whole], [replace(damaged, document=document)])


def with_allocator(one: SummaryRecord, asked: str | None) -> SummaryRecord:
    own = {**one.document["perfrun"]}
    if asked is not None:
        own["allocator"] = {"asked": asked, "name": "glibc"}
    return replace(one, document={**one.document, "perfrun": own})


def test_trials_of_two_allocators_are_not_compared_and_not_mixed(tmp_path: Path) -> None:
    one = reading(tmp_path)
    old, usual, kept = (with_allocator(one, asked) for asked in (None, "default", "retain"))
    assert differences([old], [usual]) == ()
    (difference,) = differences([usual], [kept])
    assert difference.text == "allocator default -> retain"
    assert forbids(difference)
    assert mixtures([usual, kept]) == (("allocator", "allocator"),)

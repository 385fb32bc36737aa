"""Steps across a cut: real histories in, what `detect`, `history` and a night's report say out."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfrun.analysis.level_shift import level_shift
from perfrun.benchmark import main
from perfrun.changes.cuts import Cut, cut_lines, cuts_of_series
from perfrun.nightly.suite_changes import recent_changes
from perfrun.options.command_line import parse
from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from simulations.detect import KINDS
from tests import schemas
from tests.summaries import write
from tests.unit.changes.test_detect import BEGIN, METHOD, nights
from tests.unit.nightly.test_suite_changes import method as reported

BEFORE = 20


def driver(number: int) -> dict[str, Any]:
    version = "570.1" if number < BEFORE else "580.2"
    return {"system": {"accelerator_model": "H100", "accelerator_driver_version": version}}


def at_commit(number: int) -> dict[str, Any]:
    return {**driver(number), "commits": {"models": "a" * 40}}


def planted(
    workspace: Path,
    factor: float,
    after: int,
    change: Callable[[int], dict[str, Any]] = driver,
    edit: Callable[[int, dict[str, Any]], None] = lambda number, document: None,
) -> Path:
    documents = nights([1.0] * BEFORE + [factor] * after, change=change)
    for number, document in enumerate(documents):
        edit(number, document)
    write(workspace / "output", *documents)
    return workspace


def told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[dict[str, Any]]]:
    """The page and the cuts of `perfrun detect`; a step across a cut is no failure."""
    status = main(["detect", f"--workspace={workspace}"])
    page = capsys.readouterr().out
    assert main(["detect", f"--workspace={workspace}", "--format=json"]) == status == 0
    document = json.loads(capsys.readouterr().out)
    assert not schemas.wrong("detect", document)
    return page, [one for one in document["cuts"] if one["metric"] == "wall_time"]


def of_workspace(workspace: Path) -> tuple[Cut, ...]:
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
        return cuts_of_series(store.series(metric="wall_time"))


def test_a_step_with_a_new_driver_is_said_as_the_environments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, (cut,) = told(planted(tmp_path, 0.86, 9, at_commit), capsys)
    lines = page.splitlines()
    assert lines[0] == "2026-06-21  series begin anew: driver 570.1 -> 580.2"
    assert lines[1] == f"  wall_time of {METHOD}: level -14 % (-16 % to -13 %), better"
    assert lines[2] == "  no commit changed: the step is not the code's"
    assert lines[3] == "  no pairs can be run: a machine has one driver at a time"
    assert lines[-1].startswith("2 series, no change")
    assert (cut["verdict"], cut["nights_before"], cut["nights_after"]) == ("step", 20, 9)
    assert cut["parts"] == [{"name": "driver", "before": "570.1", "after": "580.2"}]
    assert cut["low"] < 0.86 < cut["high"]
    step = "with driver 570.1 -> 580.2: level -14 % (-16 % to -13 %), better"
    assert main(["history", METHOD, f"--workspace={tmp_path}"]) == 0
    second = capsys.readouterr().out.split("\n\n")[1]
    assert second.splitlines()[2] == f"begins on 2026-06-21 {step}"
    assert main(["history", METHOD, f"--workspace={tmp_path}", "--format=json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not schemas.wrong("history", document)
    assert [[one["verdict"] for one in own["cuts"]] for own in document["series"]] == [[], ["step"]]


def test_a_level_that_stays_is_not_mentioned_and_two_nights_are_too_few(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, (cut,) = told(planted(tmp_path / "same", 1.0, 21), capsys)
    assert "570" not in page
    assert cut["verdict"] == "none"
    page, (cut,) = told(planted(tmp_path / "young", 1.3, 2), capsys)
    assert "level not yet sure: 2 nights since, 2 more needed" in page
    assert (cut["verdict"], cut["ratio"], cut["direction"]) == ("not_yet_sure", None, None)


def test_what_changes_in_the_same_night_is_named_together_with_the_pairs_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edited(number: int) -> dict[str, Any]:
        return {
            "module_sha256": ("ab" if number < BEFORE else "c3") * 32,
            "commits": {"models": ("a" if number < BEFORE else "b") * 40},
            "benchmark_flags": ["--size=3"],
        }

    folder = tmp_path / "a b"
    folder.mkdir()
    for minor in (11, 12):
        (folder / f"python3.{minor}").symlink_to(sys.executable)

    def interpreter(number: int, document: dict[str, Any]) -> None:
        minor = 11 if number < BEFORE else 12
        python = document["perfrun"]["environment"]["python"]
        python |= {"version": f"3.{minor}.2", "executable": f"{folder}/python3.{minor}"}

    page, _ = told(planted(tmp_path, 1.2, 6, edited, interpreter), capsys)
    lines = page.splitlines()
    assert lines[0] == (
        "2026-06-21  series begin anew: python3.11 -> python3.12; "
        "module changed (hash ababababab -> c3c3c3c3c3)"
    )
    assert "  the code changed in the same night, too: models aaaaaaaaaa -> bbbbbbbbbb" in lines
    assert "  differs: python 3.11.2 -> 3.12.2" in lines
    assert not any(line.startswith(METHOD) and "begins anew" in line for line in lines)
    (command,) = (line.partition(": ")[2] for line in lines if "confirm with" in line)
    sides = [f"'--python={folder}/python3.{minor}'" for minor in (11, 12)]
    a, b = (shlex.quote(side) for side in sides)
    assert command == f"perfrun ab --a={a} --b={b} --benchmark_methods={METHOD} -- --size=3"
    words = shlex.split(command)
    for arm, minor in zip(words[2:4], (11, 12), strict=True):  # flags that perfrun takes
        plan = parse([words[4], *shlex.split(arm.partition("=")[2])])
        assert plan.python == f"{folder}/python3.{minor}"


def test_series_side_by_side_are_no_cut_and_of_two_machines_each_has_its_own(
    tmp_path: Path,
) -> None:
    def alternating(number: int) -> dict[str, Any]:
        return driver(BEFORE * (number % 2))

    planted(tmp_path / "both", 1.0, 20, alternating)
    assert of_workspace(tmp_path / "both") == ()
    for host, factor in (("A", 0.8), ("B", 1.0)):
        documents = nights([1.0] * BEFORE + [factor] * 8, change=driver, seed=ord(host))
        for document in documents:
            document["system_info"]["cpu_model"] = host
            document["perfrun"]["run_id"] += host
            document["execution_id"] += host
        write(tmp_path / "two" / "output", *documents)
    cuts = of_workspace(tmp_path / "two")
    assert {(cut.hardware[0], cut.verdict) for cut in cuts} == {("A", "step"), ("B", "none")}
    assert {part.name for cut in cuts for part in cut.parts} == {"driver"}


def test_only_the_nights_between_the_nearest_changes_and_the_cut_count(tmp_path: Path) -> None:
    factors = [1.0] * 30 + [1.1] * 20 + [1.1] * 20
    write(tmp_path / "output", *nights(factors, change=lambda n: driver(n - 30)))
    (cut,) = of_workspace(tmp_path)
    assert (cut.nights_before, cut.verdict) == (20, "none")


def test_a_report_names_the_steps_first_and_counts_the_rest(tmp_path: Path) -> None:
    (cut,) = of_workspace(planted(tmp_path, 0.86, 9, at_commit))
    young = replace(cut, verdict="not_yet_sure", ratio=None, nights_after=2)
    several = [*(replace(young, method=f"m{n}") for n in range(6)), cut]
    lines = cut_lines(several, since=date(2026, 6, 21))
    assert lines[0] == (
        f"driver 570.1 -> 580.2 since 2026-06-21: wall_time of {METHOD}: level -14 % "
        "(-16 % to -13 %), better; no commit changed: the step is not the code's"
    )
    assert lines[-1] == "and 2 more methods whose series begin anew"
    assert len(lines) == 6
    assert cut_lines(several, since=date(2026, 6, 22)) == []
    with open_store(parse_address(None, tmp_path)) as store:
        night, begun = "run-028", BEGIN + 28 * 86400
        recent = recent_changes(store, [reported(METHOD)], night, begun)
    assert lines[0] in recent.outlook


@pytest.mark.parametrize(("before", "after"), [(21, 4), (6, 6), (21, 21)])
def test_the_interval_holds_the_true_step_as_often_as_it_says(before: int, after: int) -> None:
    for number, (kind, noise) in enumerate(KINDS.items()):
        table = noise(np.random.default_rng([9, number]), (200, before + after), 0.02)
        shifts = [level_shift(row[:before], row[before:] * 0.9) for row in table]
        held = [low <= 0.9 <= high for low, high in (one.interval(0.95) for one in shifts)]
        assert np.mean(held) >= 0.92, kind  # 2 standard errors below 95 %
        false = [level_shift(row[:before], row[before:]).p_value <= 0.01 for row in table]
        assert np.mean(false) <= 0.03, kind


def test_a_shift_of_equal_values_is_none_and_one_outlier_hardly_moves_it() -> None:
    def shift(before: Sequence[float], after: Sequence[float]) -> float:
        return level_shift(before, after).shift

    assert level_shift([1.0] * 4, [1.0] * 4).p_value == 1
    flat = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99]
    assert abs(shift(flat, [*flat[:5], 9.0])) < 0.01

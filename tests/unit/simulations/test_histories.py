"""Histories of real benchmarks: what is read of asv's folders and of github-action-benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simulations.benchmark_data import FEWEST, read_histories
from simulations.histories import Marked, report_marked, report_rates


def asv_result(folder: Path, number: int, results: dict[str, object]) -> None:
    document = {
        "date": 1000 * (FEWEST - number),  # the order of names is not the order of commits
        "env_name": "venv-py3.11",
        "result_columns": ["result", "params", "version"],
        "results": results,
    }
    path = folder / "lab" / f"{number:08}-venv-py3.11.json"
    path.write_text(json.dumps(document), encoding="utf-8")


def test_asv_results_become_series_of_commits_by_machine_environment_and_version(
    tmp_path: Path,
) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "benchmarks.json").write_text("{}", encoding="utf-8")
    (tmp_path / "lab" / "machine.json").write_text("{}", encoding="utf-8")
    for number in range(FEWEST):
        asv_result(
            tmp_path,
            number,
            {
                "suite.time_it": [[float(number + 1)], [], "a" * 64],
                "suite.track_it": [[1.0], [], "b" * 64],
                "suite.time_few": [[1.0 if number else None], [], "c" * 64],
                "suite.time_skipped": None,
            },
        )
    found = read_histories(tmp_path)
    assert list(found) == ["lab/venv-py3.11/suite.time_it[0]/aaaaaaaa"]
    assert found.popitem()[1].tolist() == [float(value) for value in range(FEWEST, 0, -1)]


def test_the_script_of_github_action_benchmark_becomes_series(tmp_path: Path) -> None:
    benches = [{"name": "end to end", "value": 2}, {"name": "idle", "value": 0}]
    entries = [{"date": at, "benches": benches} for at in range(FEWEST)]
    file = tmp_path / "data.js"
    document = json.dumps({"entries": {"suite": entries}})
    file.write_text(f"window.BENCHMARK_DATA = {document};\n", encoding="utf-8")
    found = read_histories(file)
    assert list(found) == ["suite/end to end"]  # zeros have no logarithm
    assert found["suite/end to end"].tolist() == [2.0] * FEWEST


def test_reports_are_held_against_marks_within_five(capsys: pytest.CaptureFixture[str]) -> None:
    values = np.ones(FEWEST)
    series = [Marked(name="one", values=values, known=[20, 60], marks=[20, 60])]
    report_marked(series, {"eager": lambda _: [[15, 66, 80]]}, True)
    report_rates({"one": values}, {"eager": lambda _: [[15, 66, 80]]})
    printed = capsys.readouterr().out
    assert "| eager | 1 | 3 | 2 |" in printed
    assert "eager: one: missed [60], false [66, 80]" in printed
    assert "| eager | 3 | 30.0 | 0% |" in printed

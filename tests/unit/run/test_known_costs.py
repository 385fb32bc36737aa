"""`perfrun list --cost`: earlier trials on this machine tell what a method costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.options.store_address import parse_address
from perfrun.probes.machine import machine
from perfrun.run.known_costs import KnownCost, cost_table, known_costs
from tests.summaries import summary, write

HERE = machine()
SYSTEM = {"cpu_model": HERE.cpu_model, "logical_cpu_count": HERE.logical_cpu_count}
CASES = """
from perfrun import Benchmark

class Cases(Benchmark):
    def spin(self):
        "Turn round."

    def never(self):
        pass
"""


def trial(number: int, value: float, elapsed_s: float, **facts: Any) -> dict[str, Any]:
    given = {"system": SYSTEM, "timestamp": 1.7e9 + number, "name": f"t{number}", **facts}
    document = summary(wall_time=value, **given)
    document["perfrun"]["usage"] = {"elapsed_s": elapsed_s}
    return document


def costs(workspace: Path, *names: str) -> dict[str, KnownCost | None]:
    return known_costs(names, workspace, parse_address(None, workspace))


def test_time_noise_and_trials_follow_from_the_newest_trials_of_this_machine(
    tmp_path: Path,
) -> None:
    spin, other = "pkg.cases.Cases.spin", "pkg.cases.Cases.other[3]"
    old = [trial(n, 50.0, 900.0, benchmark_flags=["--big"]) for n in range(5)]
    values = (0.9, 1.0, 1.1, 1.0, 0.95, 1.05)
    new = [trial(10 + n, value, 2.0 + n / 10) for n, value in enumerate(values)]
    elsewhere = [trial(30, 9.0, 99.0, system={"cpu_model": "Another", "logical_cpu_count": 512})]
    one = [trial(40, 1.0, 3.0, method=other)]
    write(tmp_path / "output", *old, *new, *elsewhere, *one)
    found = costs(tmp_path, spin, other, "pkg.cases.Cases.never")
    known = found[spin]
    assert known
    assert (known.trials, known.trial_s) == (6, 2.3)
    assert known.relative_noise == pytest.approx(0.08896, rel=1e-3)  # by the MAD, as a run has it
    assert known.trials_needed == 21  # (1.2533 x 2.0537 x 0.08896 / 0.05)^2
    assert known.time_needed_s == pytest.approx(21 * 2.3)
    few = found[other]
    assert few
    assert (few.trials, few.trial_s, few.relative_noise, few.trials_needed) == (1, 3.0, None, None)
    rows = cost_table(found).rows
    assert rows[0] == (spin, "2.3 s", "8.9 %", "21", "48 s", "6 trials, the last 2023-11-14")
    assert rows[2][1:] == ("-", "-", "-", "-", "never run here")


def test_list_prints_costs_beside_the_methods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cases.py").write_text(CASES)
    words = ["list", str(tmp_path / "cases.py"), f"--workspace={tmp_path / 'w'}", "--cost"]
    assert main([*words, "--format=json"]) == 0
    assert not (tmp_path / "w").exists()
    write(tmp_path / "w" / "output", trial(1, 1.0, 2.0, method="cases.Cases.spin"))
    assert main([*words, "--format=json"]) == 0
    before, after = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["cost"] for one in before["methods"]] == [None, None]
    told = {one["name"]: one["cost"] and one["cost"]["trial_s"] for one in after["methods"]}
    assert told == {"cases.Cases.never": None, "cases.Cases.spin": 2.0}
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["cases.Cases.never", "cases.Cases.spin"]
    assert "never run here" in lines[2]

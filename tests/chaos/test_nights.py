"""Twenty simulated nights with fifteen kinds of faults; `make nights` makes a thousand.

And what the checks after a night find: a check that finds nothing proves nothing.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import nights_checks as checks
import pytest
from nights_plan import Planted, plans

CHAOS = Path(__file__).resolve().parent
RUN = {"run_id": "r", "method": "m", "label": "n", "timestamp": 1.8e9, "status": "passed"}


@pytest.mark.slow
def test_twenty_nights_of_all_kinds_of_faults_lose_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(CHAOS / "nights.py"), "--nights=20", "--seed=98"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("20 nights, seed 98\n")
    assert "killed anywhere: " in done.stdout
    assert ", 0 failed, " in done.stdout.splitlines()[-1]


def test_the_same_seed_plans_the_same_nights() -> None:
    first, second, other = (plans(seed, 60, 10**6, 900) for seed in (7, 7, 8))
    assert first == second
    assert first != other
    assert [one.number for one in first if one.planted] == [40]


def kept(folder: Path, name: str, **facts: Any) -> checks.Kept:
    path = folder / name / "perfzero_summary.json"
    return checks.Kept(path=path, **{**RUN, "trial_id": 1, **facts})


def test_a_trial_without_a_summary_is_found_to_be_lost(tmp_path: Path) -> None:
    summaries = checks.Summaries(tmp_path)
    known = kept(tmp_path, "a")
    summaries.known[known.path] = known
    lines = [{"event": "ended", "folder": str(tmp_path / name), "fate": "ok"} for name in "ab"]
    (lost,) = checks.trials(lines, summaries, "", disk_failed=False)
    assert lost == "lost: no summary of b (ok), and no word of it"
    assert not list(
        checks.trials(lines, summaries, "the summary of x/b: it follows", disk_failed=True)
    )
    (wrong,) = checks.trials([{**lines[0], "fate": "crashed"}], summaries, "", disk_failed=False)
    assert wrong == "a is passed; its worker's end was crashed"


def test_two_results_of_a_trial_are_found(tmp_path: Path) -> None:
    twice = [kept(tmp_path, "a"), kept(tmp_path, "b")]
    assert len(list(checks.nothing_twice(twice))) == 1
    assert not list(checks.nothing_twice([twice[0], kept(tmp_path, "b", status="interrupted")]))


def test_what_retention_keeps_and_is_gone_is_found(tmp_path: Path) -> None:
    summaries = checks.Summaries(tmp_path)
    for day in range(5):
        one = kept(tmp_path, f"t{day}", timestamp=1.8e9 + day * 86400)
        summaries.known[one.path] = one
    old, late = (kept(tmp_path, f"g{day}", timestamp=1.8e9 + day * 86400) for day in (0, 4))
    assert not list(checks.pruned([old], summaries, None, 3))
    assert len(list(checks.pruned([late], summaries, None, 3))) == 1
    change = {"before_execution_id": "g0", "after_execution_id": "t1"}
    assert len(list(checks.pruned([old], summaries, {"changes": [change]}, 3))) == 1


@pytest.mark.parametrize(
    ("is_new", "faults"),
    [((True, False), 0), ((True, True), 1), ((False, False), 1), ((False, True), 1)],
)
def test_a_change_is_to_be_told_as_new_once(is_new: tuple[bool, ...], faults: int) -> None:
    verdicts = checks.Verdicts()
    verdicts.plant(Planted(number=40, method="m0", factor=1.1), date(2026, 2, 13))
    change = {"method": "bench.cases.Cases.m0", "metric": "wall_time", "environment": "e"}
    change |= {"direction": "worse", "night": "2026-02-13", "alarm_night": "2026-02-17"}
    methods = [{"method": "bench.cases.Cases.m0", "environment": "host", "trials": 2}]
    found = []
    for number, new in enumerate(is_new):
        report = {"night": f"n{number}", "methods": methods, "changes": [{**change, "is_new": new}]}
        found += verdicts.night(report)
    assert len(found) == faults
    assert verdicts.delays == {0: 1}
    assert not verdicts.missed()

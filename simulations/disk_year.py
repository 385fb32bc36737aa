"""A year of `simulations.year` as files: summaries, `perfrun index`, `perfrun detect`, a report.

    python -m simulations.year --on_disk=DIR --years=1

Three trials a night, 3 % of them disturbed and 20 % slower, a hundredth of the nights disturbed as
a whole. The swap of the machine is another processor in the summaries; half of the series run on an
accelerator whose driver is updated when the machine comes back from its week off. Both begin new
series, and perfrun learns of both from the summaries alone. A change that lies too near to such a
beginning counts as missed like any other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from overhead.nightreport import night_report
from simulations.year import Year

TRIALS = 3
FIRST = datetime(2025, 1, 1, 23, 0)
_DISTURBED, _DISTURBED_NIGHTS, _SLOWED = 0.03, 0.01, 1.2
_NEAR, _AROUND = 5, 16  # days, as in simulations.year
_BENCHMARK = Path(__file__).resolve().parent.parent / "perfrun" / "benchmark.py"
Row = Mapping[str, Any]


def method(number: int) -> str:
    """Return the name of a series of the suite."""
    return f"suite.cases.Cases.case_{number:03}"


def write_year(year: Year, workspace: Path, seed: int) -> int:
    """Write the summaries; return how many."""
    count = 0
    for document in _documents(year, seed):
        count += 1
        folder = workspace / "output" / str(document["execution_id"])
        folder.mkdir(parents=True)
        (folder / "perfzero_summary.json").write_text(json.dumps(document), encoding="utf-8")
    return count


def _documents(year: Year, seed: int) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng([seed, 9])
    seen: set[int] = set()
    for history, owner, spread in zip(year.histories, year.owners, year.spreads, strict=True):
        processor = "New" if owner in seen else "Old"
        seen.add(owner)
        for value, night in zip(history.values, history.nights, strict=True):
            times = value * np.exp(spread / 2 * generator.standard_normal(TRIALS))
            disturbed = generator.random(TRIALS) < _DISTURBED
            if generator.random() < _DISTURBED_NIGHTS:
                disturbed[:] = True
            times[disturbed] *= _SLOWED
            driver = ("550.54" if night < year.back else "570.86") if owner % 2 else ""
            for trial in range(TRIALS):
                yield summary_of(
                    owner,
                    night,
                    trial,
                    float(times[trial]),
                    bool(disturbed[trial]),
                    processor,
                    driver,
                )


def summary_of(
    owner: int, night: int, trial: int, wall_s: float, disturbed: bool, processor: str, driver: str
) -> dict[str, Any]:
    """Return the summary of a trial."""
    begun = (FIRST + timedelta(days=night)).timestamp()
    gpu = {"accelerator_driver_version": driver, "accelerator_model": "H", "accelerator_count": 1}
    return {
        "execution_id": f"{owner:03}-{night:03}-{trial}",
        "execution_timestamp": begun + 60 * trial + owner,
        "benchmark_result": {
            "name": method(owner),
            "wall_time": wall_s,
            "succeeded": True,
            "extras": [],
            "metrics": [],
            "trial_id": trial + 1,
        },
        "benchmark_info": {"harness_name": "perfrun", "has_exception": False},
        "ml_framework_info": {"name": "none"},
        "system_info": {
            "cpu_model": processor,
            "physical_cpu_count": 8,
            "logical_cpu_count": 16,
            "hostname": "lab",
            **(gpu if driver else {}),
        },
        "process_info": {},
        "perfrun": {
            "schema_version": 2,
            "run_id": f"night-{night:03}",
            "outcome": {"status": "passed"},
            "quality": {"disturbed": disturbed, "grade": "D" if disturbed else "A"},
            "module_sha256": "a" * 64,
            "git": [{"directory": "models", "url": "", "git_hash": f"{night:040x}"}],
        },
    }


def detect_on_disk(year: Year, workspace: Path) -> tuple[list[Row], dict[str, float]]:
    """Run the commands; return the changes and how long each took, in CPU seconds."""
    canary = method(max(year.owners))
    taken: dict[str, float] = {}
    _run(taken, "index", workspace)
    _run(taken, "index", workspace, name="index again")
    found = json.loads(_run(taken, "detect", workspace, f"--canary={canary}"))
    begin = time.process_time()
    _report(year, workspace)
    taken["report"] = time.process_time() - begin
    return found["changes"], taken


def _run(taken: dict[str, float], command: str, workspace: Path, *more: str, name: str = "") -> str:
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, str(_BENCHMARK), command, f"--workspace={workspace}", *more]
    done = subprocess.run([*argv, "--format=json"], capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    taken[name or command] = used
    return done.stdout


def _report(year: Year, workspace: Path) -> str:
    """Return the last night's report, as `perfrun nightly` draws it."""
    last = max(max(history.nights) for history in year.histories)
    return night_report(
        workspace,
        f"night-{last:03}",
        (FIRST + timedelta(days=last)).timestamp(),
        names={method(owner) for owner in year.owners},
        canary=method(max(year.owners)),
    )


def tally(year: Year, rows: list[Row]) -> dict[str, int]:
    """Count the reported changes against those that were made."""
    left = {method(change.series): change for change in year.made}
    counts = dict.fromkeys(("found", "pelt", "false", "false_pelt", "marked", "unmarked"), 0)
    for row in rows:
        first, alarm = (night_number(row[key]) for key in ("night", "alarm_night"))
        change = left.get(row["method"])
        sees = "pelt" in row["detectors"]
        near = change is not None and abs(first - change.night) <= _NEAR
        if change is not None and near and (row["ratio"] > 1) == (change.size > 0):
            counts["found"] += 1
            counts["pelt"] += sees
            del left[row["method"]]
        elif year.slow.start <= alarm <= year.slow.stop + 2 * _AROUND and (
            year.slow.start - _AROUND <= first <= year.slow.stop + _AROUND
        ):
            counts["marked" if row["machine_suspect"] else "unmarked"] += 1
        else:
            counts["false"] += 1
            counts["false_pelt"] += sees
    return counts


def night_number(text: str) -> int:
    """Return the number of a night from its date."""
    return (date.fromisoformat(text) - FIRST.date()).days


def table(year: Year, workspace: Path, nights: int, seed: int) -> str:
    """Write a year, run the commands on it, and return the results as a list."""
    written = write_year(year, workspace, seed)
    rows, taken = detect_on_disk(year, workspace)
    counts = tally(year, rows)
    reported = counts["found"] + counts["false"]
    lines = [
        f"{written} summaries, {len(set(year.owners))} methods, {nights} nights",
        f"recall {counts['found']} of {len(year.made)}",
        f"precision {counts['found']} of {reported}",
        f"false alarms a month {counts['false'] / nights * 30.4:.2f}",
        f"PELT sees {counts['pelt']} of the true and {counts['false_pelt']} of the false",
        f"machine's bad nights: {counts['marked']} marked, {counts['unmarked']} not",
        *(f"{name}: {seconds:.1f} s of CPU" for name, seconds in taken.items()),
    ]
    return "".join(f"- {line}\n" for line in lines)

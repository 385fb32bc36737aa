"""Results of forty nights, with all that a page shows of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.summaries import summary, write

DAY_S = 86400.0
BEGIN_S = 1_790_000_000.0
SLOW = "pkg.cases.Cases.slow"
METHODS = (SLOW, "pkg.cases.Cases.steady", "pkg.cases.Cases.failing")


def results_of(workspace: Path, begin_s: float = BEGIN_S) -> None:
    """Write some older nights, and 40: a step, a new driver, busy nights, failures, pairs."""
    documents = []
    for night in range(-330, 40, 1):
        if -320 < night < 0:
            continue  # what is older than 365 nights counts for changes, and is not drawn
        for method in METHODS:
            is_slower = method == SLOW and night >= 25
            level = (1.2 if is_slower else 1.0) * (1 + 0.004 * (night * 7 % 5 - 2))
            fails = method == METHODS[2] and night in (8, 39)
            documents.append(
                summary(
                    method=method,
                    wall_time=level,
                    metrics={"loss_s": 2 * level, "rate_per_s": 1 / level},
                    name=f"night-{night:03}-{method[-4:]}",
                    timestamp=begin_s + night * DAY_S,
                    run_id=f"run-{night}",
                    status="crashed" if fails else "passed",
                    disturbed=night in (3, 30),
                    commits={"models": f"{night + 400:040x}"},
                    system={"accelerator_driver_version": "570" if night < 12 else "580"},
                )
            )
    documents[-1]["perfrun"]["outcome"] |= {"reason": "exit 3", "stderr_tail": "Traceback"}
    documents[-3]["perfrun"]["series"] = [{"name": "measure", "times_s": [1.0, 1.1, 1.2]}]
    output = write(workspace / "output", *documents)
    log = '{"time": 0.0, "rss": 1}\n{"time": 1.0, "rss": 2}\n'
    (output / f"night-039-slow-{len(documents) - 3}" / "process_info.log").write_text(log)
    pairs = {
        "comparisons": [{"method": SLOW, "metric": "wall_time", "ratio": 1.2, "verdict": "slower"}],
        "trials": [{"method": SLOW, "values": [1.0, 1.2]}] * 3,
    }
    (workspace / "ab").mkdir()
    (workspace / "ab" / "20261101.json").write_text(json.dumps(pairs))

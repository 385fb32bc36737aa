"""How long after a benchmark's death its summary is on disk."""

from __future__ import annotations

from pathlib import Path

from bench.processes import BenchError, PerfrunRun, perfrun
from bench.settings import Settings
from bench.table import Goal, Row, Rule

DEATHS = {  # method -> the outcome it must have
    "sigkill": "crashed",
    "segfault": "crashed",
    "hard_exit": "exited",
    "sys_exit": "exited",
}


def fault_rows(settings: Settings) -> list[Row]:
    """Each way to die, several times, all in one run."""
    methods = [f"deaths.Deaths.{name}" for name in DEATHS]
    run = perfrun(
        settings.scratch / "faults",
        methods,
        f"--benchmark_num_trials={settings.rounds}",
        expected=tuple(DEATHS.values()),
    )
    return [
        Row(
            what=f"{name}: from the death to the summary on disk",
            unit="s",
            values=_delays(run, f"deaths.Deaths.{name}", status),
            goal=Goal(rule=Rule.EVERY_VALUE_AT_MOST, limit=1.0),
        )
        for name, status in DEATHS.items()
    ]


def _delays(run: PerfrunRun, method: str, status: str) -> tuple[float, ...]:
    delays = []
    for found, path, summary in zip(run.statuses, run.paths, run.summaries, strict=True):
        if summary["benchmark_result"]["name"] != method:
            continue
        if found != status:
            raise BenchError(f"{method}: {found}, not {status}")
        delays.append(_delay_s(path))
    return tuple(delays)


def _delay_s(summary: Path) -> float:
    """From the time that the benchmark noted to the rename that made the summary visible.

    A rename sets the file's status change time, in steps of the kernel's clock (1 to 10 ms).
    """
    died_at_ns = int((summary.parent / "died_at").read_text(encoding="ascii"))
    return (summary.stat().st_ctime_ns - died_at_ns) / 1e9

"""Measure what a trial costs beyond its own work: start, further methods, summary after a death."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from overhead.processes import (
    NOOP,
    PERFRUN,
    MeasurementError,
    PerfrunRun,
    Settings,
    finish,
    in_turns,
    perfrun,
    python_s,
    run_argv,
)
from overhead.table import Goal, Row, Rule

TENSORFLOW_NOOP = "tensorflow_noop.Noop.noop"
MANY = 21
DIFFERENT = tuple(f"noops.Noops.noop_{number}" for number in range(MANY))
# 15 unless asked otherwise: starts vary by more than the goals allow.
STARTS_PER_ROUND = 3
# The libraries that perfrun's own process may load; some only when a run needs them.
LIBRARIES = (
    "psutil",
    "git",
    "rich.console, rich.table",
    "pynvml",
    "cpuinfo",
    "requests",
    "absl.flags",
    "docker",
    "scipy.special",
)


def tensorflow_rows(settings: Settings) -> list[Row]:
    """Measure a TensorFlow method that does nothing, and the import that it needs beside it."""
    what = "no-op TensorFlow method, whole process"
    goal = Goal(rule=Rule.RATIO_OF_MEDIANS_AT_MOST, limit=1.05)
    python = settings.tensorflow_python
    if python is None:
        reason = "no --tensorflow-python"
        return [Row(what=what, unit="s", goal=goal, skipped=reason)]
    workspace = settings.scratch / "tensorflow"
    argv = run_argv(workspace, [TENSORFLOW_NOOP], f"--python={python}")
    perfrun(workspace, [TENSORFLOW_NOOP], f"--python={python}")  # raises unless it passes
    own, imports = in_turns(
        STARTS_PER_ROUND * settings.rounds,
        lambda: finish(argv).wall_s,
        lambda: python_s(python, "import tensorflow"),
    )
    return [
        Row(
            what=what,
            unit="s",
            values=own,
            reference="import tensorflow",
            references=imports,
            goal=goal,
        ),
    ]


def noop_rows(settings: Settings) -> list[Row]:
    """Measure perfrun's start, and a method that does nothing: the first, and each further one.

    The same method again is another trial of it, and such a run ends with statistics.
    """
    workspace = settings.scratch / "noop"
    same = [NOOP] * MANY
    for methods in (DIFFERENT, same):  # raises unless all pass
        perfrun(workspace, methods)
    start, version, usage, one, different, repeated = in_turns(
        STARTS_PER_ROUND * settings.rounds,
        lambda: python_s(sys.executable, "pass"),
        lambda: finish([*PERFRUN, "--version"]).wall_s,
        lambda: finish([*PERFRUN, "--help"]).wall_s,
        lambda: finish(run_argv(workspace, [NOOP])).wall_s,
        lambda: finish(run_argv(workspace, DIFFERENT)).wall_s,
        lambda: finish(run_argv(workspace, same)).wall_s,
    )
    further = tuple((b - a) / (MANY - 1) for a, b in zip(one, different, strict=True))
    statistics = tuple(b - a for a, b in zip(different, repeated, strict=True))
    starts = (
        ("perfrun --version, whole process", version, 3),
        ("perfrun --help, whole process", usage, 3),
        ("no-op method without a framework, whole process", one, 12),
        ("each further no-op method", further, 3.5),
    )
    return [
        *(
            Row(
                what=what,
                unit="s",
                values=values,
                reference="python -c pass",
                references=start,
                goal=Goal(rule=Rule.RATIO_AT_MOST, limit=limit),
            )
            for what, values, limit in starts
        ),
        Row(
            what="statistics of repeated trials, once a run",
            unit="s",
            values=statistics,
        ),
    ]


def import_rows(settings: Settings) -> list[Row]:
    """Measure the interpreter's start and the import of perfrun's libraries, for comparison."""
    code = ["pass", *(f"import {name}" for name in LIBRARIES)]
    measures = [_importing(text) for text in code]
    taken = in_turns(settings.rounds, *measures)
    return [
        Row(
            what=f"(yardstick) python -c '{text}'",
            unit="s",
            reference="whole process",
            references=values,
        )
        for text, values in zip(code, taken, strict=True)
    ]


def _importing(code: str) -> Callable[[], float]:
    return lambda: python_s(sys.executable, code)


DEATHS = {  # method -> the outcome it must have
    "sigkill": "crashed",
    "segfault": "crashed",
    "hard_exit": "exited",
    "sys_exit": "exited",
}


def fault_rows(settings: Settings) -> list[Row]:
    """Measure each way in which a process dies, several times, all in one run."""
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
            raise MeasurementError(f"{method}: {found}, not {status}")
        delays.append(_delay_s(path))
    return tuple(delays)


def _delay_s(summary: Path) -> float:
    """Return the seconds from the time that the benchmark wrote to the rename of the summary.

    A rename sets the file's status change time, in steps of the kernel's clock (1 to 10 ms).
    """
    died_at_ns = int((summary.parent / "died_at").read_text(encoding="ascii"))
    return (summary.stat().st_ctime_ns - died_at_ns) / 1e9

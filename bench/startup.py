"""What a trial costs beyond its own work: the runner's start, and each further method."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.processes import NOOP, finish, in_turns, perfrun, perfrun_argv, python_s
from bench.settings import Settings
from bench.table import Goal, Row, Rule

TENSORFLOW_NOOP = "tensorflow_noop.Noop.noop"
MANY = 21
DIFFERENT = tuple(f"noops.Noops.noop_{number}" for number in range(MANY))
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
    """A TensorFlow method that does nothing, against the import that it cannot do without."""
    what = "no-op TensorFlow method, whole process"
    goal = Goal(rule=Rule.RATIO_AT_MOST, limit=1.08)
    python = settings.tensorflow_python
    if python is None:
        reason = "no --tensorflow-python"
        return [Row(what=what, unit="s", goal=goal, skipped=reason)]
    workspace = settings.scratch / "tensorflow"
    argv = perfrun_argv(workspace, [TENSORFLOW_NOOP], f"--python={python}")
    perfrun(workspace, [TENSORFLOW_NOOP], f"--python={python}")  # raises unless it passes
    own, imports = in_turns(
        2 * settings.rounds,  # importing TensorFlow varies by more than the goal allows
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
    """A method that does nothing and needs no framework: the first, and each one after it.

    The same method again is another trial of it: then the run ends with statistics.
    """
    workspace = settings.scratch / "noop"
    same = [NOOP] * MANY
    for methods in (DIFFERENT, same):  # raises unless all pass
        perfrun(workspace, methods)
    one, different, repeated, start = in_turns(
        settings.rounds,
        lambda: finish(perfrun_argv(workspace, [NOOP])).wall_s,
        lambda: finish(perfrun_argv(workspace, DIFFERENT)).wall_s,
        lambda: finish(perfrun_argv(workspace, same)).wall_s,
        lambda: python_s(sys.executable, "pass"),
    )
    further = tuple((b - a) / (MANY - 1) for a, b in zip(one, different, strict=True))
    statistics = tuple(b - a for a, b in zip(different, repeated, strict=True))
    return [
        Row(
            what="no-op method without a framework, whole process",
            unit="s",
            values=one,
            goal=Goal(rule=Rule.VALUE_AT_MOST, limit=0.40),
            reference="python -c pass",
            references=start,
        ),
        Row(
            what="each further no-op method",
            unit="s",
            values=further,
            goal=Goal(rule=Rule.VALUE_AT_MOST, limit=0.10),
            reference="python -c pass",
            references=start,
        ),
        Row(
            what="statistics of repeated trials, once a run",
            unit="s",
            values=statistics,
        ),
    ]


def import_rows(settings: Settings) -> list[Row]:
    """The interpreter's start and what it takes to import perfrun's libraries, as a yardstick."""
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

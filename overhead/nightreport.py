"""Do the work after a night's trials in a process of its own: index, changes, report.

    python -m overhead.nightreport WORKSPACE NIGHT BEGUN

It does what `perfrun nightly` does for a suite of all methods in the index.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from perfrun.nightly.markdown import markdown
from perfrun.nightly.report import MethodReport, NightFigure, NightReport
from perfrun.nightly.suite_changes import change_reports, recent_changes
from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from perfrun.store.query import Selector


def night_report(
    workspace: Path,
    night: str,
    begun: float,
    *,
    names: Iterable[str] | None = None,
    canary: str | None = None,
) -> str:
    """Return the report, as Markdown. `night` labels the trials, which began at `begun`.

    `names` are the suite's methods; unless they are given, those with a trial of the night.
    """
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
        if names is None:
            names = {trial.method for trial in store.trials(Selector(labels=(night,)))}
        methods = tuple(_methods(sorted(names), canary))
        recent = recent_changes(store, methods, night, begun)
    return markdown(
        NightReport(
            night=night,
            suite="bench",
            owner=None,
            begun=begun,
            ended=begun,
            deadline=None,
            commits={},
            methods=methods,
            errors=(),
            notes=(),
            changes=change_reports(recent.rows, methods, night, {}),
        )
    )


def _methods(names: Iterable[str], canary: str | None) -> Iterable[MethodReport]:
    figure = NightFigure(metric="wall_time", median=1.0, unit="s", direction="lower", trials=1)
    for name in names:
        yield MethodReport(
            environment="bench",
            unit="bench",
            method=name,
            owner=None,
            canary=name == canary,
            state="ok",
            why=None,
            asked=1,
            trials=1,
            disturbed=0,
            figures=(figure,),
            failures=(),
        )


if __name__ == "__main__":
    sys.stdout.write(night_report(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))

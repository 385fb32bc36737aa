"""Run the units of a night, one after the other, until they are done or the night must be over."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from perfrun.errors import Interrupted, PerfrunError
from perfrun.nightly.night_state import Nights
from perfrun.nightly.suite import Night, Suite, Unit, UnitDone, units
from perfrun.nightly.suite_file import plan_of
from perfrun.options.plan import RunPlan
from perfrun.run.interruption import Interruption
from perfrun.run.journal import complete
from perfrun.run.progress import Screen
from perfrun.run.runner import run
from perfrun.shown import block
from perfrun.summary.document import Status
from perfrun.summary.estimates import RunResult
from perfrun.summary.record import BadSummary, read_record

DEADLINE = "deadline"  # the reason for ending a method


class Units:
    """The runs of one night. `night` holds the results so far, as on disk.

    `interruption` belongs to the night: a signal in the last steps of a run, which lets that run
    end, ends the night before the next run.
    """

    def __init__(
        self,
        suite: Suite,
        nights: Nights,
        night: Night,
        screen: Screen,
        interruption: Interruption,
        *,
        resumed: bool,
    ) -> None:
        self._suite, self._nights, self._screen = suite, nights, screen
        self.night = night
        self._resumed = resumed
        self._interruption = interruption

    def run(self) -> None:
        """Run the units that are not done. Raises Interrupted when a signal ends the night."""
        resumed = self._resumed
        for unit in units(self._suite):
            if unit.name in self.night.units:
                continue
            self._interruption.check()
            if self._is_over():
                done = UnitDone()
            else:
                self._screen.note(f"{self.night.night}: {unit.title}")
                done = self._unit(unit, resume=resumed)
            resumed = False  # only the first unit that is not done can have begun
            self.night = self.night.with_unit(unit.name, done, _commits(done.summaries))
            self._nights.save(self.night)
        self._interruption.check()

    def _is_over(self) -> bool:
        return self.night.deadline is not None and self.night.deadline <= time.time()

    def _unit(self, unit: Unit, *, resume: bool) -> UnitDone:
        try:
            with self._interruption.allowed():
                plan = replace(plan_of(self._suite, unit, self.night), resume=resume)
                report = complete(plan.workspace / "runs", plan) if resume else None
            if report is not None:  # killed between the run's end and the night's record of it
                return _from_report(report)
            return self._run(plan)
        except Interrupted:
            raise
        except PerfrunError as error:
            self._interruption.check()  # the signal may be the cause: child processes get it, too
            return UnitDone(error=str(error))
        except Exception as error:  # the other runs of the night go on
            self._interruption.check()
            return UnitDone(error=self._internal(unit, error))

    def _run(self, plan: RunPlan) -> UnitDone:
        if self._is_over():  # planning took the rest of the time
            return UnitDone()
        limited = plan
        budget_s = plan.repetition.time_budget_s
        if self.night.deadline is not None:
            left_s = max(0.0, self.night.deadline - time.time())
            rules = replace(plan.repetition, time_budget_s=min(left_s, budget_s or left_s))
            limited = replace(plan, repetition=rules)
        is_ours = limited.repetition.time_budget_s != budget_s
        with self._interruption.until(self.night.deadline):
            try:
                result = run(limited, self._screen, self._interruption)
            except Interrupted:
                self._interruption.check()
                return UnitDone()
        if result.interrupted:
            self._interruption.check()
        return _done(result, deadline=is_ours)

    def _internal(self, unit: Unit, error: Exception) -> str:
        path = self._nights.folder_of(self.night) / f"error-{unit.name.replace('#', '-')}.log"
        with suppress(OSError):
            path.write_text(block(traceback.format_exc()), encoding="utf-8")
        return f"internal error: {type(error).__name__}: {error}; the log is in {path}"


def _done(result: RunResult, *, deadline: bool) -> UnitDone:
    ours = ("time_budget", "interrupted") if deadline else ("interrupted",)
    return UnitDone(
        summaries=tuple(
            trial.summary for trial in result.trials if trial.status is not Status.INTERRUPTED
        ),
        stopped_by={
            method.name: DEADLINE if method.stopped_by in ours else method.stopped_by
            for method in result.methods
        },
    )


def _from_report(path: Path) -> UnitDone:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return UnitDone(
            summaries=tuple(
                trial["summary"] for trial in report["results"] if trial["status"] != "interrupted"
            ),
            stopped_by={method["name"]: method["stopped_by"] for method in report["methods"]},
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return UnitDone(error=f"{path}: cannot be read: {error}")


def _commits(summaries: tuple[str, ...]) -> Mapping[str, str]:
    """Return the commits of a run's checkouts, from the first summary that can be read."""
    for path in summaries:
        with suppress(OSError, BadSummary):
            return read_record(Path(path)).commits
    return {}

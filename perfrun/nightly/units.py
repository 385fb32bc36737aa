"""Run the units of a night, one after the other, until they are done or the night must be over."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from perfrun.document import Status
from perfrun.errors import Interrupted, PerfrunError
from perfrun.interruption import Interruption
from perfrun.journal import complete
from perfrun.nightly.state import Nights
from perfrun.nightly.suite import Night, Suite, Unit, UnitDone, units
from perfrun.nightly.suite_file import plan_of
from perfrun.plan import RunPlan
from perfrun.results import RunResult
from perfrun.runner import run
from perfrun.screen import Screen

DEADLINE = "deadline"  # why a method has no more trials


class Alarm:
    """Ends the run in progress at a time: with SIGTERM, as its user would.

    What the trial has measured until then is written, as interrupted.
    """

    def __init__(self, at: float | None) -> None:
        self.fired = False
        left_s = None if at is None else max(0.0, at - time.time())
        self._timer = None if left_s is None else threading.Timer(left_s, self._fire)

    def __enter__(self) -> Alarm:
        if self._timer:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer.join()

    def _fire(self) -> None:
        self.fired = True
        os.kill(os.getpid(), signal.SIGTERM)


class Units:
    """The runs of one night. `night` is what has been done so far, as on disk."""

    def __init__(
        self, suite: Suite, nights: Nights, night: Night, screen: Screen, *, resumed: bool
    ) -> None:
        self._suite, self._nights, self._screen = suite, nights, screen
        self.night = night
        self._resumed = resumed
        self._interruption = Interruption()

    def run(self) -> None:
        """Run what is not done yet. Raises Interrupted when somebody asks the night to stop."""
        self._interruption.install()
        resumed = self._resumed
        for unit in units(self._suite):
            if unit.name in self.night.units:
                continue
            if self._interruption.asked:
                raise Interrupted("interrupted")
            if self._is_over():
                done = UnitDone()
            else:
                self._screen.note(f"{self.night.night}: {unit.name}")
                done = self._unit(unit, resume=resumed)
            resumed = False  # only the first that is not done can have been begun
            self.night = self.night.with_unit(unit.name, done, _commits(done.summaries))
            self._nights.save(self.night)

    def _is_over(self) -> bool:
        return self.night.deadline is not None and self.night.deadline <= time.time()

    def _unit(self, unit: Unit, *, resume: bool) -> UnitDone:
        try:
            plan = replace(plan_of(self._suite, unit, self.night), resume=resume)
            report = complete(plan.workspace / "runs", plan) if resume else None
            if report is not None:  # killed between the run's end and our note of it
                return _from_report(report)
            return self._run(plan)
        except Interrupted:
            raise
        except PerfrunError as error:
            return UnitDone(error=str(error))
        except Exception as error:  # one run that perfrun cannot do is not the end of the night
            return UnitDone(error=self._internal(unit, error))
        finally:
            self._interruption.install()

    def _run(self, plan: RunPlan) -> UnitDone:
        limited = plan
        budget_s = plan.repetition.time_budget_s
        if self.night.deadline is not None:
            left_s = max(0.0, self.night.deadline - time.time())
            rules = replace(plan.repetition, time_budget_s=min(left_s, budget_s or left_s))
            limited = replace(plan, repetition=rules)
        is_ours = limited.repetition.time_budget_s != budget_s
        with Alarm(self.night.deadline) as alarm:
            try:
                result = run(limited, self._screen)
            except Interrupted:
                if not alarm.fired:
                    raise
                return UnitDone()
        if result.interrupted and not alarm.fired:
            raise Interrupted("interrupted")
        return _done(result, deadline=is_ours)

    def _internal(self, unit: Unit, error: Exception) -> str:
        path = self._nights.folder_of(self.night) / f"error-{unit.name.replace('#', '-')}.log"
        with suppress(OSError):
            path.write_text(traceback.format_exc(), encoding="utf-8")
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
    except (OSError, ValueError, KeyError) as error:
        return UnitDone(error=f"{path}: cannot be read: {error}")


def _commits(summaries: tuple[str, ...]) -> Mapping[str, str]:
    """The commits that the checkouts of a run were at, from the first summary that tells."""
    for path in summaries:
        with suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            checkouts = document["benchmark_info"]["site_package_info"]
            return {name: info["hash"] for name, info in checkouts.items() if info.get("hash")}
    return {}

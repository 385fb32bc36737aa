"""`--baseline=NAME` of a run: compare its results with a baseline when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfrun.compare import baselines
from perfrun.compare.selection import Results
from perfrun.errors import UsageError
from perfrun.options.parsers import shown
from perfrun.options.plan import RunPlan
from perfrun.shown import say, write_lines
from perfrun.summary.estimates import RunResult
from perfrun.summary.record import SummaryRecord, read_record

if TYPE_CHECKING:
    from perfrun.compare.command import CompareResult


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The comparison of a run with its baseline, or why there is none."""

    name: str
    result: CompareResult | None
    why_not: str = ""

    @property
    def status(self) -> int:
        """The exit status of `perfrun compare`: 1 when something is slower, 2 without an answer."""
        from perfrun.compare.command import status_of

        return UsageError.exit_code if self.result is None else status_of(self.result)

    @property
    def document(self) -> Mapping[str, Any]:
        """The document of `perfrun compare`, with the baseline's name."""
        from perfrun.compare.command import document_of

        found = {} if self.result is None else document_of(self.result)
        return {"name": self.name, "error": self.why_not or None, **found}

    def show(self) -> None:
        """Print the table of `perfrun compare`, or one line on standard error."""
        from perfrun.compare.command import show_compared

        if self.result is None:
            say(f"not compared with baseline {self.name}: {self.why_not}")
            return
        write_lines(["", f"base is baseline {self.name}, new is this run"])
        show_compared(self.result)


def make_judge(plan: RunPlan) -> Callable[[RunResult], Compared]:
    """Read the plan's baseline; return what compares a run with it.

    Raises UsageError, before anything runs, when there is no such baseline, or when it has none of
    the methods.
    """
    name = plan.baseline or ""
    baselines.named(plan.workspace, name)  # its error names the nearest one
    base = Results(plan.workspace, say, plan.store).select(f"baseline:{name}")
    known = {record.method for record in base}
    exact = [f"{one.module}.{one.class_name}.{one.method}" for one in plan.selectors if one.method]
    if exact and len(exact) == len(plan.selectors) and known.isdisjoint(exact):
        raise UsageError(f"--baseline={shown(name)}: it has no trial of {', '.join(exact[:3])}")

    def judge(result: RunResult) -> Compared:
        from perfrun.compare.command import compare_sets  # numpy and scipy, when trials are over

        try:
            new = _records(result)
            methods = {record.method for record in new}
            ours = [record for record in base if record.method in methods]
            return Compared(name=name, result=compare_sets(ours, new))
        except UsageError as error:
            return Compared(name=name, result=None, why_not=error.line)

    return judge


def _records(result: RunResult) -> Sequence[SummaryRecord]:
    """Read the summaries of a run, those of a resumed part included."""
    found = []
    for trial in result.trials:
        try:
            found.append(read_record(Path(trial.summary)))
        except (OSError, ValueError) as error:
            say(f"{trial.summary} is left out: {error}")
    return found

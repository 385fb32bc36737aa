"""The rounds of a run: each has a trial of every method, and each trial writes its summary.

Trials are the outer loop and methods the inner one, as in PerfZero: a slow drift of the machine
then affects all methods alike. `perfrun.run.schedule` decides which trials a round has.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from perfrun.dataclass import replace
from perfrun.errors import Interrupted
from perfrun.run import environment
from perfrun.run.digest import sha256_of
from perfrun.run.environment import Method
from perfrun.run.journal import LARGEST_BYTES, Journal, Key, UnfinishedRun
from perfrun.run.outcome import read_phase
from perfrun.run.progress import Screen
from perfrun.run.schedule import Schedule, Step
from perfrun.run.trial import Surroundings, TrialSpec, recover_trial, run_trial
from perfrun.store.recorder import IndexRecorder
from perfrun.summary.assemble import RunFacts
from perfrun.summary.document import Order, Status, TrialResult, to_json
from perfrun.summary.estimates import (
    MethodEstimate,
    RunResult,
    estimates,
    observe,
    relative_half_width,
    run_document,
)
from perfrun.summary.result_folder import SUMMARY, ResultFolder, safe_name, write_whole
from perfrun.untrusted import Folder, Refused, read_file

_MANY_METHODS = 200  # all of them enter the estimate of the time left, before each trial


class Rounds:
    """The loop over trials and methods."""

    def __init__(
        self,
        facts: RunFacts,
        methods: tuple[Method, ...],
        around: Surroundings,
        journal: Journal,
        resumed: UnfinishedRun | None,
        screen: Screen,
        seed: int,
        recorder: IndexRecorder | None = None,
    ) -> None:
        self._facts = facts
        self._around = replace(around, once_started=self._settle)
        self._methods = _numbered(methods)
        self._journal, self._screen, self._recorder = journal, screen, recorder
        self._resumed = resumed
        self._results: dict[Key, TrialResult] = {}
        self._unsettled: tuple[Key, TrialResult] | None = None  # may be lost in a power loss
        self._profiles: tuple[TrialResult, ...] = ()
        self._schedule = Schedule(
            tuple(self._methods), facts.plan.num_trials, facts.plan.repetition, seed
        )
        self._begun_s = time.monotonic()
        self._spent_s = 0.0  # of the time budget, before this call
        self._is_own_schedule = True  # a caller that runs one trial after the other has its own
        self.seed = seed

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._facts.run_id

    @property
    def methods(self) -> tuple[str, ...]:
        """Names for `run_one`; a method that was asked for twice has two names."""
        return tuple(self._methods)

    @property
    def commits(self) -> Mapping[str, str]:
        """The commit of each checkout."""
        return {one["directory"]: one["git_hash"] for one in self._facts.checkouts}

    def run(self) -> RunResult:
        """Run all trials that are not finished yet. A signal ends the loop and keeps results."""
        self._begun_s = time.monotonic()
        planned = self._resumed.rounds if self._resumed else ()
        try:
            ended = all(self._round(self._schedule.replay(steps)) for steps in planned)
            while ended and (steps := self._schedule.next_round(self._time_left_s())):
                self._journal.planned(steps)
                ended = self._round(steps)
            ended = ended and self._profile()
        finally:
            self._settle()
        return self.finish(ended=ended)

    @property
    def spent_s(self) -> float:
        """Seconds that trials took which were finished before this run was resumed."""
        return self._spent_s

    def run_one(self, method: str, number: int) -> TrialResult | None:
        """Run one trial for a caller with its own schedule; None when the run is interrupted.

        A trial that the run had finished before it was resumed is not run again.
        """
        self._is_own_schedule = False
        step = Step(method=method, trial_id=number, round=number)
        return self._results[method, number] if self._run_step(step) else None

    def profile_one(self, method: str, number: int, kind: str) -> TrialResult | None:
        """Profile a method whose trial of that number ran, for a caller with its own schedule.

        All rows of the profile are on disk. None when its folder cannot be made.
        """
        from perfrun.run.profiling import profile

        key = (method, number)
        written = partial(self._journal.written, key)
        return profile(
            *(self._facts, self._methods[method], self._results[key], kind),
            *(self._around, self._screen, written),
            all_rows=True,
        )

    def finish(self, *, ended: bool) -> RunResult:
        """Write the run's report and return its result; without `ended`, the run can be resumed."""
        if self._unsettled:
            self._settle()
        result = self._result(interrupted=not ended)
        self._write_report(result)
        if self._recorder:
            self._recorder.finish(lambda: self._around.interruption.asked)
        if ended:
            self._journal.end()
        return result

    def _profile(self) -> bool:
        """Run the trials of `--profile`; False when the run was interrupted."""
        if not self._facts.plan.profiles:
            return True
        from perfrun.run.profiling import run_profiles

        done = run_profiles(
            *(self._facts, self._methods, self._results, self._around, self._screen),
            *(self._journal, self._resumed),
        )
        self._results, self._profiles = dict(done.results), done.profiles
        return done.ended

    def _round(self, steps: Sequence[Step]) -> bool:
        """Run the trials of one round; False when the run was interrupted."""
        return all(self._run_step(step) for step in steps)

    def _run_step(self, step: Step) -> bool:
        if self._around.interruption.asked:
            return False
        key = (step.method, step.trial_id)
        is_finished = self._resumed is not None and key in self._resumed.finished
        if not is_finished and not self._schedule.fits(step, self._time_left_s()):
            return True
        result = self._step(key, step)
        self._results[key] = result
        if self._recorder:  # also a resumed trial: the run may have been killed before this line
            self._recorder.add(Path(result.summary))
        if result.status is Status.INTERRUPTED:
            return False
        self._schedule.note(step, observe(result.document))
        return True

    def _time_left_s(self) -> float | None:
        budget_s = self._facts.plan.repetition.time_budget_s
        if budget_s is None:
            return None
        return budget_s - self._spent_s - (time.monotonic() - self._begun_s)

    def _result(self, *, interrupted: bool) -> RunResult:
        """Return the result; its trials have the order of the command line, not of the shuffle."""
        places = {name: place for place, name in enumerate(self._methods)}
        keys = sorted(self._results, key=lambda key: (key[1], places[key[0]]))
        trials = tuple(self._results[key] for key in keys)
        reasons = {
            self._methods[name].text: reason or ("interrupted" if interrupted else None)
            for name, reason in self._schedule.stopped_by().items()
        }
        return RunResult(
            trials=trials,
            interrupted=interrupted,
            methods=self._estimates(trials, reasons),
            seed=self._schedule.seed,
            profiles=self._profiles,
            setup_s=self._facts.setup_s,
        )

    def _estimates(
        self, trials: Sequence[TrialResult], reasons: Mapping[str, str | None]
    ) -> tuple[MethodEstimate, ...]:
        """Return statistics of the methods; a broken numpy or scipy costs only these."""
        sequential = self._facts.plan.repetition.precision is not None
        try:
            return estimates(trials, reasons, sequential=sequential)
        except ImportError as error:
            self._screen.problem(f"no statistics over the trials: {error}")
            return ()

    def _write_report(self, result: RunResult) -> None:
        path = self._journal.report
        document = {"run_id": self._facts.run_id, **run_document(result)}
        try:
            write_whole(path, to_json(document))
        except OSError as error:
            self._screen.problem(f"{path} could not be written: {error.strerror}")

    def _step(self, key: Key, step: Step) -> TrialResult:
        method = self._methods[key[0]]
        order = Order(
            seed=self._schedule.seed,
            position=len(self._results) + 1,
            round=step.round,
            rerun_of=step.rerun_of,
        )
        done = self._from_resumed(key, method, order)
        if done:
            self._spent_s += observe(done.document).cost_s
            return done
        total = self._schedule.total
        folder = self._around.storage.new_folder(self._execution_id(key, method, total))
        self._screen.outlook(
            left_s=self._left_s(),
            half_width=self._half_width(key[0]),
            phase=partial(read_phase, folder.private),
        )
        self._screen.trial_started(order.position, total, method.text, key[1])
        self._journal.started(key, folder.path)
        spec = self._spec(key, method, folder, order)
        begun_s = time.monotonic()
        result = self._finish(key, run_trial(self._facts, spec, self._around))
        spent_s = time.monotonic() - begun_s - observe(result.document).cost_s
        return replace(result, closing_s=max(0.0, spent_s))

    def _left_s(self) -> float | None:
        """Return the time that is probably left; of very many methods only for who watches."""
        is_cheap = len(self._methods) <= _MANY_METHODS or self._screen.is_live
        if not self._is_own_schedule or not is_cheap:
            return None
        return self._schedule.left_s(self._time_left_s())

    def _half_width(self, name: str) -> float | None:
        """Return half the width of the interval so far, relative, for somebody who watches."""
        is_shown = self._screen.is_live and self._is_own_schedule
        values = self._schedule.values(name) if is_shown else ()
        if len(values) < 2:
            return None
        try:
            return relative_half_width(
                values, sequential=self._facts.plan.repetition.precision is not None
            )
        except ImportError:  # said when the run ends
            return None

    def _finish(self, key: Key, result: TrialResult) -> TrialResult:
        if self._unsettled:  # its successor did not start
            self._settle()
        self._unsettled = (key, result)
        if self._facts.plan.upload_methods or self._facts.plan.store:
            self._settle()  # what others are told is not lost here
        result = self._upload(key, result)
        self._screen.trial_finished(result)
        return result

    def _settle(self) -> None:
        """Make the trial that has ended survive a power loss; then it is finished.

        The order is: the summary's content, its name, the names of its folders, the journal's
        line. The content is on disk since it was written. The rest waits for the disk a few times,
        so it is done while the next worker starts.
        """
        self._around.storage.settle()
        (key, result), self._unsettled = self._unsettled or (None, None), None
        if key is None or result is None:
            self._journal.settle()
        elif result.status is not Status.INTERRUPTED and Path(result.summary).exists():
            self._journal.finished(key, Path(result.summary))

    def _execution_id(self, key: Key, method: Method, total: int | None) -> str:
        """Return the trial's id: PerfZero's, the local time, or one made from `--execution_id`."""
        given = self._facts.plan.execution_id
        if given is None:
            return datetime.now().strftime("%Y-%m-%d-%H-%M-%S-%f")
        if total == 1 and key[1] == 1:
            return given
        return safe_name(f"{given}.{method.class_name}.{method.name}.{key[1]}")

    def _from_resumed(self, key: Key, method: Method, order: Order) -> TrialResult | None:
        """Return the trial's result in the run that is resumed, if there is one."""
        if self._resumed is None:
            return None
        if key in self._resumed.finished:
            return self._read_result(self._resumed.finished[key], method, key)
        folder = self._resumed.started.get(key)
        if folder is None or not folder.is_dir():
            return None
        written = folder / SUMMARY
        if os.path.lexists(written):
            result = self._read_result(written, method, key)
            finished = result is not None and result.status is not Status.INTERRUPTED
            return self._finish(key, result) if result and finished else None
        spec = self._spec(key, method, ResultFolder(folder), order)
        recovered = recover_trial(self._facts, spec, self._around)
        return self._finish(key, recovered[0]) if recovered and recovered[1] else None

    def _spec(self, key: Key, method: Method, folder: ResultFolder, order: Order) -> TrialSpec:
        return TrialSpec(
            method=method,
            trial_id=key[1],
            folder=folder,
            order=order,
            announce=partial(self._journal.written, key),
        )

    def _read_result(self, path: Path, method: Method, key: Key) -> TrialResult | None:
        """Read a trial of the run that is resumed; None for what that run did not write.

        A benchmark that kills perfrun can leave a summary of its own making. It is set aside, where
        nobody takes it for a result, and the trial runs again.
        """
        assert self._resumed is not None
        try:
            content = read_file(path, LARGEST_BYTES)
            if not self._resumed.knows(key, sha256_of(content)):
                raise Refused("this run did not write it")
            document = json.loads(content)
            status = Status(document["perfrun"]["outcome"]["status"])
        except FileNotFoundError:
            return None  # removed since then: the trial runs again
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            self._screen.problem(f"{path} does not count: {error}; the trial runs again")
            _set_aside(path)
            return None
        return TrialResult(
            name=method.text, trial_id=key[1], status=status, summary=str(path), document=document
        )

    def _upload(self, key: Key, result: TrialResult) -> TrialResult:
        """Call the upload functions once the summary is on disk, and add their failures to it."""
        plan = self._facts.plan
        if not plan.upload_methods:
            return result
        path = Path(result.summary)
        functions = plan.upload_methods
        try:
            with self._around.interruption.allowed():  # a server may take long
                launcher, paths = self._around.launcher, self._around.paths
                answers = environment.upload(launcher, functions, path, paths)
        except Interrupted as error:
            answers = [{"method": name, "error": str(error)} for name in functions]
        for answer in answers:
            if answer["error"]:
                self._screen.problem(f"upload {answer['method']} failed: {answer['error']}")
        perfrun = {**result.document["perfrun"], "uploads": answers}
        document = {**result.document, "perfrun": perfrun}
        text = to_json(document)
        self._journal.rewritten(key, text)
        try:
            ResultFolder(path.parent).write(path.name, text)
        except OSError as error:
            self._screen.problem(f"{path}: the uploads could not be noted: {error}")
        return replace(result, document=document)


def _set_aside(path: Path) -> None:
    """Give a summary another name, which no reader of summaries looks for."""
    with contextlib.suppress(OSError, Refused), Folder(path.parent) as folder:
        folder.move_away(path.name)


def _numbered(methods: tuple[Method, ...]) -> dict[str, Method]:
    """Return the methods by name; one that is asked for twice, and runs twice, has two names."""
    seen: dict[str, int] = {}
    numbered = {}
    for method in methods:
        copy = seen[method.text] = seen.get(method.text, 0) + 1
        numbered[method.text if copy == 1 else f"{method.text}#{copy}"] = method
    return numbered

"""The rounds of a run: trials outside, methods inside, a summary on disk after each.

Trials are the outer loop and methods the inner one, as in PerfZero: slow drift of the machine then
falls on all methods alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from perfrun import environment
from perfrun.document import Status, TrialResult, to_json
from perfrun.environment import Method
from perfrun.errors import Interrupted
from perfrun.journal import Journal, Key, Past
from perfrun.storage import ResultFolder, safe_name, write_whole
from perfrun.summary import RunFacts
from perfrun.trial import Surroundings, TrialSpec, recover_trial, run_trial


class Screen(Protocol):
    """What a run shows while it goes on."""

    def prepare(self) -> None:
        """Load what showing needs, while there is time."""

    def note(self, text: str) -> None:
        """One line about what happens."""

    def trial_started(self, number: int, total: int, method: str, trial_id: int) -> None:
        """A trial begins."""

    def stdout(self, text: str) -> None:
        """The benchmark printed something."""

    def stderr(self, text: str) -> None:
        """The benchmark printed something to its standard error."""

    def trial_finished(self, result: TrialResult) -> None:
        """A trial has ended, and its summary is on disk."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """All trials of a run, those of an earlier, resumed part included."""

    trials: tuple[TrialResult, ...]
    interrupted: bool


class Rounds:
    """The loop over trials and methods."""

    def __init__(
        self,
        facts: RunFacts,
        methods: tuple[Method, ...],
        around: Surroundings,
        journal: Journal,
        past: Past | None,
        screen: Screen,
    ) -> None:
        self._facts, self._methods, self._around = facts, methods, around
        self._journal, self._screen = journal, screen
        self._past = past
        self._results: list[TrialResult] = []

    def run(self) -> RunResult:
        """Run what is not finished yet. A signal ends the loop, not what was measured."""
        plan = self._facts.plan
        steps = [
            (trial_id, method, copy)
            for trial_id in range(1, plan.num_trials + 1)
            for method, copy in _numbered(self._methods)
        ]
        for number, (trial_id, method, copy) in enumerate(steps, start=1):
            if self._around.interruption.asked:
                return RunResult(trials=tuple(self._results), interrupted=True)
            key = (method.text if copy == 1 else f"{method.text}#{copy}", trial_id)
            self._results.append(self._step(key, method, number, len(steps)))
        if self._results and self._results[-1].status is Status.INTERRUPTED:
            return RunResult(trials=tuple(self._results), interrupted=True)
        self._journal.end()
        return RunResult(trials=tuple(self._results), interrupted=False)

    def _step(self, key: Key, method: Method, number: int, total: int) -> TrialResult:
        done = self._from_past(key, method)
        if done:
            return done
        self._screen.trial_started(number, total, method.text, key[1])
        folder = self._around.storage.new_folder(self._execution_id(key, method, total))
        self._journal.started(key, folder.path)
        spec = TrialSpec(method=method, trial_id=key[1], folder=folder)
        return self._finish(key, run_trial(self._facts, spec, self._around))

    def _finish(self, key: Key, result: TrialResult) -> TrialResult:
        if result.status is not Status.INTERRUPTED:
            self._journal.finished(key, Path(result.summary))
        result = self._upload(result)
        self._screen.trial_finished(result)
        return result

    def _execution_id(self, key: Key, method: Method, total: int) -> str:
        """PerfZero's id is the local time. A given one is made different for each trial."""
        given = self._facts.plan.execution_id
        if given is None:
            return datetime.now().strftime("%Y-%m-%d-%H-%M-%S-%f")
        if total == 1:
            return given
        return safe_name(f"{given}.{method.class_name}.{method.name}.{key[1]}")

    def _from_past(self, key: Key, method: Method) -> TrialResult | None:
        """Return the trial's result from the run that is being resumed, if it has one."""
        if self._past is None:
            return None
        if key in self._past.finished:
            return _read_result(self._past.finished[key], method, key[1])
        folder = self._past.started.get(key)
        if folder is None or not folder.is_dir():
            return None
        written = folder / "perfzero_summary.json"
        if written.exists():
            result = _read_result(written, method, key[1])
            finished = result is not None and result.status is not Status.INTERRUPTED
            return self._finish(key, result) if result and finished else None
        spec = TrialSpec(
            method=method,
            trial_id=key[1],
            folder=ResultFolder(folder, rescued=False),
        )
        recovered = recover_trial(self._facts, spec, self._around.storage)
        return self._finish(key, recovered[0]) if recovered and recovered[1] else None

    def _upload(self, result: TrialResult) -> TrialResult:
        """Call the upload functions, after the summary is safe, and note their failures in it."""
        plan = self._facts.plan
        if not plan.upload_methods:
            return result
        path = Path(result.summary)
        functions = plan.upload_methods
        try:
            with self._around.interruption.allowed():  # a server may keep us waiting
                launcher, paths = self._around.launcher, self._around.paths
                answers = environment.upload(launcher, functions, path, paths)
        except Interrupted as error:
            answers = [{"method": name, "error": str(error)} for name in functions]
        for answer in answers:
            if answer["error"]:
                self._screen.note(f"upload {answer['method']} failed: {answer['error']}")
        perfrun = {**result.document["perfrun"], "uploads": answers}
        document = {**result.document, "perfrun": perfrun}
        try:
            write_whole(path, to_json(document))
        except OSError as error:
            self._screen.note(f"{path}: the uploads could not be noted: {error}")
        return replace(result, document=document)


def _read_result(path: Path, method: Method, trial_id: int) -> TrialResult | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        status = Status(document["perfrun"]["outcome"]["status"])
    except (OSError, ValueError, KeyError):
        return None  # gone or broken since: the trial runs again
    return TrialResult(
        name=method.text, trial_id=trial_id, status=status, summary=str(path), document=document
    )


def _numbered(methods: tuple[Method, ...]) -> list[tuple[Method, int]]:
    """Tell apart a method that is asked for more than once: PerfZero runs it so often."""
    seen: dict[str, int] = {}
    numbered = []
    for method in methods:
        seen[method.text] = seen.get(method.text, 0) + 1
        numbered.append((method, seen[method.text]))
    return numbered

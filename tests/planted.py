"""A trial whose worker leaves exactly the files that a test wants, judged as every trial is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exits import ENDED
from worlds import World, strict

from perfrun.launchers.launcher import Exit
from perfrun.options.command_line import parse
from perfrun.probes.machine import machine
from perfrun.run.environment import Method, Paths
from perfrun.run.interruption import Interruption
from perfrun.run.trial import Surroundings, TrialSpec, run_trial
from perfrun.summary.assemble import RunFacts
from perfrun.summary.document import Environment
from perfrun.summary.record import SummaryRecord, read_record
from perfrun.summary.result_folder import Storage

CASES = """
class Cases(Benchmark):
    def measures(self):
        self.measure(lambda: sum(range(1000)), name="sums", max_time_s=0.05, min_time_s=0.01,
            metrics=[{"name": "accuracy", "value": 0.5, "min_value": 0.1}], extras={"a": "text"})
        self.report_benchmark(wall_time=0.25, extras={"number": 2})
"""


class Planted:
    """A launcher whose worker has ended already, and has left these files."""

    name = "--python=planted"
    pid = None
    own_cgroup = False

    def __init__(self, files: Mapping[str, bytes], end: Exit) -> None:
        self._files, self._end = files, end

    def start(self, order: Mapping[str, Any], folder: Path, private: Path) -> Planted:
        for name, content in self._files.items():
            (folder / name).write_bytes(content)
        return self

    def wait(self, timeout_s: float | None) -> Exit:
        return self._end

    def stop(self, why: str) -> None:
        """It has ended."""

    def kill(self) -> None:
        """It has ended."""

    def close(self) -> Mapping[str, Any]:
        return {}


class Bench:
    """A workspace in which planted trials are judged, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.notes: list[str] = []
        plan = parse([f"--workspace={folder}", "--benchmark_methods=pkg.cases.Cases.measures"])
        self._facts = RunFacts(
            plan=plan,
            run_id="run",
            machine=machine(),
            environment=Environment(python={"version": "3.11.2"}),
            harness_info={},
            env_vars={},
            setup_info={},
        )
        self._storage = Storage(plan.output, "run", self.notes.append)

    def judged(self, files: Mapping[str, bytes], end: Exit = ENDED) -> Judged:
        """Run a trial that leaves these files; names are relative to its folder."""
        launcher: Any = Planted(files, end)
        around = Surroundings(
            launcher=launcher,
            paths=Paths(),
            storage=self._storage,
            streams=(str, str),
            interruption=Interruption(),
        )
        method = Method(
            text="pkg.cases.Cases.measures", module="pkg.cases", class_name="Cases", name="measures"
        )
        spec = TrialSpec(method=method, trial_id=1, folder=self._storage.new_folder("trial"))
        result = run_trial(self._facts, spec, around)
        return Judged(Path(result.summary))


class Judged:
    """The summary of a planted trial: strict JSON on disk, which every reader takes."""

    def __init__(self, path: Path) -> None:
        self.document = strict(path.read_text(encoding="ascii"))
        self.record: SummaryRecord = read_record(path)
        self.own: dict[str, Any] = self.document["perfrun"]

    @property
    def status(self) -> str:
        return self.record.status.value

    @property
    def notes(self) -> str:
        notes: list[str] = self.own["notes"]
        assert all(len(note) <= 300 and "\n" not in note for note in notes)
        assert len(notes) <= 60
        return "\n".join(notes)


def real_files(folder: Path) -> dict[str, bytes]:
    """What a real worker leaves in its folder, after a measurement and two reports."""
    world = World(folder)
    world.write(CASES)
    done = world.run("--format=json", methods="pkg.cases.Cases.measures")
    assert (done.code, done.statuses) == (0, ["passed"]), done.stderr
    trial = Path(done.results[0]["summary"]).parent
    files = {}
    for pattern in ("proto_*", "perfrun/*"):
        for path in trial.glob(pattern):
            files[path.relative_to(trial).as_posix()] = path.read_bytes()
    assert {"perfrun/outcome.json", "perfrun/series_1.json", "perfrun/series_1.rows"} <= set(files)
    assert json.loads(files["perfrun/outcome.json"])["complete"] is True
    return files

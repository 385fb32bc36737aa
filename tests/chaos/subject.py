"""A small run of perfrun that faults are made in, and what must hold after each of them.

The run has two methods that do nothing. It is carried out by a fork of this process, in which
perfrun is imported already: a fault costs half a second then, and none of them is spent on the
imports of Python.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 180.0  # for one run; what takes longer hangs
_END_S = 30.0  # for the workers of a killed harness to end
SOURCE = """
import os, signal, time
from perfrun import Benchmark

def harness_pid():
    with open("/proc/%d/stat" % os.getppid()) as file:  # of the guard, the harness's child
        return int(file.read().rpartition(")")[2].split()[1])

class Two(Benchmark):
    def first(self):
        self.report_benchmark(wall_time=1.0)

    def last(self):
        armed = {armed!r}
        if os.path.exists(armed):  # this trial is cut short once
            os.unlink(armed)
            os.kill(harness_pid(), signal.SIGKILL)
            time.sleep(60)
        self.report_benchmark(wall_time=2.0)
"""
# The last two end a run in good order, but for the moments before and after it.
_KILLED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP)
METHODS = ("pkg.cases.Two.first", "pkg.cases.Two.last")


@dataclass(frozen=True)
class Ended:
    """How a perfrun ended, and what it printed."""

    code: int  # minus the signal that ended it
    out: str
    err: str
    hung: bool = False

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of `--format=json`; none when the document is not whole."""
        try:
            return list(json.loads(self.out)["results"])
        except (ValueError, KeyError, TypeError):
            return []


Watch = Callable[[int], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Started:
    """A run that goes on."""

    pid: int
    out: Path
    err: Path

    def end(self, watched: Watch | None = None) -> Ended:
        """Wait for its end; one that was started with `stop` goes on within `watched`."""
        if watched is None:
            code, hung = _wait(self.pid)
        else:
            os.waitpid(self.pid, os.WUNTRACED)
            with watched(self.pid):
                os.kill(self.pid, signal.SIGCONT)
                code, hung = _wait(self.pid)
        said = [path.read_text("utf-8", "backslashreplace") for path in (self.out, self.err)]
        return Ended(code, *said, hung=hung)


@dataclass(frozen=True)
class Subject:
    """A folder with the two methods and a workspace."""

    folder: Path
    name: str  # of the scenario
    more: tuple[str, ...] = ()  # flags of each run
    store: str | None = None  # `--store` of each run, and the index that is looked at
    settings: Mapping[str, str] = field(default_factory=dict)  # environment variables
    set_up: Callable[[], None] = lambda: None  # within the run's process, before it begins
    takes_internal_errors: bool = True  # False where no fault is the harness's own
    harms_trials: bool = False  # one may fail, and the harness be killed before it says so
    template: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", self.folder / "template")

    @property
    def workspace(self) -> Path:
        return self.folder / "ws"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def words(self, *more: str) -> list[str]:
        """The command line of the run."""
        return [
            f"--workspace={self.workspace}",
            f"--python_path={self.folder / 'code'}",
            f"--benchmark_methods={','.join(METHODS)}",
            "--format=json",
            *self.flags,
            *self.more,
            *([f"--store={self.store}"] if self.store else []),
            *more,
        ]

    @property
    def flags(self) -> list[str]:
        return ["--resume"] if self.name == "resume" else []

    def prepare(self) -> None:
        """Write the methods, and keep the workspace that each fault begins with."""
        package = self.folder / "code" / "pkg"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        armed = self.folder / "armed"
        (package / "cases.py").write_text(SOURCE.format(armed=str(armed)), encoding="utf-8")
        self.temporary.mkdir(exist_ok=True)
        if self.name == "index":
            self.indexed()
        if self.name == "resume":
            armed.touch()
            assert self.run().code == -signal.SIGKILL
        if self.workspace.exists():
            shutil.copytree(self.workspace, self.template)

    def restore(self) -> None:
        """Put the workspace back in the state in which a run begins."""
        for path in (self.workspace, self.temporary):
            shutil.rmtree(path, ignore_errors=True)
        self.temporary.mkdir()
        if self.template.exists():
            shutil.copytree(self.template, self.workspace)

    def run(self, *more: str, watched: Watch | None = None) -> Ended:
        """Run to the end; `watched` gets the pid before anything happens."""
        return self.start(*more, stop=watched is not None).end(watched)

    def start(self, *more: str, stop: bool = False, tag: str = "") -> Started:
        """Start a run; with `stop` it waits for SIGCONT before it does anything."""
        return self.start_words(self.words(*more), stop=stop, tag=tag)

    def start_words(self, words: Sequence[str], *, stop: bool = False, tag: str = "") -> Started:
        """Start any command of perfrun."""
        out, err = self.folder / f"stdout{tag}", self.folder / f"stderr{tag}"
        pid = os.fork()
        if pid == 0:
            _become_perfrun(self, words, out, err, stop=stop)
        return Started(pid, out, err)

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Wait for a run that is a process of its own."""
        hung = False
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            (out, err), hung = process.communicate(), True
        said = [text.decode("utf-8", "backslashreplace") for text in (out, err)]
        return Ended(process.returncode, *said, hung=hung)

    # What must hold

    def problems(self, *ends: Ended) -> list[str]:
        """What is wrong after a fault: nothing is lost, nothing is there twice, all is resumed."""
        found = [problem for ended in ends for problem in self.of_the_end(ended)]
        try:
            reported: dict[Path, str] = {}
            for ended in ends:
                reported.update(self.reported(ended))
            said = "".join(ended.err for ended in ends)
            found += self._lost(reported, said)
            begun = {path for path in self.workspace.glob("output/*") if self.harms_trials}
            again = self.run("--resume")
            found += self._of_the_resumed(again, reported, begun)
            found += self._lost(self.reported(again), said + again.err)
            found += self._leftovers()
            found += [f"runs on: {line}" for line in self.left_running()]
        except Exception as error:  # a check that cannot be made is a fault that was found
            found.append(f"cannot be checked: {type(error).__name__}: {error}")
        return found

    def reported(self, ended: Ended) -> dict[Path, str]:
        """The summaries of the trials that were reported as finished, with their status."""
        found = {}
        for result in ended.results:
            if result["status"] != "interrupted":
                found[Path(result["summary"])] = result["status"]
        for journal in self.workspace.glob("runs/*.jsonl"):
            for event in _events(journal):
                if event.get("event") == "finished":
                    found.setdefault(Path(event["summary"]), "")
        return found

    def _lost(self, reported: dict[Path, str], said: str) -> list[str]:
        found = []
        trials: Counter[tuple[str, str, int]] = Counter()
        for path in self.workspace.glob("output/*/perfzero_summary.json"):
            try:
                document = _strict(path)
                own = document["perfrun"]
                status = own["outcome"]["status"]
            except (OSError, ValueError, KeyError) as error:
                found.append(f"half-written: {path.parent.name}: {error}")
                continue
            if status != "interrupted" and path in reported:
                key = (
                    own["run_id"],
                    document["benchmark_result"]["name"],
                    document["benchmark_result"]["trial_id"],
                )
                trials[key] += 1
        found += [f"twice: {key}" for key, count in trials.items() if count > 1]
        in_index = Counter(self.indexed()) if self.workspace.exists() else Counter()
        for path, status in reported.items():
            try:
                if (there := _strict(path)["perfrun"]["outcome"]["status"]) != status and status:
                    found.append(f"reported as {status}, is {there}: {path.parent.name}")
            except (OSError, ValueError, KeyError) as error:
                if not _is_accounted_for(path, said):
                    found.append(f"lost: {path}: {error}")
                continue
            rescued = not path.is_relative_to(self.workspace)
            if rescued and f"summary is in {path}" in said:
                continue  # it is said where it lies
            if in_index[path] != 1:
                found.append(f"{in_index[path]} times in the index: {path}")
        return found

    def _of_the_resumed(
        self, again: Ended, reported: dict[Path, str], begun: set[Path]
    ) -> list[str]:
        found = self.of_the_end(again)
        # A trial that could not be judged for the fault has failed, and need not run again.
        bad = [r for r in again.results if r["status"] != "passed"]
        summaries = [Path(result["summary"]) for result in bad]
        if len(again.results) != len(METHODS) or any(
            path not in reported and path.parent not in begun for path in summaries
        ):
            found.append(f"--resume has {[r['status'] for r in again.results]}: {again.err[-900:]}")
        if again.code != int(bool(bad)):
            found.append(f"--resume ended with {again.code}: {again.err[-900:]}")
        if resumed := re.search(r"going on with run (\S+);", again.err):
            now = {Path(result["summary"]) for result in again.results}
            passed = {p for p in reported if _status(p, resumed[1]) == "passed"}
            if not passed <= now:
                found.append(f"finished, and run again: {sorted(map(str, passed - now))}")
        return found

    def of_the_end(self, ended: Ended) -> list[str]:
        """What is wrong with how a command ended, whatever was done to it."""
        found = []
        if ended.hung:
            found.append(f"hangs: {ended.err[-600:]}")
        if "Traceback" in ended.err.partition("internal error: ")[0]:
            found.append(f"a traceback: {ended.err[-600:]}")
        if ended.code == 3 and not self.takes_internal_errors:
            found.append(f"an internal error: {ended.err[-900:]}")
        if ended.code == 0 and len(ended.results) != len(METHODS):
            found.append(f"status 0 with {len(ended.results)} results")
        if ended.code not in (0, 1, 2, 3, 130, *_KILLED) and not ended.hung:
            found.append(f"status {ended.code}: {ended.err[-300:]}")
        return found

    def indexed(self) -> list[Path]:
        """Bring the index up to date; the summaries in it, one for each of its trials."""
        from perfrun.options.store_address import parse_address
        from perfrun.store.index import open_store

        self.workspace.mkdir(parents=True, exist_ok=True)
        output = self.workspace / "output"
        with open_store(parse_address(self.store, self.workspace)) as store:
            store.refresh([output] if self.store and output.exists() else [])
            return [record.path for record in store.trials()]

    def left_running(self) -> list[str]:
        """Processes of this subject that live on, after a while in which they may end."""
        end = time.monotonic() + _END_S
        while (found := _processes_of(self.folder)) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _leftovers(self) -> list[str]:
        """What a killed run had begun to write, and the resumed one should have removed.

        A power loss may have left folders that no journal knows; what is in them stays.
        """
        left = list(self.workspace.glob("output/.reserve-*"))
        for journal in self.workspace.glob("runs/*.jsonl"):
            left += journal.parent.glob(f".{journal.stem}.report.json.*")
            for event in _events(journal):
                if event.get("event") == "started":
                    left += Path(event["folder"]).glob(".perfzero_summary.json.*")
        return [f"left behind: {path.relative_to(self.workspace)}" for path in left]


def _is_accounted_for(path: Path, said: str) -> bool:
    """Tell what became of a summary: no disk took it, or it could not be read and was set aside."""
    if f"{path} does not count" in said and any(path.parent.glob(f"{path.name}.*")):
        return True  # its trial ran again
    return f"/{path.parent.name} could not be written" in said


def _status(path: Path, run_id: str) -> str | None:
    """Return the status of a summary of that run; None for any other and for none."""
    try:
        own = _strict(path)["perfrun"]
        return str(own["outcome"]["status"]) if own["run_id"] == run_id else None
    except (OSError, ValueError, KeyError):
        return None


def _strict(path: Path) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


def _events(journal: Path) -> list[dict[str, Any]]:
    found = []
    for line in journal.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                found.append(event)
    return found


def _processes_of(folder: Path) -> list[str]:
    """The processes that name a folder in their command line, environment or working folder."""
    wanted, found = os.fsencode(folder), []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):  # gone since
            line = (process / "cmdline").read_bytes()
            folder_of = os.fsencode((process / "cwd").readlink())
            marks = (line, (process / "environ").read_bytes(), folder_of)
            if line and any(wanted in mark for mark in marks):
                found.append(line.replace(b"\0", b" ").decode("utf-8", "replace")[:300])
    return found


def _become_perfrun(
    subject: Subject, words: Sequence[str], out: Path, err: Path, *, stop: bool
) -> None:
    """Become the run, in a fork of this process; never return."""
    code = 70
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        for number, path in enumerate((Path(os.devnull), out, err)):
            how = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(path, how, 0o666), number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - they stay open
        sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
        os.chdir(subject.folder)
        os.environ.update(subject.settings)
        os.environ["TMPDIR"] = str(subject.temporary)
        import tempfile

        tempfile.tempdir = None
        from perfrun.benchmark import main

        subject.set_up()
        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(pid: int) -> tuple[int, bool]:
    end = time.monotonic() + PATIENCE_S
    pause_s = 0.002
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), False
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), True
        time.sleep(pause_s)


def preload() -> None:
    """Import what a run imports, so that its forks need not."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = (
        "import sys, contextlib, io, tempfile\n"
        "from perfrun.benchmark import main\n"
        "names = set(sys.modules)\n"
        "with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(io.StringIO()), "
        "contextlib.redirect_stdout(io.StringIO()):\n"
        "    for more in ([], ['--resume']):\n"
        "        main(['--workspace=' + place, '--format=json', '--benchmark_methods="
        "benchmarks.python.interpreter.Interpreter.filter:range', '--timeout=0.1', *more])\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    for name in done.stdout.split():
        if name.startswith("perfrun") and name != "perfrun.__main__":
            importlib.import_module(name)

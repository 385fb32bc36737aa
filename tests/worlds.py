"""Start perfrun so that all it starts can be found again, and run it on classes made for a test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from perfrun.run.journal import Journal

ROOT = Path(__file__).resolve().parent.parent
ENTRY = str(ROOT / "perfrun" / "benchmark.py")
_MARK = "PERFRUN_TEST_MARK"
PATIENCE_S = 150.0  # for what takes a moment on an idle machine
# In every module of benchmarks: who runs the trials. The parent of a worker is the harness's guard.
HARNESS = """
def harness_pid():
    with open("/proc/%d/stat" % os.getppid()) as file:
        return int(file.read().rpartition(")")[2].split()[1])

"""
# For modules of benchmarks: to be ended in a trial whose number is known, however busy the machine.
HOLD = """
import os, time

def hold_at(number, folder):
    \"\"\"In the trial of that number, counted in `folder`: make the file `held`, and wait.\"\"\"
    trials = os.path.join(folder, "trials")
    with open(trials, "a") as file:
        file.write("x")
    if os.path.getsize(trials) == number:
        open(os.path.join(folder, "held"), "w").close()
        time.sleep(600)
"""


@dataclass(frozen=True)
class Finished:
    """How a perfrun ended and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of `--format=json`."""
        results: list[dict[str, Any]] = strict(self.stdout)["results"]
        return results

    @property
    def statuses(self) -> list[str]:
        """The outcomes in the order of the trials."""
        return [result["status"] for result in self.results]

    def summaries(self) -> list[dict[str, Any]]:
        """The documents on disk, in the order of the trials."""
        return [strict(Path(r["summary"]).read_text(encoding="utf-8")) for r in self.results]


@dataclass(frozen=True)
class World:
    """A folder with benchmark classes, a workspace, and a mark on every process begun in it."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    prefix: tuple[str, ...] = ()  # of the command, as ("setpriv", ...)
    python: str = sys.executable  # perfrun's own
    entry: str = ENTRY
    settings: dict[str, str] = field(default_factory=dict)  # environment variables

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def temporary(self) -> Path:
        """Where perfrun and the benchmarks put their temporary files."""
        return self.folder / "tmp"

    def write(self, source: str, module: str = "cases") -> None:
        """Write the module `pkg.<module>`, the imports that most classes need included."""
        head = (
            "import os, signal, subprocess, sys, threading, time\nfrom perfrun import Benchmark\n"
        )
        head += HARNESS
        package = self.folder / "code" / "pkg"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        (package / f"{module}.py").write_text(head + textwrap.dedent(source), encoding="utf-8")

    def words(self, *words: str, methods: str | None = None) -> list[str]:
        """The command line of a run in this world, or of the command that `words` begin with."""
        command, rest = list(words[:1]), words[1:]
        if not command or command[0].startswith("-"):
            command, rest = [], words
        named = [f"--benchmark_methods={methods}"] if methods else []
        place = [f"--workspace={self.workspace}", f"--python_path={self.folder / 'code'}"]
        return [*self.prefix, self.python, self.entry, *command, *place, *named, *rest]

    def environment(self, **more: str) -> dict[str, str]:
        self.temporary.mkdir(parents=True, exist_ok=True)
        own = {_MARK: self.mark, "TMPDIR": str(self.temporary)}
        return {**os.environ, **self.settings, **own, **more}

    def run(self, *words: str, methods: str | None = None, **env: str) -> Finished:
        """Run to the end."""
        return self.run_words(self.words(*words, methods=methods), **env)

    def run_words(self, words: list[str], patience_s: float = 480.0, **env: str) -> Finished:
        """Run a whole command line to the end."""
        return finish(self.start_words(words, **env), patience_s)

    def start(self, *words: str, methods: str | None = None) -> subprocess.Popen[bytes]:
        """Start and return at once; `finish` waits for it."""
        return self.start_words(self.words(*words, methods=methods))

    def start_words(self, words: list[str], **env: str) -> subprocess.Popen[bytes]:
        """Start a whole command line and return at once."""
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def left_running(self) -> list[str]:
        """The processes of this world that live on, after a moment in which they may end."""
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            # Twice: one that is just being started has no environment for an instant.
            before = self.alive()
            time.sleep(0.05)
            if not before and not self.alive():
                return []
        return self.alive()

    def alive(self) -> list[str]:
        """Command lines of the living processes that carry the mark; zombies have none."""
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # gone since
        return found

    def summary_files(self) -> list[Path]:
        """What PerfZero's readers find."""
        return sorted(self.workspace.glob("output/*/perfzero_summary.json"))


def finish(process: subprocess.Popen[bytes], patience_s: float = 2 * PATIENCE_S) -> Finished:
    """Wait for a started perfrun. What it said until then is shown when the test fails."""
    out, err = process.communicate(timeout=patience_s)
    return Finished(
        process.returncode,
        out.decode("utf-8", "backslashreplace"),
        err.decode("utf-8", "backslashreplace"),
    )


def find_python(version: str) -> str:
    """Return an interpreter of that version, one behind a version manager's shim included."""
    name = f"python{version}"
    found = shutil.which(name)
    candidates = [found] if found else []
    if found and Path(found).parent.name == "shims":
        versions = Path(found).parent.parent / "versions"
        candidates += map(str, sorted(versions.glob(f"{version}.*/bin/{name}")))
    for candidate in candidates:
        done = subprocess.run([candidate, "-c", "import ssl"], capture_output=True, check=False)
        if done.returncode == 0:
            return candidate
    pytest.skip(f"no {name} on this machine")


def wait_held(process: subprocess.Popen[bytes], path: Path) -> None:
    """Wait for the file of `HOLD`; a perfrun that ends before, or never comes to it, is an error.

    Nothing of it goes on beside the tests that follow.
    """
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > end:
            how = f"ended with {process.returncode}" if process.poll() is not None else "went on"
            raise AssertionError(f"no {path.name}: perfrun {how}; {_ended(process)}")
        time.sleep(0.01)


def _ended(process: subprocess.Popen[bytes]) -> str:
    """End a perfrun in good order, or else by force; what it said."""
    if process.poll() is None:
        process.terminate()
    try:
        return finish(process, 30.0).stderr
    except subprocess.TimeoutExpired:
        process.kill()
        return finish(process, 30.0).stderr


def wait_until(condition: Callable[[], Any]) -> None:
    """Look again and again until the condition holds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE_S:g} s in vain"
        time.sleep(0.01)


def strict(text: str) -> Any:
    """Parse JSON as the standard has it: NaN and Infinity are errors."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def written_here(workspace: Path) -> None:
    """Give copied summaries journals, as if runs of this workspace had written just these."""
    (workspace / "runs").mkdir(exist_ok=True)
    for path in workspace.glob("output/*/perfzero_summary.json"):
        text = path.read_text(encoding="utf-8")
        run_id = json.loads(text)["perfrun"]["run_id"]
        journal = Journal(workspace / "runs" / f"{run_id}.jsonl")
        journal.written(("copied", 1), text)
        journal.end()

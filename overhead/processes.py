"""Start processes, perfrun among them, and time each as a whole; the settings of a measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A repository on this machine and the commit to check out."""

    repository: Path
    git_hash: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The folder to work in, the things that are there to measure, and the number of rounds."""

    scratch: Path
    rounds: int
    tensorflow_python: str | None
    pin: Pin | None
    image: str | None = None  # for trials in containers
    summaries: int = 20_000  # in the index
    postgresql: str | None = None  # address of an empty database


ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ROOT / "overhead" / "subjects"
PERFRUN = (sys.executable, str(ROOT / "perfrun" / "benchmark.py"))
NOOP = "benchmarks.python.calibration.Calibration.noop"


class MeasurementError(Exception):
    """Something that must work did not work, so the measurement is worth nothing."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A process that has ended as it should."""

    wall_s: float
    stdout: str


@dataclass(frozen=True, kw_only=True)
class PerfrunRun:
    """A finished perfrun and the summaries it wrote, in the order of the trials."""

    statuses: tuple[str, ...]
    paths: tuple[Path, ...]
    summaries: tuple[dict[str, Any], ...]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of every measured process: this one's, with byte code kept.

    An image or a CI service may set PYTHONDONTWRITEBYTECODE. Both sides of a pair would then
    compile modules in every process, which no user's installation does.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **more}


def compile_modules() -> None:
    """Compile perfrun and the benchmarks, also for measurements that have no warm-up round."""
    folders = [str(ROOT / name) for name in ("perfrun", "benchmarks", "overhead")]
    finish([sys.executable, "-m", "compileall", "-q", *folders])


def finish(
    argv: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    allowed: tuple[int, ...] = (0,),
    meanwhile: Callable[[int], None] = lambda _: None,
) -> Finished:
    """Run a process to its end; `meanwhile` is called with its pid once it has been started.

    `variables` are added to its environment. Raises MeasurementError on an exit status that is not
    `allowed`.
    """
    env = environment(**(variables or {}))
    begin = time.perf_counter()
    # No pipe for standard error: a reader of ours would share the cores with what is timed.
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        meanwhile(process.pid)
        output = process.stdout.read()
    code = process.wait()
    wall_s = time.perf_counter() - begin
    if code not in allowed:
        raise MeasurementError(f"exit status {code}: {' '.join(argv)}")
    return Finished(wall_s=wall_s, stdout=output)


def run_argv(workspace: Path, methods: Sequence[str], *words: str) -> list[str]:
    """Return the command line that runs `methods`, which may be of the bench's own subjects."""
    return [
        *PERFRUN,
        f"--workspace={workspace}",
        f"--python_path={SUBJECTS}",
        f"--benchmark_methods={','.join(methods)}",
        "--quiet",
        "--format=json",
        *words,
    ]


def perfrun(
    workspace: Path,
    methods: Sequence[str],
    *words: str,
    prefix: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    expected: Sequence[str] = ("passed",),
    meanwhile: Callable[[int], None] = lambda _: None,
) -> PerfrunRun:
    """Run perfrun. Raises MeasurementError when a trial ends otherwise than `expected`.

    `prefix` is a command that runs it, such as `taskset`; `variables` are added to its environment.
    """
    argv = [*prefix, *run_argv(workspace, methods, *words)]
    allowed = (0,) if tuple(expected) == ("passed",) else (0, 1)
    process = finish(argv, variables=variables, allowed=allowed, meanwhile=meanwhile)
    results = json.loads(process.stdout)["results"]
    statuses = tuple(result["status"] for result in results)
    if not statuses or not set(statuses) <= set(expected):
        raise MeasurementError(f"{', '.join(methods)}: {', '.join(statuses) or 'no results'}")
    paths = tuple(Path(result["summary"]) for result in results)
    summaries = tuple(json.loads(path.read_text(encoding="utf-8")) for path in paths)
    return PerfrunRun(statuses=statuses, paths=paths, summaries=summaries)


def in_turns(rounds: int, *measures: Callable[[], float]) -> tuple[tuple[float, ...], ...]:
    """Take each measure once a round, one after the other: A B A B ...

    Return the values of each measure. The warm-up round fills file caches and byte code; its values
    are dropped.
    """
    for measure in measures:
        measure()
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return tuple(zip(*taken, strict=True))


def python_s(python: str, code: str) -> float:
    """Return the seconds that the whole process `python -c code` takes."""
    return finish([python, "-c", code]).wall_s

"""Write the results of other tools as summaries, which every command then reads as its own.

What a foreign result lacks is absent. Its section `perfrun.imported` names format, file and tool.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfrun import __version__
from perfrun.errors import WorkspaceError
from perfrun.exchange.foreign import Commit, Figure, ForeignTrial, Timing
from perfrun.summary.document import SCHEMA_VERSION, Status, to_json
from perfrun.summary.result_folder import SUMMARY, write_whole
from perfrun.summary.series_identity import VERSION
from perfrun.worker.measure.statistics import Distribution, describe

_MOST_TIMES = 10_000  # in a summary, as in perfrun's own series
_STAGING = ".import-"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The file that trials come from."""

    format: str
    file: str  # its name without folders
    sha256: str
    modified: float  # seconds since the epoch


@dataclass(frozen=True, kw_only=True)
class Written:
    """The result of an import."""

    written: int
    known: int  # were imported before
    runs: tuple[str, ...]  # ids of the runs, also of known trials


def documents_of(
    trials: Iterable[ForeignTrial], origin: Origin, label: str | None, when: float | None
) -> dict[str, dict[str, Any]]:
    """Return the summaries of a file's trials by execution id, which follows from the content.

    So a file that is imported again adds only what is new in it. `when` is the time of trials that
    state none; without it, that of the file is taken.
    """
    found: dict[str, dict[str, Any]] = {}
    numbers: Counter[tuple[str, str]] = Counter()
    for trial in trials:
        run = hashlib.sha256(f"{origin.format}\0{trial.run or origin.sha256}".encode()).hexdigest()
        numbers[run, trial.method] += 1
        stated = trial.timestamp
        timestamp = stated if stated is not None else when if when is not None else origin.modified
        key = json.dumps([origin.format, run, timestamp, asdict(trial)], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()
        execution_id = f"imported-{digest[:24]}"
        document = {
            "execution_id": execution_id,
            "execution_timestamp": timestamp,
            **_document(trial, label),
        }
        document["benchmark_result"]["trial_id"] = numbers[run, trial.method]
        own = document["perfrun"]
        own["run_id"] = f"imported-{run[:24]}"
        own["imported"] = {
            "format": origin.format,
            "file": origin.file,
            "sha256": origin.sha256,
            "tool_version": trial.tool_version or None,
            "time": "stated" if stated is not None else "given" if when is not None else "file",
        }
        found[execution_id] = document
    return found


def write_documents(workspace: Path, documents: Mapping[str, Mapping[str, Any]]) -> Written:
    """Put summaries into a workspace, all or none of them. Raises WorkspaceError."""
    output = workspace / "output"
    new = {name: one for name, one in documents.items() if not (output / name / SUMMARY).exists()}
    staging = workspace / f"{_STAGING}{uuid.uuid4().hex}"
    try:
        output.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
        for name, document in new.items():
            (staging / name).mkdir()
            write_whole(staging / name / SUMMARY, to_json(document))
        for name in new:  # all are on the disk; a rename takes no space
            _move(staging / name, output / name)
    except OSError as error:
        raise WorkspaceError(
            f"{workspace}: {error.strerror or error}; nothing is imported"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(staging)
    runs = dict.fromkeys(one["perfrun"]["run_id"] for one in documents.values())
    return Written(written=len(new), known=len(documents) - len(new), runs=tuple(runs))


def _move(made: Path, place: Path) -> None:
    """Rename a folder; another import may have been first, with the same content."""
    try:
        made.rename(place)
    except OSError:
        if not (place / SUMMARY).exists():
            raise


def _document(trial: ForeignTrial, label: str | None) -> dict[str, Any]:
    status = Status.PASSED if trial.failure is None else Status.FAILED
    info: dict[str, Any] = {
        "harness_name": "perfrun",
        "harness_info": {},
        "has_exception": status is Status.FAILED,
        **({"execution_label": label} if label else {}),
        "flags": {},
        "site_package_info": _site_packages(trial.commit),
    }
    machine = trial.machine
    return {
        "benchmark_result": _result(trial),
        "benchmark_info": info,
        "setup_info": {},
        "ml_framework_info": {"name": "none", "version": None, "build_version": None},
        "system_info": _facts(
            cpu_model=machine.cpu_model,
            logical_cpu_count=machine.logical_cpus,
            hostname=machine.hostname,
        ),
        "process_info": _facts(max_rss=trial.peak_rss_bytes),
        "perfrun": {
            "schema_version": SCHEMA_VERSION,
            "version": __version__,
            "benchmark_flags": list(trial.flags),
            "env": {},
            "outcome": {"status": status.value, "reason": trial.failure},
            "reports": [{"name": "", "throughput": 0.0}],
            "series": _series(trial),
            **_source(trial.source),
            "quality": None,
            "git": _git(trial.commit),
            "container": None,
            "machine": _facts(memory_bytes=machine.memory_bytes, kernel=machine.kernel),
            "environment": {
                "python": _facts(version=machine.python, implementation=machine.implementation),
                "distributions": dict(trial.packages),
            },
        },
    }


def _source(source: str) -> dict[str, Any]:
    """Return the key for a version that an author gave, or for a hash."""
    if source.startswith(VERSION):
        return {"module_sha256": None, "benchmark_version": source.removeprefix(VERSION)}
    return {"module_sha256": source or None}


def _facts(**facts: Any) -> dict[str, Any]:
    """Return the facts that are known."""
    return {name: fact for name, fact in facts.items() if fact not in (None, "")}


def _site_packages(commit: Commit | None) -> dict[str, Any]:
    if commit is None:
        return {}
    return {commit.project: {"url": "", "branch": commit.branch, "hash": commit.git_hash}}


def _git(commit: Commit | None) -> list[dict[str, Any]]:
    if commit is None:
        return []
    return [
        {
            "directory": commit.project,
            "url": "",
            "branch": commit.branch,
            "git_hash": commit.git_hash,
            "dirty": commit.is_dirty,
        }
    ]


def _result(trial: ForeignTrial) -> dict[str, Any]:
    """Return PerfZero's section of the result; a wall time of 0 is unknown, one of -1 failed."""
    timing = trial.timing
    metrics = {figure.name: figure.value for figure in trial.figures}
    metrics |= {name: facts["value"] for name, facts in _metrics(trial).items()}
    wall_time = timing.median_s if timing else 0.0
    return {
        "name": trial.method,
        "wall_time": wall_time if trial.failure is None else -1,
        "succeeded": trial.failure is None,
        "extras": [{"name": name, "value": value} for name, value in trial.extras.items()],
        "metrics": [{"name": name, "value": value} for name, value in metrics.items()],
        "trial_id": 1,
    }


def _series(trial: ForeignTrial) -> list[dict[str, Any]]:
    """Return the series of the times, or the facts about figures that state unit or direction."""
    metrics = _metrics(trial)
    if not metrics:
        return []
    # The report of the trial has no name, and '' is its series'.
    found: dict[str, Any] = {"name": trial.method, "report": "", "metrics": metrics}
    timing = trial.timing
    if timing is None:
        return [found]
    count = len(timing.times_s)
    every = max(1, -(-count // _MOST_TIMES))
    known = describe(timing.times_s) if count else None
    return [
        {
            **found,
            "unit": "s per step",
            "direction": "lower",
            "complete": True,
            "block_size": timing.steps,
            "iterations": count or None,
            "steps": count * timing.steps if count and timing.steps else None,
            "times_s": list(timing.times_s[::every]),
            "times_every": every,
            "statistics": _statistics(timing, known),
            "cpu_s": timing.cpu_s,
        }
    ]


def _statistics(timing: Timing, known: Distribution | None) -> dict[str, Any]:
    """Return what the samples say, and what the tool states where there are none."""
    interval = known.interval if known else None
    return {
        "of": "all samples that the tool kept" if known else "as stated",
        "count": known.size if known else None,
        "median_s": timing.median_s,
        "median_low_s": interval.low if interval else None,
        "median_high_s": interval.high if interval else None,
        "precision": known.precision if known else None,
        "mean_s": known.mean if known else timing.mean_s,
        "p90_s": known.p90 if known else None,
        "p99_s": known.p99 if known else None,
        "min_s": known.minimum if known else timing.min_s,
        "max_s": known.maximum if known else timing.max_s,
    }


def _metrics(trial: ForeignTrial) -> dict[str, dict[str, Any]]:
    """Return the metrics of the series, with unit and direction."""
    timing = trial.timing
    if timing is None:
        stated = [figure for figure in trial.figures if figure.unit or figure.direction]
        return {figure.name: _metric(figure) for figure in stated}
    count = len(timing.times_s)
    figures = _statistics(timing, describe(timing.times_s) if count else None)
    names = ("median", "mean", "p90", "p99", "min", "max", "median_low", "median_high")
    found = {
        f"latency_{name}_s": {"value": figures[f"{name}_s"], "unit": "s", "direction": "lower"}
        for name in names
        if figures[f"{name}_s"] is not None
    }
    return found | {figure.name: _metric(figure) for figure in timing.figures}


def _metric(figure: Figure) -> dict[str, Any]:
    return {"value": figure.value, "unit": figure.unit, "direction": figure.direction or "none"}

"""The lines `__key__=JSON` that DLBS' log parsers read, made of a summary. Values in, text out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from perfrun.dlbs.parsing import Experiment

_TITLES = {"torch": ("pytorch", "PyTorch"), "tensorflow": ("tensorflow", "TensorFlow")}


def result_lines(
    experiment: Experiment, document: Mapping[str, Any], times_s: Sequence[float]
) -> list[str]:
    """One line a key. A trial that did not come to its end has no figures, and says so.

    `times_s` are the times of the timed steps.
    """
    facts = {**_asked(experiment, document), **_when(document)}
    outcome = document["perfrun"]["outcome"]
    ran = outcome["status"] in ("passed", "out_of_bounds")
    figures = _figures(experiment, document, times_s) if ran else {}
    state = "ok" if figures else "failure"
    facts.update(figures)
    facts.update({"results.status": state, "exp.status": state})
    if not figures:
        facts["exp.status_msg"] = outcome["reason"] or "the method made no report"
    return [f"__{key}__={json.dumps(value)}" for key, value in facts.items()]


def _asked(experiment: Experiment, document: Mapping[str, Any]) -> dict[str, Any]:
    """What the run was told to do, by DLBS' names."""
    framework = document["ml_framework_info"]
    name, title = _TITLES.get(str(framework["name"]), (framework["name"], framework["name"]))
    return {
        "exp.id": document["execution_id"],
        "exp.framework": name,
        "exp.framework_family": name,
        "exp.framework_title": title,
        "exp.framework_ver": framework["version"],
        "exp.model": experiment.model,
        "exp.model_title": experiment.title,
        "exp.phase": "inference" if experiment.forward_only else "training",
        "exp.device_type": experiment.device,
        "exp.dtype": experiment.dtype,
        "exp.replica_batch": experiment.batch_size,
        "exp.effective_batch": _effective_batch(experiment, document),
        "exp.num_batches": experiment.num_batches,
        "exp.num_warmup_batches": experiment.num_warmup_batches,
    }


def _when(document: Mapping[str, Any]) -> dict[str, Any]:
    """Begin and end of the trial's process, from what the summary knows of it."""
    own = document["perfrun"]
    before = [own["phases"].get(name, {}).get("wall_s", 0.0) for name in ("import", "construct")]
    began_s = document["execution_timestamp"] - sum(before)
    elapsed_s = own["usage"]["elapsed_s"]
    ended = {} if elapsed_s is None else {"results.end_time": _moment(began_s + elapsed_s)}
    return {"results.start_time": _moment(began_s), **ended}


def _moment(seconds: float) -> str:
    """DLBS' form, %Y-%m-%d:%H:%M:%S:%3N, local time."""
    moment = datetime.fromtimestamp(seconds)
    return f"{moment:%Y-%m-%d:%H:%M:%S}:{moment.microsecond // 1000:03d}"


def _figures(
    experiment: Experiment, document: Mapping[str, Any], times_s: Sequence[float]
) -> dict[str, Any]:
    """Milliseconds a batch, and examples of all devices per second: not cut to whole ones."""
    batch = _effective_batch(experiment, document)
    if not times_s:
        wall_time = document["benchmark_result"]["wall_time"]
        if not isinstance(wall_time, int | float) or wall_time <= 0:
            return {}
        reports = document["perfrun"]["reports"]
        said = reports[0]["throughput"] if reports else 0.0
        return {"results.time": 1e3 * wall_time, "results.throughput": said or batch / wall_time}
    mean_s = math.fsum(times_s) / len(times_s)
    variance = math.fsum((one - mean_s) ** 2 for one in times_s) / len(times_s)
    return {
        "results.time": 1e3 * mean_s,
        "results.time_std": 1e3 * math.sqrt(variance),
        "results.throughput": batch / mean_s,
        "results.time_data": [1e3 * one for one in times_s],
    }


def _effective_batch(experiment: Experiment, document: Mapping[str, Any]) -> int:
    """What the report says, which knows how many devices there were; else what was asked for."""
    for extra in document["benchmark_result"]["extras"]:
        if extra["name"] == "global_batch_size" and isinstance(extra["value"], int | float):
            return int(extra["value"])
    return experiment.batch_size * experiment.num_gpus

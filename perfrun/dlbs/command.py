"""`perfrun dlbs`: a run of the shipped PyTorch benchmarks with the flags of DLBS.

After the run's own output come the lines `__key__=JSON` that DLBS' log parsers read.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from perfrun.dlbs.trial_files import DeviceTimes, device_times, step_times, use_over_time
from perfrun.errors import Interrupted, UsageError
from perfrun.options.command_line import parse
from perfrun.options.parsers import CommandParser, parse_whole, split_at_dashes
from perfrun.options.plan import RunPlan, refuse_baseline
from perfrun.run.command import run_and_show
from perfrun.summary.document import TrialResult

METHOD = "benchmarks.torch.model.Model.run"
SEVERAL_DEVICES = "benchmarks.torch.scaling.Scaling.weak"  # as in DLBS, each device has a batch

# DLBS' names of its PyTorch models, with its titles.
MODELS = {
    "acoustic_model": "AcousticModel",
    "alexnet": "AlexNet",
    "alexnet_owt": "AlexNetOWT",
    "deep_mnist": "DeepMNIST",
    "googlenet": "GoogleNet",
    "inception3": "InceptionV3",
    "inception4": "InceptionV4",
    "overfeat": "Overfeat",
    "sensor_net": "SensorNet",
    **{f"resnet{n}": f"ResNet{n}" for n in (18, 34, 50, 101, 152, 200, 269)},
    **{f"vgg{n}": f"VGG{n}" for n in (11, 13, 16, 19)},
}
WEIGHT_DECAY = "0.0001"  # of DLBS' SGD, whose other settings are those of the benchmark
_TRUE = ("true", "t", "1", "on", "yes", "y")
_FALSE = ("false", "f", "0", "off", "no", "n")

# Flags without meaning, or with a fixed value, for several devices.
_FOR_ONE = ("data", "cudnn_benchmark", "cudnn_fastest")

_EPILOG = """\
All other flags are those of a run (perfrun --help): --python, --workspace, --image, ... Flags of
the benchmark that DLBS did not have follow `--`. docs/guides/dlbs.md explains all flags.

Exit status: 0 the trial ran, 1 it did not, 2 wrong usage, 130 interrupted.
"""
_TITLES = {"torch": ("pytorch", "PyTorch"), "tensorflow": ("tensorflow", "TensorFlow")}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment in DLBS' sense: the plan of a run, and the settings that its log names."""

    plan: RunPlan
    model: str  # as the user wrote it
    title: str
    forward_only: bool
    batch_size: int  # per device
    num_batches: int
    num_warmup_batches: int
    num_gpus: int
    device: str
    dtype: str


def parser() -> CommandParser:
    """Return a parser for the flags of DLBS' entry script, with its defaults."""
    made = CommandParser(
        "python3 -m perfrun.dlbs",
        "Run a PyTorch model by the flags of DLBS' pytorch_benchmarks.",
        _EPILOG,
        "python3 -m perfrun.dlbs --model=NAME --batch_size=N [flags] [-- flags of the benchmark]",
    )
    for name, usual, least, text in (
        ("--batch_size", None, 1, "examples per device and step"),
        ("--num_batches", 100, 1, "timed steps (default 100)"),
        ("--num_warmup_batches", 1, 0, "untimed steps before them (default 1)"),
        ("--num_gpus", 1, 1, "devices (default 1); on the CPU, processes"),
        ("--local_rank", 0, 0, "0: perfrun starts the processes of a run itself"),
    ):
        made.flag(name, "N", text, partial(parse_whole, least=least), usual)
    model = "a model of DLBS' list (resnet50, alexnet_owt, ...) or any other"
    where = "where synthetic input lives: synthetic/pinned, /pageable, /device"
    for name, default, metavar, text in (
        ("--model", "", "NAME", model),
        ("--device", "cpu", "cpu|gpu", "where the model runs (default cpu)"),
        ("--dtype", "float", "TYPE", "float, float32, float16 or bfloat16 (default float)"),
        ("--data_dir", "", "DIR", "folder of a data set; none: synthetic input"),
        ("--data", "", "WHERE", where),
        ("--data_backend", "", "KIND", "caffe_lmdb (default) or image_folder"),
        ("--num_loader_threads", "", "N", "processes that load the data set (default 4)"),
        ("--dist_backend", "", "NAME", "nccl or gloo"),
    ):
        made.flag(name, metavar, text, default=default)
    for name, default, text in (
        ("--forward_only", "false", "inference instead of training"),
        ("--cudnn_benchmark", "true", "let cuDNN look for its fastest algorithms (default true)"),
        ("--cudnn_fastest", "false", "without effect, as it was in DLBS"),
        ("--data_shuffle", "false", "read the data set in random order"),
        ("--data_loader_only", "false", "time the loader alone, without a model"),
    ):
        kind = partial(_switch, flag=name)
        made.flag(name, "BOOL", text, default=default, nargs="?", const="true", type=kind)
    return made


def parse_experiment(argv: Sequence[str]) -> Experiment:
    """Parse the command line. Raises UsageError."""
    words, after = split_at_dashes(argv)
    given, rest = parser().parse_known_args(words)
    if not given.model or not given.batch_size:
        raise UsageError("perfrun.dlbs: --model and --batch_size are needed")
    if given.local_rank:
        raise UsageError(
            f"--local_rank={given.local_rank}: perfrun starts the processes itself; call it once, "
            "without torch.distributed.launch, and say --num_gpus"
        )
    if any(word.startswith("--benchmark_methods") for word in rest):
        raise UsageError("perfrun.dlbs: the method is fixed; run others with `perfrun`")
    experiment_device = "gpu" if given.device == "cuda" else given.device
    if experiment_device not in ("cpu", "gpu"):
        raise UsageError(f"--device={given.device}: must be cpu or gpu")
    if given.data_loader_only and not given.data_dir:
        raise UsageError("--data_loader_only needs --data_dir: synthetic input has no loader")
    several = given.num_gpus > 1
    flags = _benchmark_flags(given)
    if several:
        if given.data_loader_only:
            raise UsageError("--num_gpus: the loader alone is timed for one device")
        flags = {name: value for name, value in flags.items() if name not in _FOR_ONE}
        if not given.forward_only:
            del flags["forward_only"]  # their default, and as it was
    words = [f"--{name}={value}" for name, value in flags.items() if value]
    method = SEVERAL_DEVICES if several else METHOD
    plan = parse([*rest, f"--benchmark_methods={method}", "--", *words, *after], also=parser())
    refuse_baseline(plan, "perfrun.dlbs")
    return Experiment(
        plan=plan,
        model=given.model,
        title=MODELS.get(given.model, given.model),
        forward_only=given.forward_only,
        batch_size=given.batch_size,
        num_batches=given.num_batches,
        num_warmup_batches=given.num_warmup_batches,
        num_gpus=given.num_gpus,
        device=experiment_device,
        dtype="float32" if given.dtype == "float" else given.dtype,
    )


def _benchmark_flags(given: argparse.Namespace) -> dict[str, str]:
    """Return the flags of the benchmark, without those that set a default.

    So a benchmark without data sets, say, accepts a command line without one.
    """
    model = f"dlbs:{given.model}" if given.model in MODELS else given.model
    flags = {
        "model": model,
        "forward_only": _word(given.forward_only),
        "weight_decay": "" if given.forward_only else WEIGHT_DECAY,
        "batch_size": str(given.batch_size),
        "num_batches": str(given.num_batches),
        "num_warmup_batches": str(given.num_warmup_batches),
        "device": given.device,
        "dtype": given.dtype,
        "data": given.data,
        "dist_backend": given.dist_backend,
    }
    if given.device != "cpu":
        flags["cudnn_benchmark"] = _word(given.cudnn_benchmark)
    if given.cudnn_fastest:
        flags["cudnn_fastest"] = "true"
    if given.num_gpus > 1:
        flags["num_gpus"] = str(given.num_gpus)
    if given.data_dir:
        flags["data_dir"] = given.data_dir
        flags["data_backend"] = given.data_backend or "caffe_lmdb"
        flags["num_loader_threads"] = given.num_loader_threads or "4"
        flags["data_shuffle"] = _word(given.data_shuffle)
    if given.data_loader_only:
        flags["data_loader_only"] = "true"
    return flags


def _switch(text: str, flag: str) -> bool:
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise UsageError(f"{flag}={text}: must be true or false")
    return word in _TRUE


def _word(switched: bool) -> str:
    return "true" if switched else "false"


def result_lines(
    experiment: Experiment,
    document: Mapping[str, Any],
    times_s: Sequence[float],
    *,
    means_s: Sequence[float] = (),
    use: Mapping[str, Sequence[Any]] | None = None,
) -> list[str]:
    """Return one line for each key; a trial that failed has a reason instead of figures.

    `times_s` are the times of the timed steps, and `means_s` the mean of each device where each
    works on its own. `use` has memory, CPU and power over time, by DLBS' names.
    """
    facts = {**_settings(experiment, document), **_when(document)}
    outcome = document["perfrun"]["outcome"]
    ran = outcome["status"] in ("passed", "out_of_bounds")
    figures = _figures(experiment, document, times_s, means_s) if ran else {}
    facts.update(_use(document, use or {}))
    state = "ok" if figures else "failure"
    facts.update(figures)
    facts.update({"results.status": state, "exp.status": state})
    if not figures:
        facts["exp.status_msg"] = outcome["reason"] or "the method made no report"
    return [f"__{key}__={json.dumps(value)}" for key, value in facts.items()]


def _settings(experiment: Experiment, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the run by DLBS' names."""
    framework = document["ml_framework_info"]
    name, title = _TITLES.get(str(framework["name"]), (framework["name"], framework["name"]))
    return {
        "exp.id": document["execution_id"],
        "exp.node_id": document["system_info"]["hostname"],
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
    """Return begin and end of the trial's process, computed from the summary."""
    own = document["perfrun"]
    began_s = _began_s(document)
    elapsed_s = own["usage"]["elapsed_s"]
    ended = {} if elapsed_s is None else {"results.end_time": _moment(began_s + elapsed_s)}
    return {"results.start_time": _moment(began_s), **ended}


def _began_s(document: Mapping[str, Any]) -> float:
    """Return when the trial's process began, in seconds since the epoch."""
    phases = document["perfrun"]["phases"]
    before = [phases.get(name, {}).get("wall_s", 0.0) for name in ("import", "construct")]
    return float(document["execution_timestamp"]) - math.fsum(before)


def _use(document: Mapping[str, Any], use: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return memory, CPU and power over time, with times of day."""
    lines = {f"results.use.{name}": list(values) for name, values in use.items()}
    if "time" in use:
        began_s = _began_s(document)
        lines["results.use.time"] = [_moment(began_s + after_s) for after_s in use["time"]]
    return lines


def _moment(seconds: float) -> str:
    """Return a time in DLBS' form, %Y-%m-%d:%H:%M:%S:%3N, local time."""
    moment = datetime.fromtimestamp(seconds)
    return f"{moment:%Y-%m-%d:%H:%M:%S}:{moment.microsecond // 1000:03d}"


def _figures(
    experiment: Experiment,
    document: Mapping[str, Any],
    times_s: Sequence[float],
    means_s: Sequence[float],
) -> dict[str, Any]:
    """Return milliseconds per batch and the examples per second of all devices, not rounded."""
    batch = _effective_batch(experiment, document)
    if not times_s:
        wall_time = document["benchmark_result"]["wall_time"]
        if not isinstance(wall_time, int | float) or wall_time <= 0:
            return {}
        reports = document["perfrun"]["reports"]
        reported = reports[0]["throughput"] if reports else 0.0
        return {
            "results.time": 1e3 * wall_time,
            "results.throughput": reported or batch / wall_time,
        }
    mean_s = math.fsum(times_s) / len(times_s)
    variance = math.fsum((one - mean_s) ** 2 for one in times_s) / len(times_s)
    return {
        "results.time": 1e3 * mean_s,
        "results.time_std": 1e3 * math.sqrt(variance),
        # Devices that do not wait for each other have rates of their own, which add up.
        "results.throughput": (
            math.fsum(experiment.batch_size / one for one in means_s) or batch / mean_s
        ),
        "results.time_data": [1e3 * one for one in times_s],
    }


def _effective_batch(experiment: Experiment, document: Mapping[str, Any]) -> int:
    """Return the batch over all devices, from the report if it has it, else from the flags."""
    for extra in document["benchmark_result"]["extras"]:
        if extra["name"] == "global_batch_size" and isinstance(extra["value"], int | float):
            return int(extra["value"])
    return experiment.batch_size * experiment.num_gpus


def dlbs_command(argv: Sequence[str]) -> int:
    """Run the experiment and print its log lines. Return 1 if it failed (DLBS' script: 0)."""
    experiment = parse_experiment(argv)
    result = run_and_show(experiment.plan, lambda trial: _lines(experiment, trial))
    if result.interrupted:
        return Interrupted.exit_code
    return 0 if all(trial.status.ran for trial in result.trials) else 1


def _lines(experiment: Experiment, trial: TrialResult) -> list[str]:
    """Return the log lines of a trial, from its summary and from what else is in its folder."""
    folder = Path(trial.summary).parent
    own = trial.document["perfrun"]
    times = DeviceTimes(steps_s=(), means_s=())
    if own["series"]:
        times = DeviceTimes(steps_s=tuple(step_times(own["series"][0], folder)), means_s=())
    elif experiment.num_gpus > 1:
        times = device_times(folder) or times
    use = use_over_time(folder, own["machine"].get("memory_bytes"))
    return result_lines(experiment, trial.document, times.steps_s, means_s=times.means_s, use=use)

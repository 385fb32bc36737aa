"""DLBS' flags, spelt as there, turned into a run of the shipped PyTorch benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from perfrun.arguments import CommandParser, parse_whole, split_at_dashes
from perfrun.cli import parse
from perfrun.errors import UsageError
from perfrun.plan import RunPlan

METHOD = "benchmarks.torch.model.Model.run"
SEVERAL_DEVICES = "benchmarks.torch.scaling.Scaling.weak"  # as DLBS: a batch for each

# DLBS' names of its PyTorch models, and their titles there.
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
# DLBS took these for true, and every other word for false, "yes" included.
_TRUE = ("true", "t", "1", "on", "yes", "y")
_FALSE = ("false", "f", "0", "off", "no", "n")

# Of no meaning, or not to be set, where several devices train.
_FOR_ONE = ("forward_only", "data", "cudnn_benchmark", "cudnn_fastest")

_EPILOG = """\
All other flags are those of a run (perfrun --help): --python, --workspace, --image, ...; knobs of
the benchmark that DLBS had not follow `--`. The flags are explained in docs/dlbs.md.
"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What DLBS calls an experiment: the run, and what its log says of it beforehand."""

    plan: RunPlan
    model: str  # as it was asked for
    title: str
    forward_only: bool
    batch_size: int  # per device
    num_batches: int
    num_warmup_batches: int
    num_gpus: int
    device: str
    dtype: str


def parser() -> CommandParser:
    """The flags of DLBS' entry script, with its defaults."""
    made = CommandParser(
        "python3 -m perfrun.dlbs",
        "Run a PyTorch model by the flags of DLBS' pytorch_benchmarks.",
        _EPILOG,
        "python3 -m perfrun.dlbs --model=NAME --batch_size=N [flags] [-- knobs]",
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
    """Parse the command line. Raises UsageError; touches nothing."""
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
    knobs = _knobs(given)
    if several:
        _refuse_for_several(given)
        knobs = {name: value for name, value in knobs.items() if name not in _FOR_ONE}
    words = [f"--{name}={value}" for name, value in knobs.items() if value]
    method = SEVERAL_DEVICES if several else METHOD
    plan = parse([*rest, f"--benchmark_methods={method}", "--", *words, *after])
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


def _refuse_for_several(given: argparse.Namespace) -> None:
    """What DLBS did not do on several devices either, or what is not done there here."""
    if given.forward_only:
        raise UsageError("--num_gpus: inference runs on one device; several are for training")
    if given.data_dir:
        raise UsageError("--num_gpus: several devices train on synthetic input; no --data_dir")


def _knobs(given: argparse.Namespace) -> dict[str, str]:
    """The flags of the benchmark. One that says what holds anyway is left out.

    So a benchmark that does not know of data sets, say, takes a command line without one.
    """
    model = f"dlbs:{given.model}" if given.model in MODELS else given.model
    knobs = {
        "model": model,
        "forward_only": _word(given.forward_only),
        "batch_size": str(given.batch_size),
        "num_batches": str(given.num_batches),
        "num_warmup_batches": str(given.num_warmup_batches),
        "device": given.device,
        "dtype": given.dtype,
        "data": given.data,
        "dist_backend": given.dist_backend,
    }
    if given.device != "cpu":
        knobs["cudnn_benchmark"] = _word(given.cudnn_benchmark)
    if given.cudnn_fastest:
        knobs["cudnn_fastest"] = "true"
    if given.num_gpus > 1:
        knobs["num_gpus"] = str(given.num_gpus)
    if given.data_dir:
        knobs["data_dir"] = given.data_dir
        knobs["data_backend"] = given.data_backend or "caffe_lmdb"
        knobs["num_loader_threads"] = given.num_loader_threads or "4"
        knobs["data_shuffle"] = _word(given.data_shuffle)
    if given.data_loader_only:
        knobs["data_loader_only"] = "true"
    return knobs


def _switch(text: str, flag: str) -> bool:
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise UsageError(f"{flag}={text}: must be true or false")
    return word in _TRUE


def _word(switched: bool) -> str:
    return "true" if switched else "false"

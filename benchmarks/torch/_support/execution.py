"""The settings of a PyTorch run, from the knobs: device, threads, type, compilation."""

from __future__ import annotations

import contextlib
import os
import shutil
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._support.knobs import TORCH_COMPILE, Settings
from benchmarks.torch._support.framework import torch
from benchmarks.torch._support.torchscript import TracedModel
from perfrun import SetupError


def current() -> torch.device:
    """Return the accelerator where PyTorch sees one, else the CPU."""
    if not hasattr(torch, "accelerator"):  # PyTorch before 2.6
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def description(device: torch.device) -> str:
    """Return the device's type, and its model where PyTorch tells it."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return str(device.type)


def chosen(name: str) -> torch.device:
    """Return the device that the knob `device` names; SetupError where PyTorch does not see it."""
    if name == "auto":
        return current()
    kind, _, index = name.partition(":")
    if kind == "gpu":  # whichever accelerator there is
        kind = current().type if current().type != "cpu" else "cuda"
    if kind != "cpu" and (kind != current().type or int(index or 0) >= count()):
        raise SetupError(f"device is {name!r}; PyTorch {torch.__version__} sees {_seen()} here")
    return torch.device(f"{kind}:{index}" if index else kind)


def count() -> int:
    """Return the number of accelerators that PyTorch sees."""
    if not hasattr(torch, "accelerator"):
        return int(torch.cuda.device_count())
    return int(torch.accelerator.device_count())


def _seen() -> str:
    return "no accelerator" if not count() else f"{count()} of the type {current().type}"


def wait(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type != "cpu":
        torch.accelerator.synchronize(device)


def peak_bytes(device: torch.device) -> int | None:
    """Return the peak memory that PyTorch has reserved on a GPU; None on another device."""
    return int(torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else None


EAGER, COMPILED, TORCHSCRIPT = "eager", "default", "torchscript"
_CACHE = "TORCHINDUCTOR_CACHE_DIR"


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The settings of a run; `choose` makes them."""

    device: torch.device
    dtype: str  # of the arithmetic: float32, float16, bfloat16
    compile: str  # `eager`, `torchscript`, or a mode of torch.compile
    channels_last: bool
    seed: int

    def autocast(self) -> Any:
        """Return the context in which a forward pass is computed in `dtype`."""
        if self.dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.dtype))

    @property
    def uses_compiler(self) -> bool:
        """Return True for `torch.compile`, which makes code of its own."""
        return self.compile not in (EAGER, TORCHSCRIPT)

    def compiled(self, function: Any) -> Any:
        """Return the module, compiled as the knob says."""
        if self.compile == EAGER:
            return function
        if self.compile == TORCHSCRIPT:
            return TracedModel(function)
        mode = None if self.compile == COMPILED else self.compile
        return torch.compile(function, mode=mode)

    def facts(self) -> dict[str, Any]:
        """Return the report's notes on the settings."""
        return {
            "device": description(self.device),
            "threads": torch.get_num_threads(),
            "inter_threads": torch.get_num_interop_threads(),
            "dtype": self.dtype,
            "compile": self.compile,
            "channels_last": str(self.channels_last).lower(),
            "seed": self.seed,
            "torch_version": torch.__version__,
            **_cudnn_facts(self.device),
        }


def choose(
    settings: Settings, *, compile_default: str = EAGER, dtype_default: str = "float32"
) -> Execution:
    """Read the knobs and set what holds for the whole process: threads, cuDNN, caches.

    SetupError is raised for what this machine or PyTorch does not have.
    """
    device = chosen(settings.value("device", "auto"))
    execution = Execution(
        device=device,
        dtype=settings.value("dtype", dtype_default),
        compile=settings.one_of("compile", compile_default, TORCH_COMPILE),
        channels_last=settings.value("channels_last", False),
        seed=settings.value("seed", 0),
    )
    set_threads(settings)
    if execution.compile == TORCHSCRIPT and execution.dtype != "float32":
        raise SetupError(
            f"dtype is {execution.dtype!r}, and autocast is not traced: with compile=torchscript "
            "it must be float32"
        )
    if execution.uses_compiler:
        _need_a_compiler(device)
        _compile_afresh()
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = settings.value("cudnn_benchmark", True)
    return execution


def prepared_device(settings: Settings) -> torch.device:
    """Set threads and seed as the knobs say, for operators; return the device."""
    set_threads(settings)
    torch.manual_seed(settings.value("seed", 0))
    return chosen(settings.value("device", "auto"))


def set_threads(settings: Settings) -> None:
    """Set the threads of the whole process; SetupError where PyTorch has started them already."""
    within, between = settings.value("intra_threads"), settings.value("inter_threads")
    if within is not None:
        torch.set_num_threads(within)
    if between is None or between == torch.get_num_interop_threads():
        return
    try:
        torch.set_num_interop_threads(between)
    except RuntimeError as error:
        raise SetupError(
            f"inter_threads is {between}, and PyTorch has started its threads: their number "
            "cannot be changed in this process any more"
        ) from error


def _need_a_compiler(device: torch.device) -> None:
    """Raise SetupError without a C++ compiler, which torch.compile would miss only later."""
    if device.type != "cpu":
        return
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise SetupError(
            f"torch.compile needs a C++ compiler for the CPU, and there is no {compiler}; install "
            "one (Debian: g++; in an image: setup.py --extra_apt_packages='g++ python3-dev'), "
            "name another in CXX, or run with compile=eager"
        )
    headers, own = sysconfig.get_path("include"), str(Path(torch.__file__).parent)
    for place in (headers, own):
        if len(place.split()) > 1:  # PyTorch 2.13 writes it into a command line as it is
            raise SetupError(
                "torch.compile cannot compile for the CPU where a folder has a space in its name, "
                f"as in {place!r}; put the environment elsewhere (a symbolic link to it will do), "
                "or run with compile=eager"
            )
    if not (Path(headers) / "Python.h").is_file():
        raise SetupError(
            f"torch.compile needs Python's headers for the CPU, and there is no Python.h in "
            f"{headers}; install them (Debian: python3-dev; in an image: setup.py "
            "--extra_apt_packages='g++ python3-dev'), or run with compile=eager"
        )


_caches: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _compile_afresh() -> None:
    """Use an empty cache, because code that an earlier process compiled would cost nothing."""
    if _CACHE not in os.environ:
        _caches.append(tempfile.TemporaryDirectory(prefix="perfrun-inductor-"))
        os.environ[_CACHE] = _caches[-1].name


def compile_cache() -> str:
    """Return the report's note on the origin of compiled code."""
    own = bool(_caches) and os.environ.get(_CACHE) == _caches[-1].name
    return "empty at the start" if own else f"the environment's, {_CACHE}"


def _cudnn_facts(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {}
    return {
        "cudnn_version": torch.backends.cudnn.version() or "none",
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark).lower(),
        "cudnn_allow_tf32": str(torch.backends.cudnn.allow_tf32).lower(),
        "matmul_allow_tf32": str(torch.backends.cuda.matmul.allow_tf32).lower(),
    }

"""Models of TorchBench (pytorch/benchmark), unmodified: its `Model` contract behind one class.

    perfrun --git_repos='https://github.com/pytorch/benchmark;main;HASH' --python_path=benchmark \\
        --benchmark_methods=benchmarks.torch.torchbench.Model.eval -- --model=dcgan

The step is `invoke()`, as TorchBench calls it: with its contexts, its data on the device, and in
training forward, backward and the optimizer. `extra_args` are TorchBench's own, as
`--precision fp16` or `--inductor`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import shlex
from typing import Any

from benchmarks._support.knobs import Configured
from benchmarks.torch._support.framework import torch
from perfrun import SetupError

_FOLDERS = ("models", "canary_models")
_ADVICE = (
    "check it out with --git_repos='https://github.com/pytorch/benchmark;main' "
    "--python_path=benchmark, and install what its install.py names"
)


class Model(Configured):
    """A model of TorchBench by the name of its folder (`model`)."""

    takes = ("model", "device", "batch_size", "iterations", "warmup", "intra_threads")

    def __init__(
        self,
        output_dir: str | None = None,
        root_data_dir: str | None = None,
        tpu: str | None = None,
        extra_args: str = "",
        **knobs: object,
    ) -> None:
        super().__init__(output_dir=output_dir, root_data_dir=root_data_dir, tpu=tpu, **knobs)
        if not isinstance(extra_args, str):
            raise SetupError(f"extra_args is {extra_args!r}; write them as for a shell, in a text")
        self._extra_args = shlex.split(extra_args)

    def eval(self) -> None:
        """Inference, as TorchBench's test `eval` runs it."""
        self._run("eval")

    def train(self) -> None:
        """Training, as TorchBench's test `train` runs it."""
        self._run("train")

    def _run(self, test: str) -> None:
        threads = self.settings.value("intra_threads")
        if threads:
            torch.set_num_threads(threads)
        device = _device(self.settings.value("device", "auto"))
        name = self.settings.value("model", "dcgan")
        model = self._model(name, test, device)
        batches = getattr(model, "num_batch", 1)
        self.measure(
            model.invoke,
            items_per_step=model.batch_size * batches,
            iterations=self.settings.value("iterations"),
            warmup=self.settings.value("warmup"),
            extras={"model": name, "test": test, "device": device, "batch_size": model.batch_size},
            metrics=_parameters(model),
        )

    def _model(self, name: str, test: str, device: str) -> Any:
        """Return TorchBench's object. Raises SetupError for what it does not have or support."""
        module = _module(name)
        try:
            return module.Model(
                test=test,
                device=device,
                batch_size=self.settings.value("batch_size"),
                extra_args=list(self._extra_args),
            )
        except NotImplementedError as error:
            raise SetupError(f"TorchBench's {name} ({test}, {device}): {error}") from error


def _device(knob: str) -> str:
    if knob == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return knob.replace("gpu", "cuda")


def _module(name: str) -> Any:
    """Import the module of a model. Raises SetupError when it, or a library, is missing."""
    _prepare_torchvision()
    try:
        found = [f"torchbenchmark.{folder}.{name}" for folder in _FOLDERS]
        there = next((one for one in found if importlib.util.find_spec(one)), None)
        if there is None:
            raise SetupError(f"TorchBench has no model {name!r}; they are its folders in models/")
        return importlib.import_module(there)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("torchbenchmark"):
            raise SetupError(f"TorchBench is not importable; {_ADVICE}") from None
        raise SetupError(f"TorchBench's {name} needs the package {error.name}; {_ADVICE}") from None


def _prepare_torchvision() -> None:
    """Make an installed torchvision importable beside a PyTorch that it was not built for."""
    if importlib.util.find_spec("torchvision"):
        from benchmarks.torch._support.libraries.torchvision import load

        with contextlib.suppress(SetupError):  # the model may need none
            load()


def _parameters(model: Any) -> tuple[dict[str, Any], ...]:
    """Return the number of parameters as a metric; none where TorchBench gives no module."""
    try:
        module, _ = model.get_module()
        count = sum(one.numel() for one in module.parameters())
    except (NotImplementedError, AttributeError, TypeError):
        return ()
    return ({"name": "parameters", "value": count},)

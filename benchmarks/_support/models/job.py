"""A model that is ready to run, and one step of it: the interface that a framework implements."""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks._support.datasets.feeding import Batches
from benchmarks._support.datasets.loading import Opened
from benchmarks._support.knobs import Settings
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.loss_scale import LossScaler
from benchmarks._support.models.spec import Built


class Transfers(Protocol):
    """Input in the host's memory, and the copies to the device and back."""

    def bring(self) -> tuple[Any, ...]:
        """Return the input, copied to the device."""

    def out(self, result: Any) -> Any:
        """Return a step's result in the host's memory."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a report says about it."""


class Loader(Batches, Protocol):
    """Batches of a data set that fit the model."""

    @property
    def notes(self) -> dict[str, Any]:
        """Return what a report says about it."""


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """A model that is ready, and one step of it: `step(*arguments)`."""

    network: Built
    training: bool
    batch_size: int
    step: Callable[..., Any]
    arguments: tuple[Any, ...]  # on the device; of a data set only their `outline`
    loss_scaler: LossScaler | None = None  # of training in float16

    def run(self) -> Any:
        """Run one step on the input that is on the device."""
        return self.step(*self.arguments)

    @property
    @abstractmethod
    def is_compiled(self) -> bool:
        """Return True when the first step compiles or traces what the later ones run."""

    @abstractmethod
    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which its steps are run."""

    @abstractmethod
    def wait(self, result: Any) -> None:
        """Wait until the device has finished the step that gave this result."""

    @abstractmethod
    def device_peak_bytes(self) -> int | None:
        """Return the peak memory of the accelerator; None where there is none."""

    @abstractmethod
    def on_device(self, batch: tuple[Any, Any]) -> tuple[Any, ...]:
        """Return a step's arguments from a loader's batch, on the device."""

    @abstractmethod
    def outline(self, batch: tuple[Any, Any]) -> tuple[Any, ...]:
        """Return the part of a loader's batch that `work` needs, without its contents."""

    @abstractmethod
    def loader(self, images: Opened, settings: Settings) -> Loader:
        """Return the framework's loader of a data set."""

    @abstractmethod
    def transfers(self, data: str) -> Transfers:
        """Return the input as it lies on the host; `data` is a value of the knob."""

    @abstractmethod
    def check(self, output: Any) -> None:
        """Raise RuntimeError for a result of inference of the wrong shape, or not finite."""

    @abstractmethod
    def work(self) -> Work:
        """Count the arithmetic of one example."""

    @abstractmethod
    def peak(self, done: float | None) -> Peak:
        """Measure the device's peak arithmetic; it did `done` FLOP/s in the model's steps."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on device, types, compilation and versions."""


def trial(arguments: Mapping[str, Any], batch_size: int, steps: int) -> dict[str, Any]:
    """Run steps of the class's model; return their seconds and the peak of the GPU's memory."""
    module, name = arguments["class"]
    benchmark = getattr(importlib.import_module(module), name)(**arguments["knobs"])
    training = not benchmark.settings.value("forward_only", False)
    job: Job = benchmark.job(training=training, batch_size=batch_size)
    step_s = []
    with job.scope():
        job.wait(job.run())  # compiles, and lets the optimiser make its own state
        if job.loss_scaler is not None:  # a step that is skipped makes no state
            job.loss_scaler.settle(job.run)
        for _ in range(steps):
            began_s = time.perf_counter()
            job.wait(job.run())
            step_s.append(time.perf_counter() - began_s)
    return {"step_s": step_s, "device_peak_bytes": job.device_peak_bytes()}

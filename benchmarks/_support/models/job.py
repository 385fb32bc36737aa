"""A model that is ready to run, and one step of it: the interface that a framework implements."""

from __future__ import annotations

import dataclasses
import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks._support.datasets.feeding import Batches
from benchmarks._support.knobs import Settings
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.loss_scale import LossScaler
from benchmarks._support.models.spec import Built

if TYPE_CHECKING:
    from benchmarks._support.datasets.loading import Opened

# Of a job's notes, those on which the device's peak depends; perfrun knows what is installed.
_OF_PEAK = ("device", "threads", "inter_threads", "dtype", "cudnn_allow_tf32", "matmul_allow_tf32")
COUNTED_BATCH = 2  # examples of which a companion makes input, whatever the trial's batch is


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
    arguments: tuple[Any, ...]  # on the device; () where a data set gives them
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
        """Count the arithmetic of one example; only a trial's companion calls this."""

    @abstractmethod
    def peak(self, done: float | None) -> Peak:
        """Measure the device's peak arithmetic; it did `done` FLOP/s in the model's steps.

        Only a trial's companion calls this.
        """

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on device, types, compilation and versions."""

    def decides_peak(self) -> dict[str, Any]:
        """Return what decides the device's peak, from the notes."""
        facts = self.facts()
        known = {name: facts[name] for name in _OF_PEAK if name in facts}
        return {"framework": type(self).__module__, **known}


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


def companion(
    arguments: Mapping[str, Any],
    wanted: Sequence[str],
    work: Mapping[str, Any] | None,
    rate: float | None,
) -> dict[str, Any]:
    """Count the work and measure the peak behind a trial's report, in the trial's companion."""
    module, name = arguments["class"]
    benchmark = getattr(importlib.import_module(module), name)(**arguments["knobs"])
    job: Job = benchmark.counted_job(**arguments["way"])
    found: dict[str, Any] = {}
    with job.scope():
        if "work" in wanted:
            counted = job.work()
            work = found["work"] = dataclasses.asdict(counted)
        if "peak" in wanted:
            flops = work["flops_per_example"] if work else None
            done = flops * rate if flops and rate else None
            found["peak"] = dataclasses.asdict(job.peak(done))
    return found

"""The methods of every class that measures a model: what to run; each framework says how."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, ClassVar, TypeVar

from benchmarks.datasets import feeding
from benchmarks.largest_batch import searchable
from benchmarks.largest_batch.searchable import BatchSearch
from benchmarks.models import process_start
from benchmarks.models.job import Job, Loader
from benchmarks.models.measuring import Measuring
from benchmarks.models.spec import spelt
from perfrun import SetupError

EAGER = "eager"
ON_DEVICE = "synthetic/device"  # where input is, unless `data` or `data_dir` says otherwise
BATCH_SIZES = (1, 8)  # inference, training
KNOBS: tuple[str, ...] = (
    *("model", "forward_only", "batch_size", "iterations", "warmup", "device", "dtype"),
    *("data", "compile", "channels_last", "intra_threads", "inter_threads", "seed"),
    *("input_shape", *searchable.KNOBS, *feeding.KNOBS),
)

Class = TypeVar("Class")


def described(**docs: str) -> Callable[[type[Class]], type[Class]]:
    """Give methods that a class inherits docstrings in its own words: `perfrun list` shows them."""

    def describe(cls: type[Class]) -> type[Class]:
        for name, doc in docs.items():
            setattr(cls, name, _described(getattr(cls, name), doc))
        return cls

    return describe


def _described(method: FunctionType, doc: str) -> FunctionType:
    # A copy, not a wrapper: a report has the name of the code that asks for it.
    own = FunctionType(method.__code__, method.__globals__, closure=method.__closure__)
    functools.update_wrapper(own, method)
    own.__doc__ = doc
    return own


@dataclass(frozen=True, kw_only=True)
class Way:
    """What a method fixes of how the model is run; None is left to the knob."""

    training: bool
    mode: str | None = None  # of the knob `compile`
    dtype: str | None = None
    has_data: bool = False  # input comes from a data set: none is made up, to lie in memory unused


class Methods(BatchSearch, ABC):
    """Inference and training of one model. A framework's class makes the job: `_built`."""

    takes: ClassVar[tuple[str, ...]] = KNOBS
    batch_trial = "benchmarks.models.batch_trial"
    model_name: ClassVar[str] = "efficientnet_b0"  # unless the knob says otherwise
    timed_steps: ClassVar[tuple[int | None, int | None]] = (None, None)  # inference, training
    warmup_steps: ClassVar[int | None] = None  # None: found
    compiled: ClassVar[str]  # what `compile` is in the methods for compiled models
    framework_import_s: ClassVar[float | None]  # None: something else had imported it

    def __init_subclass__(cls, *, model: str | None = None, **more: Any) -> None:
        """Fix the model of a class by `class Name(Model, model=...)`: it is no knob of it then."""
        super().__init_subclass__(**more)
        if model is not None:
            cls.model_name = model
            cls.takes = tuple(name for name in cls.takes if name != "model")

    def run(self) -> None:
        """Inference where `forward_only` is true, else training."""
        if self.settings.value("forward_only", False):
            self.inference()
        else:
            self.training()

    def inference(self) -> None:
        """Forward passes, as `compile` says; batch 1."""
        self.measure_model(training=False)

    def inference_eager(self) -> None:
        """Forward passes without compilation."""
        self.measure_model(training=False, mode=EAGER)

    def inference_compiled(self) -> None:
        """Forward passes, compiled."""
        self.measure_model(training=False, mode=self.compiled)

    def inference_bfloat16(self) -> None:
        """Forward passes with arithmetic in bfloat16."""
        self.measure_model(training=False, dtype="bfloat16")

    def inference_float16(self) -> None:
        """Forward passes with arithmetic in float16."""
        self.measure_model(training=False, dtype="float16")

    def training(self) -> None:
        """Training steps (forward, backward, SGD), as `compile` says; batch 8."""
        self.measure_model(training=True)

    def training_eager(self) -> None:
        """Training steps without compilation."""
        self.measure_model(training=True, mode=EAGER)

    def training_compiled(self) -> None:
        """Training steps, compiled."""
        self.measure_model(training=True, mode=self.compiled)

    def training_bfloat16(self) -> None:
        """Training steps with arithmetic in bfloat16."""
        self.measure_model(training=True, dtype="bfloat16")

    def training_float16(self) -> None:
        """Training steps with arithmetic in float16, the loss scaled."""
        self.measure_model(training=True, dtype="float16")

    def job(self, *, training: bool, batch_size: int | None = None) -> Job:
        """Build the model and a step of it as the knobs say; what is given here is fixed."""
        return self._job(Way(training=training), batch_size)

    def measure_model(
        self,
        *,
        training: bool,
        mode: str | None = None,
        dtype: str | None = None,
        batch_size: int | None = None,
        iterations: int | None = None,
    ) -> None:
        """Measure one way of running the model, and report it; after a search if asked for.

        `iterations` is how many steps are timed unless the knob says otherwise.
        """
        if self.settings.value("forward_only", not training) == training:
            kind = "training" if training else "inference"
            raise only_for("forward_only", training, kind)
        images = feeding.opened(self)  # before a model is built that may take minutes
        found = None
        if batch_size is None:
            found = self._batch_found_first(forward_only=not training, compile=mode, dtype=dtype)
        if found is not None:
            batch_size = found.best.batch_size
            process_start.cold_age_s()  # after a search no start is a cold one
        way = Way(training=training, mode=mode, dtype=dtype, has_data=images is not None)
        job = self._job(way, batch_size)
        with job.scope():
            loader = None if images is None else job.loader(images, self.settings)
            if loader is not None and feeding.is_alone(self.settings):
                feeding.report_loader(self, loader, self._extras(job))
            else:
                self._measure_steps(job, loader, iterations or self.timed_steps[training])
        self._report_found(found)

    @abstractmethod
    def _built(self, way: Way, batch_size: int) -> Job:
        """Build the model and a step of it; SetupError for a knob that contradicts the way."""

    def _job(self, way: Way, batch_size: int | None) -> Job:
        default = BATCH_SIZES[way.training]
        return self._built(way, batch_size or self.settings.value("batch_size", default))

    def _measure_steps(self, job: Job, loader: Loader | None, iterations: int | None) -> None:
        feed = None
        transfers = None
        data = self.settings.value("data", ON_DEVICE)
        if loader is not None:
            feed = feeding.Feed(loader)
            job = replace(job, arguments=job.outline(feed.example()))
        elif data != ON_DEVICE:
            transfers = job.transfers(data)
        Measuring(
            self,
            job,
            iterations=self.settings.value("iterations", iterations),
            warmup=self._warmup(),
        ).report(
            feed=feed,
            transfers=transfers,
            framework_import_s=self.framework_import_s,
            extras=self._extras(job),
        )

    def _warmup(self) -> int | None:
        return self.settings.value("warmup", self.warmup_steps)

    def _extras(self, job: Job) -> dict[str, Any]:
        return {
            "model": job.network.spec.name,
            "model_library": job.network.spec.library,
            "batch_size": job.batch_size,
            "global_batch_size": job.batch_size,
            "input_shape": spelt(job.network.shape),
            "data": feeding.place(self.settings, ON_DEVICE),
            **feeding.unused(self.settings),
            "warmup": self._warmup() or "found",
            **job.facts(),
        }


def only_for(name: str, value: object, fixed: object) -> SetupError:
    """Return the error of a knob that says something else than the method."""
    return SetupError(f"{name} is {value!r}; this method is the one for {fixed}")

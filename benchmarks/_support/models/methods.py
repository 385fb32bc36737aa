"""The methods of every class that measures a model, and one measurement of its steps.

This module says what to run and how to time it; each framework says how a step runs.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar, TypeVar

from benchmarks._support import machine
from benchmarks._support.datasets import feeding
from benchmarks._support.datasets.feeding import Feed
from benchmarks._support.knobs import Configured
from benchmarks._support.largest_batch import search
from benchmarks._support.largest_batch.search import BatchSearch
from benchmarks._support.models import batches, descent, figures
from benchmarks._support.models.figures import Metric
from benchmarks._support.models.job import COUNTED_BATCH, Job, Loader, Transfers
from benchmarks._support.models.spec import spelt
from perfrun import SetupError


class Measuring:
    """One measurement of the steps of a job for a benchmark.

    `iterations` and `warmup` are None where the measuring loop finds them. The clock of the cold
    start is read just before the first step. `counted` tells the trial's companion which job it is.
    """

    def __init__(
        self,
        benchmark: Configured,
        job: Job,
        *,
        iterations: int | None,
        warmup: int | None,
        counted: Mapping[str, Any],
    ) -> None:
        self._benchmark = benchmark
        self._job = job
        self._counted = counted
        self._iterations = iterations
        self._warmup = warmup
        self._last: Any = None  # what the last step gave
        self._age_s: float | None = None

    def report(
        self,
        *,
        feed: Feed | None,
        transfers: Transfers | None,
        framework_import_s: float | None,
        notes: Callable[[], dict[str, Any]],
    ) -> None:
        """Time the steps and report them. Without feed and transfers the input is on the device.

        The report's notes are taken after the steps, which tell how long compiling took.
        """
        timed = self._steps(feed, transfers)
        extras = {**notes(), **self._scaled(timed)}
        metrics = [*self._job.network.parameter_metrics(), *self._checked()]
        metrics += self._start_up(timed, framework_import_s)
        if transfers is not None:
            metrics += self._parts(transfers, timed)
            extras = {**extras, **transfers.facts}
        if feed is not None:
            metrics += feed.metrics(timed)
            extras = {**extras, **feed.notes}
        # Not in this process: its peak memory is to be that of the steps.
        self._benchmark.count_afterwards(
            "benchmarks._support.models.job.companion",
            self._counted,
            place=self._job.decides_peak(),
            rate=timed.throughput_per_device,
        )
        self._benchmark.report_benchmark(**timed.report_arguments(metrics=metrics, extras=extras))

    def _steps(self, feed: Feed | None, transfers: Transfers | None) -> Any:
        run, step, on_device = self._job.run, self._job.step, self._job.on_device

        # A step's result is dropped before the next step, or both would lie in memory.
        def resident() -> Any:
            self._last = None
            self._last = run()
            return self._waited()

        def end_to_end() -> Any:
            assert transfers is not None
            self._last = None
            self._last = transfers.out(step(*transfers.bring()))
            return self._waited()

        def from_disk(batch: tuple[Any, Any]) -> Any:
            self._last = None
            self._last = step(*on_device(batch))
            return self._waited()

        self._age_s = machine.cold_process_age_s()
        if feed is not None:
            settled = self._settled(lambda: from_disk(next(feed)))
            return feed.measure(self._benchmark, from_disk, **settled)
        step_of_all = resident if transfers is None else end_to_end
        settled = self._settled(step_of_all)
        return self._timed(step_of_all, items_per_step=self._job.batch_size, **settled)

    def _waited(self) -> Any:
        """Return what the measuring loop waits for, where it waits for results; None: for all.

        A loss may be there before the updates that follow from it.
        """
        return None if self._job.training else self._last

    def _timed(self, step: Callable[[], Any], **options: Any) -> Any:
        return self._benchmark.measure(
            step,
            warmup=self._warmup,
            iterations=self._iterations,
            block_size=1,  # each step alone: its latency, not that of steps that overlap
            report=False,
            **options,
        )

    def _settled(self, step: Callable[[], object]) -> dict[str, Any]:
        """Return the option of `measure` that lets the scale of the loss settle, if any."""
        scaler = self._job.loss_scaler
        return {} if scaler is None else {"after_first_call": lambda: scaler.settle(step)}

    def _scaled(self, timed: Any) -> dict[str, Any]:
        """Return notes on the scale of the loss; RuntimeError when timed steps were skipped."""
        scaler = self._job.loss_scaler
        if scaler is None:
            return {}
        scaler.check(timed.facts["steps"])
        return scaler.notes()

    def _checked(self) -> list[Metric]:
        if self._job.training:
            return figures.final_loss(float(self._last))
        self._job.check(self._last)
        return []

    def _start_up(self, timed: Any, framework_import_s: float | None) -> list[Metric]:
        return figures.start_up(
            framework_import_s=framework_import_s,
            model_build_s=self._job.network.build_s,
            first_call_s=timed.first_call_s,
            steady_s=timed.median_s,
            is_compiled=self._job.is_compiled,
            age_s=self._age_s,
        )

    def _parts(self, transfers: Transfers, timed: Any) -> list[Metric]:
        """Time the parts of a step, each in a series of its own."""
        output = self._job.run()
        parts: dict[str, Callable[[], Any]] = {
            "transfer_in": transfers.bring,
            "device_step": self._job.run,
            "transfer_out": lambda: transfers.out(output),
        }
        medians: dict[str, float | None] = {"end_to_end_median_s": timed.median_s}
        for name, part in parts.items():
            medians[f"{name}_median_s"] = self._timed(part, name=name).median_s
        return figures.metrics_of(medians)


EAGER = "eager"
ON_DEVICE = "synthetic/device"  # where input is, unless `data` or `data_dir` says otherwise
BATCH_SIZES = (1, 8)  # inference, training
KNOBS: tuple[str, ...] = (
    *("model", "forward_only", "batch_size", "iterations", "warmup", "device", "dtype"),
    *("data", "compile", "channels_last", "intra_threads", "inter_threads", "seed"),
    *("input_shape", "batch_sizes", "learning_rate", "weight_decay"),
    *(*search.KNOBS, *feeding.KNOBS),
)

# Knobs that change neither a model's arithmetic nor its device's.
_UNCOUNTED = (
    *("iterations", "warmup", "data", "seed", "forward_only", "batch_sizes"),
    *("learning_rate", "weight_decay"),
    *feeding.KNOBS,
)

Class = TypeVar("Class")


def described(**docs: str) -> Callable[[type[Class]], type[Class]]:
    """Give a class's inherited methods docstrings of its own, which `perfrun list` shows."""

    def describe(cls: type[Class]) -> type[Class]:
        for name, doc in docs.items():
            setattr(cls, name, _described(getattr(cls, name), doc))
        return cls

    return describe


def _described(method: FunctionType, doc: str) -> FunctionType:
    # A report has the name of the code that asks for it, so this is a copy and not a wrapper.
    own = FunctionType(method.__code__, method.__globals__, closure=method.__closure__)
    functools.update_wrapper(own, method)
    own.__doc__ = doc
    return own


@dataclass(frozen=True, kw_only=True)
class Way:
    """The settings that a method fixes; None leaves a setting to its knob."""

    training: bool
    mode: str | None = None  # of the knob `compile`
    dtype: str | None = None
    has_data: bool = False  # input comes from a data set: none is made up, to lie in memory unused


class Methods(BatchSearch, ABC):
    """Inference and training of one model. A framework's class makes the job: `_built`."""

    takes: ClassVar[tuple[str, ...]] = KNOBS
    batch_trial = "benchmarks._support.models.job"
    model_name: ClassVar[str] = "efficientnet_b0"  # unless the knob says otherwise
    timed_steps: ClassVar[tuple[int | None, int | None]] = (None, None)  # inference, training
    warmup_steps: ClassVar[int | None] = None  # None: found
    compiled: ClassVar[str]  # what `compile` is in the methods for compiled models
    framework_import_s: ClassVar[float | None]  # None: something else had imported it

    def __init_subclass__(cls, *, model: str | None = None, **more: Any) -> None:
        """Fix the model of a class by `class Name(Model, model=...)`; it then has no such knob."""
        super().__init_subclass__(**more)
        if model is not None:
            cls.model_name = model
            cls.takes = tuple(name for name in cls.takes if name != "model")

    def run(self) -> None:
        """Run inference where `forward_only` is true, else training."""
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

    def inference_batches(self) -> None:
        """Forward passes with each of `batch_sizes`: on the device, the copies, and in total."""
        if self.settings.value("data_dir"):
            raise SetupError("data_dir is given; inference_batches takes synthetic input")
        for size in batches.sizes_of(self):
            job = self.job(training=False, batch_size=size)
            with job.scope():
                batches.measure(
                    self,
                    job,
                    iterations=self.settings.value("iterations", self.timed_steps[0]),
                    warmup=self._warmup(),
                    notes=functools.partial(self._extras, job),
                )

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
        """Build the model and a step of it as the knobs say; the arguments override the knobs."""
        return self._job(Way(training=training), batch_size)

    def counted_job(self, *, training: bool, mode: str | None, dtype: str | None) -> Job:
        """Build the job of which a companion counts the work and measures the device's peak."""
        return self._built(Way(training=training, mode=mode, dtype=dtype), COUNTED_BATCH)

    def _counted(self, way: Way) -> dict[str, Any]:
        """Return the arguments of `job.companion`; what does not decide the figures is left out."""
        knobs = self._knobs_of_a_probe()
        return {
            "class": [type(self).__module__, type(self).__qualname__],
            "knobs": {name: value for name, value in knobs.items() if name not in _UNCOUNTED},
            "way": {"training": way.training, "mode": way.mode, "dtype": way.dtype},
        }

    def measure_model(
        self,
        *,
        training: bool,
        mode: str | None = None,
        dtype: str | None = None,
        batch_size: int | None = None,
        iterations: int | None = None,
    ) -> None:
        """Measure one way of running the model and report it, after a search if one is asked for.

        `iterations` is the number of timed steps unless the knob says otherwise.
        """
        if self.settings.value("forward_only", not training) == training:
            kind = "training" if training else "inference"
            raise only_for("forward_only", training, kind)
        batches.refuse(self)
        images = feeding.opened(self)  # before a model is built that may take minutes
        found = None
        if batch_size is None:
            found = self._batch_found_first(forward_only=not training, compile=mode, dtype=dtype)
        if found is not None:
            batch_size = found.best.batch_size
            machine.cold_process_age_s()  # after a search no start is a cold one
        way = Way(training=training, mode=mode, dtype=dtype, has_data=images is not None)
        job = self._job(way, batch_size)
        with job.scope():
            loader = None if images is None else job.loader(images, self.settings)
            if loader is not None and feeding.is_alone(self.settings):
                feeding.report_loader(self, loader, self._extras(job))
            else:
                self._measure_steps(way, job, loader, iterations or self.timed_steps[training])
        self._report_found(found)

    @abstractmethod
    def _built(self, way: Way, batch_size: int) -> Job:
        """Build the model and a step of it; SetupError for a knob that contradicts the way."""

    def _mode_and_dtype(self, way: Way, *, modes: Sequence[str], usual: str) -> tuple[str, str]:
        """Return the mode in which steps run, one of `modes`, and the type of their arithmetic.

        SetupError is raised for another mode, and for a knob that contradicts the method.
        """
        mode = self.settings.one_of("compile", way.mode or usual, modes)
        dtype = self.settings.value("dtype", way.dtype or "float32")
        for name, value, fixed in (("compile", mode, way.mode), ("dtype", dtype, way.dtype)):
            if fixed is not None and value != fixed:
                raise only_for(name, value, fixed)
        return mode, dtype

    def _job(self, way: Way, batch_size: int | None) -> Job:
        default = BATCH_SIZES[way.training]
        return self._built(way, batch_size or self.settings.value("batch_size", default))

    def _measure_steps(
        self, way: Way, job: Job, loader: Loader | None, iterations: int | None
    ) -> None:
        feed = None
        transfers = None
        data = self.settings.value("data", ON_DEVICE)
        if loader is not None:
            feed = feeding.Feed(loader)
        elif data != ON_DEVICE:
            transfers = job.transfers(data)
        Measuring(
            self,
            job,
            iterations=self.settings.value("iterations", iterations),
            warmup=self._warmup(),
            counted=self._counted(way),
        ).report(
            feed=feed,
            transfers=transfers,
            framework_import_s=self.framework_import_s,
            notes=functools.partial(self._extras, job),
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
            **(self._training_facts(job) if job.training else {}),
            **job.facts(),
        }

    def _training_facts(self, job: Job) -> dict[str, Any]:
        given = descent.of(job.network.spec, self.settings)
        return {"learning_rate": given.learning_rate, "weight_decay": given.weight_decay}


def only_for(name: str, value: object, fixed: object) -> SetupError:
    """Return the error of a knob that contradicts the method."""
    return SetupError(f"{name} is {value!r}; this method is the one for {fixed}")


class FewSteps(Methods, ABC):
    """`Methods` with 30 steps of inference, 6 of training, and 3 before them."""

    timed_steps = (30, 6)
    warmup_steps = 3

    def inference_batch8(self) -> None:
        """Forward passes, always batch 8."""
        self.measure_model(training=False, batch_size=8, iterations=10)

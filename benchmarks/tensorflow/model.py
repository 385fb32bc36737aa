"""Any Keras model of the catalogue: inference and training, eager, as graphs, compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.datasets import feeding
from benchmarks.knobs import TENSORFLOW_COMPILE
from benchmarks.largest_batch import searchable
from benchmarks.largest_batch.searchable import BatchSearch
from benchmarks.models import figures, process_start
from benchmarks.tensorflow import arithmetic, placement, steps
from benchmarks.tensorflow.building import Built, build
from benchmarks.tensorflow.framework import IMPORT_S, KERAS_VERSION, tf
from benchmarks.tensorflow.loader import loader_for
from benchmarks.tensorflow.placement import Placement
from benchmarks.tensorflow.transfers import Transfers
from perfrun import SetupError

GRAPH, EAGER, XLA = "graph", "eager", "xla"
KNOBS: tuple[str, ...] = (
    *("model", "forward_only", "batch_size", "iterations", "warmup", "device", "dtype"),
    *("data", "compile", "channels_last", "intra_threads", "inter_threads", "seed"),
    *("input_shape", *searchable.KNOBS, *feeding.KNOBS),
)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What is measured."""

    built: Built
    place: Placement
    mode: str
    batch_size: int
    forward_only: bool
    iterations: int | None  # None: the stop rule


class Model(BatchSearch):
    """A model chosen by `model`, random weights; input is synthetic, or images of `data_dir`."""

    takes: ClassVar[tuple[str, ...]] = KNOBS
    batch_trial = "benchmarks.tensorflow.batch_trial"
    model_name: ClassVar[str] = "efficientnet_b0"  # unless `model` says otherwise
    timed_steps: ClassVar[tuple[int | None, int | None]] = (None, None)  # inference, training
    warmup_steps: ClassVar[int | None] = None  # None: found

    def run(self) -> None:
        """Inference where `forward_only` is true, else training."""
        if self.settings.value("forward_only", False):
            self.inference()
        else:
            self.training()

    def inference(self) -> None:
        """Forward passes as a graph (`tf.function`), or as `compile` says; batch 1."""
        self._measure_model(forward_only=True)

    def inference_eager(self) -> None:
        """Forward passes without a graph."""
        self._measure_model(forward_only=True, mode=EAGER)

    def inference_compiled(self) -> None:
        """Forward passes compiled by XLA."""
        self._measure_model(forward_only=True, mode=XLA)

    def inference_bfloat16(self) -> None:
        """Forward passes under the policy mixed_bfloat16."""
        self._measure_model(forward_only=True, dtype="bfloat16")

    def inference_float16(self) -> None:
        """Forward passes under the policy mixed_float16."""
        self._measure_model(forward_only=True, dtype="float16")

    def training(self) -> None:
        """Training steps (forward, backward, SGD) as a graph, or as `compile` says; batch 8."""
        self._measure_model(forward_only=False)

    def training_eager(self) -> None:
        """Training steps without a graph."""
        self._measure_model(forward_only=False, mode=EAGER)

    def training_compiled(self) -> None:
        """Training steps compiled by XLA."""
        self._measure_model(forward_only=False, mode=XLA)

    def training_bfloat16(self) -> None:
        """Training steps under the policy mixed_bfloat16."""
        self._measure_model(forward_only=False, dtype="bfloat16")

    def training_float16(self) -> None:
        """Training steps under the policy mixed_float16, the loss scaled."""
        self._measure_model(forward_only=False, dtype="float16")

    def _measure_model(
        self,
        *,
        forward_only: bool,
        mode: str | None = None,
        dtype: str | None = None,
        batch_size: int | None = None,
        iterations: int | None = None,
    ) -> None:
        if self.settings.value("forward_only", forward_only) != forward_only:
            kind = "inference" if forward_only else "training"
            raise SetupError(
                f"forward_only is {not forward_only}; this method is the one for {kind}"
            )
        found = None
        if batch_size is None:
            found = self._batch_found_first(forward_only=forward_only, compile=mode, dtype=dtype)
        if found is not None:
            batch_size = found.best.batch_size
            process_start.cold_age_s()  # after a search no start is a cold one
        job = self._job(forward_only, mode, dtype, batch_size, iterations)
        with job.place.scope():
            if feeding.is_alone(self.settings):
                loader = loader_for(self, job.built, job.batch_size)
                feeding.report_loader(self, loader, self._extras(job))
            else:
                self._measure_job(job)
        self._report_found(found)

    def _job(
        self,
        forward_only: bool,
        mode: str | None,
        dtype: str | None,
        batch_size: int | None,
        iterations: int | None,
    ) -> _Job:
        chosen = self.settings.one_of("compile", mode or GRAPH, TENSORFLOW_COMPILE)
        wanted_type = self.settings.value("dtype", dtype or "float32")
        for name, value, fixed in (("compile", chosen, mode), ("dtype", wanted_type, dtype)):
            if fixed is not None and value != fixed:
                raise SetupError(f"{name} is {value!r}; this method is the one for {fixed}")
        if not self.settings.value("channels_last", True):
            raise SetupError("channels_last is false; Keras models have the channels last here")
        place = placement.choose(self.settings)
        built = build(
            self.settings.value("model", self.model_name),
            shape=self.settings.value("input_shape"),
            dtype=wanted_type,
            seed=self.settings.value("seed", 0),
            placement=place,
        )
        own = self.timed_steps[0 if forward_only else 1]
        default = 1 if forward_only else 8
        return _Job(
            built=built,
            place=place,
            mode=chosen,
            batch_size=batch_size or self.settings.value("batch_size", default),
            forward_only=forward_only,
            iterations=self.settings.value("iterations", iterations or own),
        )

    def ready(self, *, forward_only: bool, batch_size: int) -> tuple[Any, Callable[[], Any]]:
        """Build the model; return the scope to run in, and a step without its measurement."""
        job = self._job(forward_only, None, None, batch_size, None)
        with job.place.scope():
            plain, arguments = self._step(job)
            function = steps.as_run(plain, job.mode)
        return job.place.scope(), lambda: function(*arguments)

    def _step(self, job: _Job) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        spec, model = job.built.spec, job.built.model
        inputs = steps.example_inputs(spec, model, job.batch_size)
        if job.forward_only:
            return steps.forward(model), (inputs,)
        plain = steps.training(model, spec, half=job.built.dtype == "float16")
        return plain, (inputs, steps.example_labels(spec, inputs))

    def _measure_job(self, job: _Job) -> None:
        plain, arguments = self._step(job)
        feed = None
        if feeding.is_wanted(self.settings):
            feed = feeding.Feed(loader_for(self, job.built, job.batch_size))
            arguments = feed.example[: len(arguments)]
        function = steps.as_run(plain, job.mode)
        data = feeding.place(self.settings, "synthetic/device")
        on_host = data not in ("synthetic/device", "data_dir")
        transfers = Transfers(arguments, data, job.place) if on_host else None
        last: Any = None

        def step() -> None:
            nonlocal last
            last = function(*arguments)

        def end_to_end() -> None:
            nonlocal last
            last = transfers.out(function(*transfers.bring()))  # type: ignore[union-attr]

        def from_disk(batch: tuple[Any, ...]) -> None:
            nonlocal last
            last = function(*batch[: len(arguments)])

        age_s = process_start.cold_age_s()
        if feed is not None:
            timed = feed.measure(self, from_disk)
        else:
            timed = self._timed(step if transfers is None else end_to_end, job)
        metrics = job.built.parameter_metrics()
        if job.forward_only:
            steps.check_output(job.built.spec, last, job.batch_size)
        else:
            metrics += [{"name": "final_loss", "value": steps.checked_loss(last)}]
        metrics += self._start_up(job, timed, age_s)
        if transfers is not None:
            metrics += self._transfer_metrics(job, transfers, step, function, timed)
        if feed is not None:
            metrics += feed.metrics(timed)
        found, counted = self._arithmetic(job, plain, function, arguments, timed)
        extras = {**self._extras(job), **counted, **(feed.notes if feed else {})}
        self.report_benchmark(**timed.report_arguments(metrics=(*metrics, *found), extras=extras))

    def _timed(self, step: Callable[[], None], job: _Job) -> Any:
        return self.measure(
            step,
            items_per_step=job.batch_size,
            warmup=self.settings.value("warmup", self.warmup_steps),
            iterations=job.iterations,
            block_size=1,  # each step alone: its latency, not that of steps that overlap
            report=False,
        )

    def _start_up(self, job: _Job, timed: Any, age_s: float | None) -> list[dict[str, Any]]:
        return figures.start_up(
            framework_import_s=IMPORT_S,
            model_build_s=job.built.build_s,
            first_call_s=timed.first_call_s,
            steady_s=timed.median_s,
            is_compiled=job.mode != EAGER,
            age_s=age_s,
        )

    def _transfer_metrics(
        self,
        job: _Job,
        transfers: Transfers,
        step: Callable[[], None],
        function: Callable[..., Any],
        timed: Any,
    ) -> list[dict[str, Any]]:
        """The parts of a step, each in a series of its own."""
        output = function(*transfers.bring())
        parts: dict[str, Callable[[], Any]] = {
            "transfer_in": transfers.bring,
            "device_step": step,
            "transfer_out": lambda: transfers.out(output),
        }
        medians: dict[str, float | None] = {"end_to_end_median_s": timed.median_s}
        for name, part in parts.items():
            series = self.measure(
                part,
                name=name,
                iterations=job.iterations,
                warmup=self.settings.value("warmup", self.warmup_steps),
                block_size=1,
                report=False,
            )
            medians[f"{name}_median_s"] = series.median_s
        return figures.metrics_of(medians)

    def _arithmetic(
        self,
        job: _Job,
        plain: Callable[..., Any],
        function: Any,
        arguments: tuple[Any, ...],
        timed: Any,
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        traced = tf.function(plain) if job.mode == EAGER else function
        passes = "forward" if job.forward_only else "forward and backward"
        work = arithmetic.count(traced, arguments, batch_size=job.batch_size, passes=passes)
        peak = arithmetic.measured_peak(job.place.kind, job.built.dtype)
        return figures.arithmetic(work, peak, timed.throughput_per_device)

    def _extras(self, job: _Job) -> dict[str, Any]:
        return {
            "model": job.built.spec.name,
            "model_library": job.built.spec.library,
            "device": job.place.description,
            **placement.threads(),
            "batch_size": job.batch_size,
            "global_batch_size": job.batch_size,
            "input_shape": "x".join(map(str, job.built.shape)),
            "dtype": job.built.dtype,
            "compile": job.mode,
            "channels_last": "true",
            "data": feeding.place(self.settings, "synthetic/device"),
            **feeding.unused(self.settings),
            "warmup": self.settings.value("warmup", self.warmup_steps) or "found",
            "seed": self.settings.value("seed", 0),
            "tensorflow_version": tf.__version__,
            "keras_version": KERAS_VERSION,
        }

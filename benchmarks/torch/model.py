"""Any PyTorch model of the catalogue: inference and training, eager or compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.datasets import feeding
from benchmarks.largest_batch import searchable
from benchmarks.largest_batch.searchable import BatchSearch
from benchmarks.models import figures, process_start
from benchmarks.torch import arithmetic, catalogue, execution
from benchmarks.torch.execution import COMPILED, EAGER, Execution
from benchmarks.torch.framework import IMPORT_S
from benchmarks.torch.loader import loader_for, on_device
from benchmarks.torch.transfers import DEVICE, Transfers
from benchmarks.torch.workload import (
    Forward,
    Network,
    Training,
    build,
    example_inputs,
    example_labels,
    in_layout,
)
from perfrun import SetupError

KNOBS: tuple[str, ...] = (
    *("model", "forward_only", "batch_size", "iterations", "warmup", "device", "dtype"),
    *("data", "cudnn_benchmark", "cudnn_fastest", "compile", "channels_last"),
    *("intra_threads", "inter_threads", "seed", "input_shape"),
    *(*searchable.KNOBS, *feeding.KNOBS),
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A model that is ready, and one step of it: `step(*arguments)`."""

    network: Network
    how: Execution
    training: bool
    batch_size: int
    step: Callable[..., Any]
    arguments: tuple[Any, ...]  # on the device

    def run(self) -> Any:
        """Run one step on the input that is on the device."""
        return self.step(*self.arguments)


class Model(BatchSearch):
    """A model chosen by `model`, random weights; input is synthetic, or images of `data_dir`."""

    takes = KNOBS
    batch_trial = "benchmarks.torch.batch_trial"
    model_name: ClassVar[str] = "efficientnet_b0"  # unless `model` says otherwise
    timed_steps: tuple[int | None, int | None] = (None, None)  # inference, training
    warmup_steps: ClassVar[int | None] = None  # None: found

    def run(self) -> None:
        """Inference where `forward_only` is true, else training."""
        if self.settings.value("forward_only", False):
            self.inference()
        else:
            self.training()

    def inference(self) -> None:
        """Forward passes, eager unless `compile` says otherwise; batch 1."""
        self.measure_model(training=False)

    def inference_eager(self) -> None:
        """Forward passes without compilation."""
        self.measure_model(training=False, mode=EAGER)

    def inference_compiled(self) -> None:
        """Forward passes compiled by torch.compile."""
        self.measure_model(training=False, mode=COMPILED)

    def inference_bfloat16(self) -> None:
        """Forward passes under autocast to bfloat16."""
        self.measure_model(training=False, dtype="bfloat16")

    def inference_float16(self) -> None:
        """Forward passes under autocast to float16."""
        self.measure_model(training=False, dtype="float16")

    def training(self) -> None:
        """Training steps (forward, backward, SGD), eager unless `compile` says so; batch 8."""
        self.measure_model(training=True)

    def training_eager(self) -> None:
        """Training steps without compilation."""
        self.measure_model(training=True, mode=EAGER)

    def training_compiled(self) -> None:
        """Training steps, forward and backward pass compiled by torch.compile."""
        self.measure_model(training=True, mode=COMPILED)

    def training_bfloat16(self) -> None:
        """Training steps, the forward pass under autocast to bfloat16."""
        self.measure_model(training=True, dtype="bfloat16")

    def training_float16(self) -> None:
        """Training steps under autocast to float16, with scaled gradients."""
        self.measure_model(training=True, dtype="float16")

    def job(
        self,
        *,
        training: bool,
        batch_size: int | None = None,
        mode: str | None = None,
        dtype: str | None = None,
    ) -> Job:
        """Build the model and a step of it as the knobs say; what is given here is fixed."""
        how = self._execution(mode, dtype)
        spec = catalogue.find(self.settings.value("model", self.model_name))
        network = build(spec, how, self.settings.value("input_shape"), training=training)
        size = batch_size or self.settings.value("batch_size", 8 if training else 1)
        inputs = in_layout(how, example_inputs(spec, network.shape, size, device=how.device))
        return Job(
            network=network,
            how=how,
            training=training,
            batch_size=size,
            step=(Training if training else Forward)(network, how),
            arguments=(inputs, example_labels(spec, inputs)) if training else (inputs,),
        )

    def measure_model(
        self,
        *,
        training: bool,
        batch_size: int | None = None,
        mode: str | None = None,
        dtype: str | None = None,
    ) -> None:
        """Measure one way of running the model, and report it; after a search if asked for."""
        if self.settings.value("forward_only", not training) == training:
            kind = "training" if training else "inference"
            raise SetupError(f"forward_only is {training}; this method is the one for {kind}")
        found_batch = None
        if batch_size is None:
            found_batch = self._batch_found_first(
                forward_only=not training, compile=mode, dtype=dtype
            )
        if found_batch is not None:
            batch_size = found_batch.best.batch_size
            process_start.cold_age_s()  # after a search no start is a cold one
        job = self.job(training=training, batch_size=batch_size, mode=mode, dtype=dtype)
        if feeding.is_alone(self.settings):
            loader = loader_for(self, job.network, job.how, job.batch_size)
            feeding.report_loader(self, loader, self._extras(job))
            return
        feed, transfers = self._input(job)
        age_s = process_start.cold_age_s()
        timed, last = self._steps(job, feed, transfers)
        metrics = [*job.network.parameter_metrics(), *_checked(job, last)]
        metrics += self._start_up(job, timed, age_s)
        if transfers is not None:
            metrics += self._transfer_metrics(job, transfers, timed)
        if feed is not None:
            metrics += feed.metrics(timed)
        work = arithmetic.count(job.network, training=training)
        peak = arithmetic.measured_peak(job.how.device, job.how.dtype)
        found, counted = figures.arithmetic(work, peak, timed.throughput_per_device)
        extras = {**self._extras(job), **counted, **(feed.notes if feed else {})}
        extras |= {} if transfers is None else transfers.facts
        self.report_benchmark(**timed.report_arguments(metrics=(*metrics, *found), extras=extras))
        self._report_found(found_batch)

    def _input(self, job: Job) -> tuple[feeding.Feed | None, Transfers | None]:
        """Return where input comes from; two times None: it is on the device already."""
        if feeding.is_wanted(self.settings):
            return feeding.Feed(loader_for(self, job.network, job.how, job.batch_size)), None
        data = self.settings.value("data", DEVICE)
        return None, None if data == DEVICE else Transfers(job.arguments, data, job.how)

    def _steps(
        self, job: Job, feed: feeding.Feed | None, transfers: Transfers | None
    ) -> tuple[Any, Any]:
        """Time the steps; also return what the last of them gave."""
        last: Any = None

        def step() -> None:
            nonlocal last
            last = job.run()

        def end_to_end() -> None:
            nonlocal last
            assert transfers is not None
            last = transfers.out(job.step(*transfers.bring()))

        def from_disk(batch: tuple[Any, Any]) -> None:
            nonlocal last
            last = job.step(*on_device(job.how, batch)[: len(job.arguments)])

        if feed is not None:
            timed = feed.measure(self, from_disk)
        else:
            timed = self._timed(step if transfers is None else end_to_end, job)
        return timed, last

    def _execution(self, mode: str | None, dtype: str | None) -> Execution:
        how = execution.choose(
            self.settings, compile_default=mode or EAGER, dtype_default=dtype or "float32"
        )
        eager_or_not = mode is not None and (mode == EAGER) != (how.compile == EAGER)
        if eager_or_not or dtype not in (None, how.dtype):
            given = f"compile is {how.compile!r}" if eager_or_not else f"dtype is {how.dtype!r}"
            wanted = (mode if mode == EAGER else "torch.compile") if eager_or_not else dtype
            raise SetupError(f"{given}; this method is the one for {wanted}")
        return how

    def _timed(self, step: Callable[[], None], job: Job) -> Any:
        return self.measure(
            step,
            items_per_step=job.batch_size,
            warmup=self.settings.value("warmup", self.warmup_steps),
            iterations=self.settings.value("iterations", self.timed_steps[job.training]),
            block_size=1,  # each step alone: its latency, not that of steps that overlap
            report=False,
        )

    def _start_up(self, job: Job, timed: Any, age_s: float | None) -> list[dict[str, Any]]:
        return figures.start_up(
            framework_import_s=IMPORT_S,
            model_build_s=job.network.build_s,
            first_call_s=timed.first_call_s,
            steady_s=timed.median_s,
            is_compiled=job.how.compile != EAGER,
            age_s=age_s,
        )

    def _transfer_metrics(self, job: Job, transfers: Transfers, timed: Any) -> list[dict[str, Any]]:
        """The parts of a step, each in a series of its own."""
        output = job.run()
        parts: dict[str, Callable[[], Any]] = {
            "transfer_in": transfers.bring,
            "device_step": job.run,
            "transfer_out": lambda: transfers.out(output),
        }
        medians: dict[str, float | None] = {"end_to_end_median_s": timed.median_s}
        for name, part in parts.items():
            series = self.measure(
                part,
                name=name,
                iterations=self.settings.value("iterations"),
                warmup=self.settings.value("warmup"),
                block_size=1,
                report=False,
            )
            medians[f"{name}_median_s"] = series.median_s
        return figures.metrics_of(medians)

    def _extras(self, job: Job) -> dict[str, Any]:
        compiled = job.how.compile != EAGER
        return {
            "model": job.network.spec.name,
            "model_library": job.network.spec.library,
            **job.how.facts(),
            "batch_size": job.batch_size,
            "global_batch_size": job.batch_size,
            "input_shape": "x".join(map(str, job.network.shape)),
            "data": feeding.place(self.settings, DEVICE),
            **feeding.unused(self.settings),
            "warmup": self.settings.value("warmup", self.warmup_steps) or "found",
            **catalogue.versions(job.network.spec.library),
            **({"compile_cache": execution.compile_cache()} if compiled else {}),
            **({"cudnn_fastest": "no effect"} if self.settings.value("cudnn_fastest") else {}),
        }


def _checked(job: Job, last: Any) -> list[dict[str, Any]]:
    if isinstance(job.step, Forward):
        job.step.check(last, job.batch_size)
        return []
    final_loss = float(last)
    if not math.isfinite(final_loss):
        raise RuntimeError(f"the loss became {final_loss}; these steps trained nothing")
    return [{"name": "final_loss", "value": final_loss}]

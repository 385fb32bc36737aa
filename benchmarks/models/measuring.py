"""One measurement of a model: its steps, where their input comes from, and the figures of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.configured import Configured
from benchmarks.datasets.feeding import Feed
from benchmarks.models import figures, process_start
from benchmarks.models.figures import Metric
from benchmarks.models.job import Job, Transfers


class Measuring:
    """How the steps of a job are timed for a benchmark.

    `iterations` and `warmup` are None where they are to be found; the clock of the cold start is
    read just before the first step.
    """

    def __init__(
        self, benchmark: Configured, job: Job, *, iterations: int | None, warmup: int | None
    ) -> None:
        self._benchmark = benchmark
        self._job = job
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
        extras: dict[str, Any],
    ) -> None:
        """Time the steps and report them. Without feed and transfers, input is on the device."""
        timed = self._steps(feed, transfers)
        metrics = [*self._job.network.parameter_metrics(), *self._checked()]
        metrics += self._start_up(timed, framework_import_s)
        if transfers is not None:
            metrics += self._parts(transfers, timed)
            extras = {**extras, **transfers.facts}
        if feed is not None:
            metrics += feed.metrics(timed)
            extras = {**extras, **feed.notes}
        work, rate = self._job.work(), timed.throughput_per_device
        peak = self._job.peak(figures.achieved(work, rate))
        found, counted = figures.arithmetic(work, peak, rate)
        self._benchmark.report_benchmark(
            **timed.report_arguments(metrics=(*metrics, *found), extras={**extras, **counted})
        )

    def _steps(self, feed: Feed | None, transfers: Transfers | None) -> Any:
        run, step, on_device = self._job.run, self._job.step, self._job.on_device

        def resident() -> None:
            self._last = run()

        def end_to_end() -> None:
            assert transfers is not None
            self._last = transfers.out(step(*transfers.bring()))

        def from_disk(batch: tuple[Any, Any]) -> None:
            self._last = step(*on_device(batch))

        self._age_s = process_start.cold_age_s()
        if feed is not None:
            return feed.measure(self._benchmark, from_disk)
        step_of_all = resident if transfers is None else end_to_end
        return self._timed(step_of_all, items_per_step=self._job.batch_size)

    def _timed(self, step: Callable[[], Any], **options: Any) -> Any:
        return self._benchmark.measure(
            step,
            warmup=self._warmup,
            iterations=self._iterations,
            block_size=1,  # each step alone: its latency, not that of steps that overlap
            report=False,
            **options,
        )

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
        """The parts of a step, each in a series of its own."""
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

"""Any PyTorch model of the catalogue: inference and training, eager or compiled."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks._support.knobs import Settings
from benchmarks._support.models import descent, methods
from benchmarks._support.models import job as jobs
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.methods import EAGER, Methods, Way, described, only_for
from benchmarks.torch._support import execution
from benchmarks.torch._support.execution import COMPILED, Execution
from benchmarks.torch._support.framework import IMPORT_S
from benchmarks.torch._support.workload import (
    Forward,
    Network,
    Training,
    Transfers,
    build,
    check_output,
    example_inputs,
    example_labels,
    in_layout,
)
from benchmarks.torch.catalogue import find as find_model
from benchmarks.torch.catalogue import versions as library_versions

if TYPE_CHECKING:  # imported where there is a data set
    from benchmarks._support.datasets.loading import Opened
    from benchmarks.torch._support.loader import Loader

KNOBS: tuple[str, ...] = (*methods.KNOBS, "cudnn_benchmark", "cudnn_fastest")


@dataclass(frozen=True, kw_only=True)
class Job(jobs.Job):
    """A PyTorch model on its device."""

    network: Network
    how: Execution

    @property
    def is_compiled(self) -> bool:
        return self.how.compile != EAGER

    def scope(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def wait(self, result: Any) -> None:  # noqa: ARG002
        execution.wait(self.how.device)

    def device_peak_bytes(self) -> int | None:
        return execution.peak_bytes(self.how.device)

    def on_device(self, batch: tuple[Any, Any]) -> tuple[Any, ...]:
        from benchmarks.torch._support.loader import on_device

        return on_device(self.how, batch)[: 1 + self.training]

    def loader(self, images: Opened, settings: Settings) -> Loader:
        from benchmarks.torch._support.loader import loader_for

        return loader_for(images, settings, self.network, self.how, self.batch_size)

    def transfers(self, data: str) -> Transfers:
        return Transfers(self.arguments, data, self.how)

    def check(self, output: Any) -> None:
        check_output(self.network.spec, output, self.batch_size)

    def work(self) -> Work:
        from benchmarks.torch._support import arithmetic  # for a companion; a trial does not count

        return arithmetic.count(self.network, training=self.training)

    def peak(self, done: float | None) -> Peak:
        from benchmarks.torch._support.arithmetic import measured_peak

        return measured_peak(self.how.device, self.how.dtype, done)

    def facts(self) -> dict[str, Any]:
        cache = {"compile_cache": execution.compile_cache()} if self.how.uses_compiler else {}
        return {
            **self.how.facts(),
            **library_versions(self.network.spec.library),
            **cache,
        }


@described(
    inference="Forward passes, eager unless `compile` says otherwise; batch 1.",
    inference_compiled="Forward passes compiled by torch.compile.",
    inference_bfloat16="Forward passes under autocast to bfloat16.",
    inference_float16="Forward passes under autocast to float16.",
    training="Training steps (forward, backward, SGD), eager unless `compile` says so; batch 8.",
    training_compiled="Training steps, forward and backward pass compiled by torch.compile.",
    training_bfloat16="Training steps, the forward pass under autocast to bfloat16.",
    training_float16="Training steps under autocast to float16, with scaled gradients.",
)
class Model(Methods):
    """A model chosen by `model`, random weights; input is synthetic, or images of `data_dir`."""

    takes = KNOBS
    compiled = COMPILED
    framework_import_s = IMPORT_S

    def _built(self, way: Way, batch_size: int) -> Job:
        how = self._execution(way.mode, way.dtype)
        spec = find_model(self.settings.value("model", self.model_name))
        network = build(spec, how, self.settings.value("input_shape"), training=way.training)
        arguments: tuple[Any, ...] = ()
        if not way.has_data:
            where = {"device": how.device}
            inputs = in_layout(how, example_inputs(spec, network.shape, batch_size, **where))
            arguments = (inputs, example_labels(spec, inputs)) if way.training else (inputs,)
        trained = None
        if way.training:
            trained = Training(network, how, descent.of(spec, self.settings))
        return Job(
            network=network,
            how=how,
            training=way.training,
            batch_size=batch_size,
            step=trained or Forward(network, how),
            arguments=arguments,
            loss_scaler=None if trained is None else trained.loss_scaler,
        )

    def _execution(self, mode: str | None, dtype: str | None) -> Execution:
        how = execution.choose(
            self.settings, compile_default=mode or EAGER, dtype_default=dtype or "float32"
        )
        if mode is not None and (mode == EAGER) != (how.compile == EAGER):
            raise only_for("compile", how.compile, mode if mode == EAGER else "torch.compile")
        if dtype not in (None, how.dtype):
            raise only_for("dtype", how.dtype, dtype)
        return how

    def _extras(self, job: jobs.Job) -> dict[str, Any]:
        fastest = {"cudnn_fastest": "no effect"} if self.settings.value("cudnn_fastest") else {}
        return {**super()._extras(job), **fastest}

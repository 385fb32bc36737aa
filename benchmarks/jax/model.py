"""Any Flax model of the catalogue: inference and training by JAX, compiled by XLA or eager."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks._support.knobs import Settings
from benchmarks._support.models import descent
from benchmarks._support.models import job as jobs
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.methods import EAGER, KNOBS, Methods, Way, described
from benchmarks.jax._support import placement, workload
from benchmarks.jax._support.flax_library import FLAX_VERSION, IMPORT_S
from benchmarks.jax._support.framework import jax
from benchmarks.jax._support.placement import Placement
from benchmarks.jax._support.step import Step
from benchmarks.jax._support.workload import LossScaler, Network, Transfers, build
from perfrun import SetupError

if TYPE_CHECKING:  # imported where there is a data set
    from benchmarks._support.datasets.loading import Opened
    from benchmarks._support.datasets.threaded import Loader

__all__ = ["KNOBS", "Job", "Model"]
XLA = "xla"  # `jax.jit`


@dataclass(frozen=True, kw_only=True)
class Job(jobs.Job):
    """A Flax model on its device."""

    network: Network
    place: Placement
    mode: str
    step: Step
    seed: int
    loss_scaler: LossScaler | None = None

    @property
    def is_compiled(self) -> bool:
        return self.mode != EAGER

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self.place.scope()
        return scope

    def wait(self, result: Any) -> None:  # noqa: ARG002
        self.place.wait()

    def device_peak_bytes(self) -> int | None:
        return self.place.peak_bytes()

    def on_device(self, batch: tuple[Any, Any]) -> tuple[Any, ...]:
        with self.place.scope():
            return tuple(jax.numpy.array(part) for part in batch[: 1 + self.training])

    def loader(self, images: Opened, settings: Settings) -> Loader:
        from benchmarks._support.datasets.threaded import Loader

        network = self.network
        classes = network.spec.classes
        return Loader(images, settings, network.shape, self.batch_size, classes=classes)

    def transfers(self, data: str) -> Transfers:  # noqa: ARG002 - JAX' copies are of one kind
        return Transfers(self.arguments, self.place)

    def check(self, output: Any) -> None:
        workload.check_output(self.network.spec, output, self.batch_size)

    def work(self) -> Work:
        from benchmarks.jax._support import arithmetic  # for a companion; a trial does not count

        return arithmetic.count(
            self.step.function,
            self.step.state,
            self.arguments,
            batch_size=self.batch_size,
            training=self.training,
        )

    def peak(self, done: float | None) -> Peak:
        from benchmarks.jax._support.arithmetic import measured_peak

        return measured_peak(self.place.kind, self.network.dtype, done)

    def facts(self) -> dict[str, Any]:
        return {
            "device": self.place.description,
            "threads": placement.threads(),
            "inter_threads": placement.threads(),
            "dtype": self.network.dtype,
            "compile": self.mode,
            "channels_last": "true",
            "seed": self.seed,
            "jax_version": jax.__version__,
            "flax_version": FLAX_VERSION,
            **_tf32(self.place),
            **self.step.facts,
        }


def _tf32(place: Placement) -> dict[str, str]:
    """Return whether products of float32 may be rounded to TF32, as JAX does by default on GPUs."""
    if place.kind != "gpu":
        return {}
    precise = jax.config.jax_default_matmul_precision in ("float32", "highest")
    return {"matmul_allow_tf32": str(not precise).lower()}


@described(
    inference="Forward passes compiled by XLA (`jax.jit`), or as `compile` says; batch 1.",
    inference_eager="Forward passes operator by operator (`jax.disable_jit`).",
    inference_compiled="Forward passes compiled by XLA, always.",
    inference_bfloat16="Forward passes with arithmetic in bfloat16, weights in float32.",
    inference_float16="Forward passes with arithmetic in float16, weights in float32.",
    training="Training steps (forward, backward, SGD) compiled by XLA, or as `compile` says; "
    "batch 8.",
    training_eager="Training steps operator by operator (`jax.disable_jit`).",
    training_compiled="Training steps compiled by XLA, always.",
    training_bfloat16="Training steps with arithmetic in bfloat16, weights in float32.",
    training_float16="Training steps with arithmetic in float16, the loss scaled.",
)
class Model(Methods):
    """A model chosen by `model`, random weights; input is synthetic, or images of `data_dir`."""

    compiled = XLA
    framework_import_s = IMPORT_S

    def _built(self, way: Way, batch_size: int) -> Job:
        mode, dtype = self._choices(way)
        place = placement.choose(self.settings)
        seed = self.settings.value("seed", 0)
        network = build(
            self.settings.value("model", self.model_name),
            shape=self.settings.value("input_shape"),
            dtype=dtype,
            seed=seed,
            placement=place,
            training=way.training,
        )
        with place.scope():
            arguments: tuple[Any, ...] = ()
            if not way.has_data:
                inputs = workload.example_inputs(network.spec, network.shape, batch_size, seed)
                arguments = (inputs,)
                if way.training:
                    arguments += (workload.example_labels(network.spec, inputs, seed),)
            eager = mode == EAGER
            step = (
                workload.training(network, descent.of(network.spec, self.settings), eager=eager)
                if way.training
                else workload.forward(network, eager=eager)
            )
        half = way.training and dtype == "float16"
        return Job(
            network=network,
            place=place,
            mode=mode,
            training=way.training,
            batch_size=batch_size,
            step=step,
            arguments=arguments,
            seed=seed,
            loss_scaler=LossScaler(step) if half else None,
        )

    def _choices(self, way: Way) -> tuple[str, str]:
        """Return the mode in which steps run, and the type of their arithmetic."""
        chosen = self._mode_and_dtype(way, modes=(EAGER, XLA), usual=XLA)
        if not self.settings.value("channels_last", True):
            raise SetupError("channels_last is false; Flax' models have the channels last")
        return chosen

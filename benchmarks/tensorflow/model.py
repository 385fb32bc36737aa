"""Any Keras model of the catalogue: inference and training, eager, as graphs, compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks._support.knobs import TENSORFLOW_COMPILE, Settings
from benchmarks._support.models import descent
from benchmarks._support.models import job as jobs
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.keras_model import Network
from benchmarks._support.models.methods import EAGER, KNOBS, Methods, Way, described
from benchmarks.tensorflow._support import placement, workload
from benchmarks.tensorflow._support.framework import IMPORT_S, KERAS_VERSION, tf
from benchmarks.tensorflow._support.placement import Placement
from benchmarks.tensorflow._support.workload import Transfers, build
from perfrun import SetupError

if TYPE_CHECKING:  # imported where there is a data set
    from benchmarks._support.datasets.loading import Opened
    from benchmarks.tensorflow._support.loader import Loader

__all__ = ["KNOBS", "Job", "Model"]
GRAPH, XLA = "graph", "xla"


@dataclass(frozen=True, kw_only=True)
class Job(jobs.Job):
    """A Keras model on its device; `plain` is the step before it was made a graph."""

    network: Network
    place: Placement
    mode: str
    plain: Callable[..., Any]
    seed: int

    @property
    def is_compiled(self) -> bool:
        return self.mode != EAGER

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self.place.scope()
        return scope

    def wait(self, result: Any) -> None:
        placement.wait(result)

    def device_peak_bytes(self) -> int | None:
        return placement.peak_bytes()

    def on_device(self, batch: tuple[Any, Any]) -> tuple[Any, ...]:
        return batch[: 1 + self.training]  # TensorFlow brings what an operator needs

    def loader(self, images: Opened, settings: Settings) -> Loader:
        from benchmarks.tensorflow._support.loader import loader_for

        return loader_for(images, settings, self.network, self.batch_size)

    def transfers(self, data: str) -> Transfers:
        return Transfers(self.arguments, data, self.place)

    def check(self, output: Any) -> None:
        workload.check_output(self.network.spec, output, self.batch_size)

    def work(self) -> Work:
        from benchmarks.tensorflow._support import arithmetic  # for a companion; no trial counts

        traced = tf.function(self.plain) if self.mode == EAGER else self.step
        return arithmetic.count(
            traced, self.arguments, batch_size=self.batch_size, training=self.training
        )

    def peak(self, done: float | None) -> Peak:
        from benchmarks.tensorflow._support.arithmetic import measured_peak

        return measured_peak(self.place.kind, self.network.dtype, done)

    def facts(self) -> dict[str, Any]:
        return {
            "device": self.place.description,
            **placement.threads(),
            "dtype": self.network.dtype,
            "compile": self.mode,
            "channels_last": "true",
            "seed": self.seed,
            "tensorflow_version": tf.__version__,
            "keras_version": KERAS_VERSION,
        }


@described(
    inference="Forward passes as a graph (`tf.function`), or as `compile` says; batch 1.",
    inference_eager="Forward passes without a graph.",
    inference_compiled="Forward passes compiled by XLA.",
    inference_bfloat16="Forward passes under the policy mixed_bfloat16.",
    inference_float16="Forward passes under the policy mixed_float16.",
    training="Training steps (forward, backward, SGD) as a graph, or as `compile` says; batch 8.",
    training_eager="Training steps without a graph.",
    training_compiled="Training steps compiled by XLA.",
    training_bfloat16="Training steps under the policy mixed_bfloat16.",
    training_float16="Training steps under the policy mixed_float16, the loss scaled.",
)
class Model(Methods):
    """A model chosen by `model`, random weights; input is synthetic, or images of `data_dir`."""

    compiled = XLA
    framework_import_s = IMPORT_S

    def _built(self, way: Way, batch_size: int) -> Job:
        chosen, wanted_type = self._choices(way)
        place = placement.choose(self.settings)
        seed = self.settings.value("seed", 0)
        network = build(
            self.settings.value("model", self.model_name),
            shape=self.settings.value("input_shape"),
            dtype=wanted_type,
            seed=seed,
            placement=place,
        )
        spec, model = network.spec, network.model
        with place.scope():
            arguments: tuple[Any, ...] = ()
            if not way.has_data:
                inputs = workload.example_inputs(spec, model, batch_size)
                labels = (workload.example_labels(spec, inputs),) if way.training else ()
                arguments = (inputs, *labels)
            half = network.dtype == "float16"
            loss_scaler = None
            plain: Callable[..., Any] = workload.forward(model)
            if way.training:
                given = descent.of(spec, self.settings)
                optimizer = workload.optimizer_of(model, given, half=half)
                loss_scaler = workload.LossScaler(optimizer) if half else None
                plain = workload.training(
                    model, spec, optimizer, half=half, weight_decay=given.weight_decay
                )
            step = workload.as_run(plain, chosen)
        return Job(
            network=network,
            place=place,
            mode=chosen,
            training=way.training,
            batch_size=batch_size,
            plain=plain,
            step=step,
            arguments=arguments,
            loss_scaler=loss_scaler,
            seed=seed,
        )

    def _choices(self, way: Way) -> tuple[str, str]:
        """Return the mode in which steps run, and their type."""
        chosen = self._mode_and_dtype(way, modes=TENSORFLOW_COMPILE, usual=GRAPH)
        if not self.settings.value("channels_last", True):
            raise SetupError("channels_last is false; Keras models have the channels last here")
        return chosen

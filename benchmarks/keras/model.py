"""Any Keras model of the catalogue on the backend that KERAS_BACKEND names."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._support.knobs import Settings
from benchmarks._support.models import descent, keras_model
from benchmarks._support.models import job as jobs
from benchmarks._support.models.figures import Peak, Work
from benchmarks._support.models.keras_model import Network, scales_pixels
from benchmarks._support.models.methods import EAGER, KNOBS, Methods, Way, described
from benchmarks.keras._support.backends.backend import Backend
from benchmarks.keras._support.framework import BACKEND, CHOSEN_BY, IMPORT_S, keras
from benchmarks.keras.catalogue import find
from perfrun import SetupError

if TYPE_CHECKING:  # imported where there is a data set
    from benchmarks._support.datasets.loading import Opened
    from benchmarks._support.datasets.threaded import Loader

__all__ = ["KNOBS", "Job", "Model"]


def _backend_class() -> type[Backend]:
    try:
        module = importlib.import_module(f"benchmarks.keras._support.backends.{BACKEND}")
    except ModuleNotFoundError as error:
        raise SetupError(
            f"Keras' backend is {BACKEND} ({CHOSEN_BY}); give --env=KERAS_BACKEND=tensorflow, "
            f"torch or jax, one that is installed here ({error})"
        ) from None
    found: type[Backend] = module.Backend
    return found


_Backend = _backend_class()


@dataclass(frozen=True, kw_only=True)
class Job(jobs.Job):
    """A Keras model on its backend's device."""

    network: Network
    backend: Backend
    mode: str
    seed: int

    @property
    def is_compiled(self) -> bool:
        return self.mode != EAGER

    def scope(self) -> AbstractContextManager[Any]:
        return self.backend.scope()

    def wait(self, result: Any) -> None:
        self.backend.wait(result)

    def device_peak_bytes(self) -> int | None:
        return self.backend.device_peak_bytes()

    def on_device(self, batch: tuple[Any, Any]) -> tuple[Any, ...]:
        return tuple(self.backend.array(part) for part in batch[: 1 + self.training])

    def loader(self, images: Opened, settings: Settings) -> Loader:
        from benchmarks._support.datasets.threaded import Loader

        network = self.network
        return Loader(
            *(images, settings, network.shape, self.batch_size),
            classes=network.spec.classes,
            scaled=not scales_pixels(keras, network.model),
        )

    def transfers(self, data: str) -> Transfers:  # noqa: ARG002 - copies are of one kind
        return Transfers(self.arguments, self.backend)

    def check(self, output: Any) -> None:
        found = keras.ops.convert_to_numpy(output)
        expected = (self.batch_size, self.network.spec.classes)
        if found.shape != expected or not np.isfinite(found).all():
            raise RuntimeError(
                f"{self.network.spec.name} gave {found.shape}; expected finite numbers, "
                f"of shape {expected}"
            )

    def work(self) -> Work:
        from benchmarks.keras._support import arithmetic  # for a companion; no trial counts

        return arithmetic.count(self.network.model, training=self.training)

    def peak(self, done: float | None) -> Peak:
        return self.backend.peak(self.network.dtype, done)

    def facts(self) -> dict[str, Any]:
        layout = keras.config.image_data_format()
        return {
            **self.backend.facts(),
            "dtype": self.network.dtype,
            "compile": self.mode,
            "channels_last": str(layout == "channels_last").lower(),
            "seed": self.seed,
            "keras_backend": BACKEND,
            "keras_version": keras.__version__,
        }


class Transfers:
    """Copies of arrays from the host to the device, and of results from there."""

    def __init__(self, arrays: tuple[Any, ...], backend: Backend) -> None:
        self._backend = backend
        self._source = tuple(np.array(keras.ops.convert_to_numpy(array)) for array in arrays)

    def bring(self) -> tuple[Any, ...]:
        """Return the input, copied to the device."""
        return tuple(self._backend.array(array) for array in self._source)

    def out(self, result: Any) -> Any:
        """Return the result in host memory, a copy on the CPU, too."""
        return np.array(keras.ops.convert_to_numpy(result))

    @property
    def facts(self) -> dict[str, Any]:
        """Return the report's notes on the transfers."""
        return {"data_copied": "from pageable host memory"}


@described(
    inference="Forward passes, as is usual on the backend: a graph, eager, or XLA; batch 1.",
    inference_eager="Forward passes operator by operator.",
    inference_compiled="Forward passes compiled: XLA, with PyTorch torch.compile.",
    inference_bfloat16="Forward passes under the policy mixed_bfloat16.",
    inference_float16="Forward passes under the policy mixed_float16.",
    training="Training steps (forward, backward, SGD), as is usual on the backend; batch 8.",
    training_eager="Training steps operator by operator.",
    training_compiled="Training steps compiled: XLA, with PyTorch torch.compile.",
    training_bfloat16="Training steps under the policy mixed_bfloat16.",
    training_float16="Refused: no scale of the loss settles here; bfloat16 needs none.",
)
class Model(Methods):
    """A model chosen by `model`, random weights; input is synthetic, or images of `data_dir`."""

    compiled = _Backend.compiled
    framework_import_s = IMPORT_S

    def _built(self, way: Way, batch_size: int) -> Job:
        mode, dtype = self._choices(way)
        backend = _Backend(self.settings)
        seed = self.settings.value("seed", 0)
        spec = find(self.settings.value("model", self.model_name))
        with backend.scope():
            shape = spec.shape_for(self.settings.value("input_shape"))
            network = keras_model.build(keras, spec, shape, dtype=dtype, seed=seed)
            arguments: tuple[Any, ...] = ()
            if not way.has_data:
                arrays = _examples(network, batch_size, seed)[: 1 + way.training]
                arguments = tuple(backend.array(each) for each in arrays)
            if way.training:
                given = descent.of(spec, self.settings)
                optimizer = keras.optimizers.SGD(given.learning_rate, given.momentum)
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                decay = given.weight_decay
                step = backend.training(network.model, optimizer, loss, mode, weight_decay=decay)
            else:
                step = backend.forward(network.model, mode)
        return Job(
            network=network,
            backend=backend,
            mode=mode,
            training=way.training,
            batch_size=batch_size,
            step=step,
            arguments=arguments,
            seed=seed,
        )

    def _choices(self, way: Way) -> tuple[str, str]:
        """Return the mode in which steps run, and the type of their arithmetic."""
        modes = _Backend.modes
        mode, dtype = self._mode_and_dtype(way, modes=modes, usual=modes[0])
        if way.training and dtype == "float16":
            raise SetupError(
                "training in float16 needs a scale of the loss, which does not settle here on all "
                "backends; train in bfloat16, or with benchmarks.tensorflow.model.Model"
            )
        wanted = self.settings.value("channels_last")
        if wanted is not None and wanted != (keras.config.image_data_format() == "channels_last"):
            raise SetupError(
                f"channels_last is {wanted}; the models have the layout of Keras' settings, "
                f"{keras.config.image_data_format()}"
            )
        return mode, dtype


def _examples(network: Network, batch_size: int, seed: int) -> tuple[Any, Any]:
    """Make random inputs, pixels from 0 to 255 where the model scales them, and classes."""
    numbers = np.random.default_rng(seed)
    shape = (batch_size, *network.model.input_shape[1:])
    inputs = numbers.standard_normal(shape, np.float32)
    if scales_pixels(keras, network.model):
        inputs = numbers.uniform(0, 255, shape).astype(np.float32)
    labels = numbers.integers(network.spec.classes or 1, size=batch_size).astype(np.int32)
    return inputs, labels

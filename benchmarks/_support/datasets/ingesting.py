"""The base of the `Ingestion` classes of all frameworks: loader, device, and both together."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks._support.datasets import feeding, loading
from benchmarks._support.datasets.loading import Opened
from benchmarks._support.knobs import Configured
from benchmarks._support.models.loss_scale import LossScaler
from benchmarks._support.models.spec import Built, spelt

BATCH_SIZE = 16
ROUNDS = 3
MODEL = "resnet18"
KNOBS: tuple[str, ...] = (
    *("data_dir", "data_backend", "data_shuffle", "num_loader_threads"),
    *("model", "forward_only", "batch_size", "iterations", "warmup", "device", "dtype"),
    *("intra_threads", "inter_threads", "seed", "input_shape"),
)


class Ingesting(Configured, ABC):
    """Images per second of a loader, of the device, and end to end. `data_dir` must be given."""

    takes: ClassVar[tuple[str, ...]] = KNOBS

    def loader_only(self) -> None:
        """Load batches as fast as they come, and drop them."""
        self._measure((feeding.LOADER,), rounds=1)

    def device_only(self) -> None:
        """Run steps on one batch of the data set that stays on the device."""
        self._measure((feeding.DEVICE,), rounds=1)

    def end_to_end(self) -> None:
        """Run steps on batches as they are loaded."""
        self._measure((feeding.END_TO_END,), rounds=1)

    def all_three(self) -> None:
        """Measure each of the three in turn, three times, and compare them."""
        self._measure((feeding.LOADER, feeding.DEVICE, feeding.END_TO_END), rounds=ROUNDS)

    def _measure(self, wanted: tuple[str, ...], rounds: int) -> None:
        images = self._images()  # before a model is built, which may take minutes
        loader = self._loader(images, self._batch_size())
        found: dict[str, list[Any]] = {part: [] for part in wanted}
        waits_s: list[float] = []
        resident = None
        if feeding.DEVICE in wanted:
            resident = self._resident(next(loader))
            loader.close()
        for _ in range(rounds):
            if feeding.LOADER in wanted:
                found[feeding.LOADER].append(feeding.measure_loader(self, loader, rounds))
            if feeding.DEVICE in wanted:
                step = functools.partial(self._step, resident)
                timed = feeding.measure_device(self, loader, step, rounds, **self._settled(step))
                found[feeding.DEVICE].append(self._checked(timed))
            if feeding.END_TO_END in wanted:
                settled = self._settled(lambda: self._step(next(loader)))
                timed, waited_s = feeding.measure_end_to_end(
                    self, loader, self._step, rounds, **settled
                )
                found[feeding.END_TO_END].append(self._checked(timed))
                waits_s.append(waited_s)
        arguments = feeding.report_arguments(
            found,
            waited_s=sum(waits_s) if waits_s else None,
            extras={"rounds": rounds, **self._notes(), **loader.notes, **self._scale_notes()},
        )
        self.report_benchmark(**arguments)

    def _settled(self, step: Callable[[], object]) -> dict[str, Any]:
        """Return the option of `measure` that lets the scale of the loss settle, if there is one.

        It costs nothing where an earlier round has settled it.
        """
        scaler = self._loss_scaler()
        return {} if scaler is None else {"after_first_call": lambda: scaler.settle(step)}

    def _checked(self, timed: Any) -> Any:
        """Return what was measured; RuntimeError when timed steps were skipped."""
        scaler = self._loss_scaler()
        if scaler is not None:
            scaler.check(timed.facts["steps"])
        return timed

    def _scale_notes(self) -> dict[str, Any]:
        scaler = self._loss_scaler()
        return {} if scaler is None else scaler.notes()

    def _loss_scaler(self) -> LossScaler | None:
        """Return the scaler of training in float16, else None."""
        return None

    def _images(self) -> Opened:
        return loading.open_chosen(self.settings, self.root_data_dir)

    def _batch_size(self) -> int:
        return self.settings.value("batch_size", BATCH_SIZE)

    def _notes_of(self, network: Built) -> dict[str, Any]:
        """Return the report's notes on the model."""
        return {
            "model": network.spec.name,
            "model_library": network.spec.library,
            "batch_size": self._batch_size(),
            "input_shape": spelt(network.shape),
            "forward_only": str(self.settings.value("forward_only", False)).lower(),
        }

    @abstractmethod
    def _loader(self, images: Opened, batch_size: int) -> Any:
        """Return the framework's loader of the data set, which fits the model."""

    @abstractmethod
    def _resident(self, batch: Any) -> Any:
        """Return the batch on the device; `_step` does not move it."""

    @abstractmethod
    def _step(self, batch: Any) -> object:
        """Copy a batch to the device and run the model on it."""

    @abstractmethod
    def _notes(self) -> dict[str, Any]:
        """Return the report's notes on model and device."""

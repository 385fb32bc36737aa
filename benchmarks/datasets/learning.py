"""Training a small network on real data to a known accuracy, whatever the framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

from benchmarks.configured import Configured
from benchmarks.datasets.scikit import Split, Task, learned, load

WARMUP = 3  # epochs, after the first and before the timed ones


class Learner(Protocol):
    """A framework's network, and the training set that it learns."""

    def epoch(self) -> object:
        """Go through the training set once."""

    def scores(self) -> dict[str, float]:
        """Return `accuracy` on the test set, and `train_loss` and `test_loss`."""

    def facts(self) -> dict[str, Any]:
        """Return what a report says about the framework."""


class Learning(Configured, ABC):
    """A task of scikit-learn's data. One timed step is an epoch; `iterations` counts epochs."""

    task: ClassVar[Task]
    takes: ClassVar[tuple[str, ...]] = ("iterations", "warmup", "batch_size", "seed")

    @abstractmethod
    def _learner(self, split: Split, batch_size: int, seed: int) -> Learner:
        """Make the task's network with the seed's weights."""

    def training(self) -> None:
        """All epochs of the task, then the accuracy on data that it has never seen."""
        task, seed = self.task, self.settings.value("seed", 0)
        split = load(task, seed)
        examples = len(split.train_labels)
        size = self.settings.value("batch_size", task.batch_size or examples)
        learner = self._learner(split, size, seed)
        warmup = self.settings.value("warmup", WARMUP)
        timed = self.measure(
            learner.epoch,
            item="epoch",
            warmup=warmup,
            iterations=self.settings.value("iterations", max(1, task.epochs - 1 - warmup)),
            block_size=1,
            report=False,
        )
        epochs = 1 + warmup + timed.iterations
        extras = {
            "batch_size": size,
            "epochs": epochs,
            "train_examples": examples,
            "test_examples": len(split.test_labels),
            "seed": seed,
            **learner.facts(),
        }
        metrics = learned(task, epochs=epochs, **learner.scores())
        self.report_benchmark(**timed.report_arguments(metrics=metrics, extras=extras))

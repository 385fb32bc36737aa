"""Training a small network to a known accuracy, on data that scikit-learn contains.

Nothing is downloaded. Each task is a fully connected network with ReLU, trained with Adam and cross
entropy. Iris is that of "Getting Started with PyTorch on OCI" (three linear layers 50-50-3,
learning rate 0.001, 100 epochs of the whole training set, 80 % of the data), with two mistakes
corrected: the article applies softmax and then PyTorch's CrossEntropyLoss, which applies it again
and so flattens the gradients; and it scales with the mean and deviation of all data, the test set
included.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks._support.knobs import Configured
from perfrun import SetupError

TEST_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set to learn, the network that learns it, and the accuracy it must reach at least."""

    name: str
    classes: int
    hidden: tuple[int, ...]
    batch_size: int | None  # None: the whole training set is one batch
    epochs: int
    min_accuracy: float  # below the worst of the seeds tried (docs/ingestion.md)
    learning_rate: float = 1e-3


IRIS = Task(name="iris", classes=3, hidden=(50, 50), batch_size=None, epochs=100, min_accuracy=0.7)
DIGITS = Task(
    name="digits", classes=10, hidden=(128, 64), batch_size=64, epochs=30, min_accuracy=0.9
)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Features (float32, of mean 0 and deviation 1 in the training set) and labels (int64)."""

    train_features: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_features: NDArray[np.float32]
    test_labels: NDArray[np.int64]

    @property
    def features(self) -> int:
        """Return the number of features of an example."""
        return int(self.train_features.shape[1])


def load(task: Task, seed: int) -> Split:
    """Read a task's data, split it with the seed and scale it by its training set."""
    data = module("sklearn.datasets")
    features, labels = getattr(data, f"load_{task.name}")(return_X_y=True)
    train_x, test_x, train_y, test_y = module("sklearn.model_selection").train_test_split(
        features, labels, test_size=TEST_SHARE, random_state=seed, stratify=labels
    )
    scaler = module("sklearn.preprocessing").StandardScaler().fit(train_x)
    return Split(
        train_features=scaler.transform(train_x).astype(np.float32),
        train_labels=train_y.astype(np.int64),
        test_features=scaler.transform(test_x).astype(np.float32),
        test_labels=test_y.astype(np.int64),
    )


def module(name: str) -> Any:
    """Import a part of scikit-learn; SetupError names the package where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SetupError(
            f"this data comes with scikit-learn (pip install scikit-learn): {error}"
        ) from None


def learned(
    task: Task, *, epochs: int, accuracy: float, train_loss: float, test_loss: float
) -> list[dict[str, Any]]:
    """Return the metrics of a training, with bounds when it had all the epochs of the task.

    RuntimeError is raised when the loss is not a number: such steps have trained nothing.
    """
    if not math.isfinite(train_loss):
        raise RuntimeError(f"the loss became {train_loss}; these epochs trained nothing")
    whole = epochs >= task.epochs
    return [
        {
            "name": "test_accuracy",
            "value": accuracy,
            **({"min_value": task.min_accuracy, "max_value": 1.0} if whole else {}),
        },
        # Guessing has the loss ln(classes).
        {
            "name": "train_loss",
            "value": train_loss,
            **({"max_value": math.log(task.classes)} if whole else {}),
        },
        {"name": "test_loss", "value": test_loss},
    ]


WARMUP = 3  # epochs, after the first and before the timed ones


class Learner(Protocol):
    """A framework's network with the seed's weights, and the training set that it learns."""

    def __init__(self, task: Task, split: Split, batch_size: int, seed: int) -> None: ...

    def epoch(self) -> object:
        """Go through the training set once."""

    def scores(self) -> dict[str, float]:
        """Return `accuracy` on the test set, and `train_loss` and `test_loss`."""

    def facts(self) -> dict[str, Any]:
        """Return the report's notes on the framework."""


class Learning(Configured, ABC):
    """A task of scikit-learn's data. One timed step is an epoch; `iterations` counts epochs."""

    task: ClassVar[Task]
    learner: ClassVar[type[Learner]]
    takes: ClassVar[tuple[str, ...]] = ("iterations", "warmup", "batch_size", "seed")

    def training(self) -> None:
        """Train for all epochs of the task, then measure the accuracy on the test set."""
        task, seed = self.task, self.settings.value("seed", 0)
        split = load(task, seed)
        examples = len(split.train_labels)
        size = self.settings.value("batch_size", task.batch_size or examples)
        learner = self.learner(task, split, size, seed)
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

"""Training a small network on real data to a known accuracy, by scikit-learn: no framework."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import numpy as np

from benchmarks.configured import Configured
from benchmarks.datasets.scikit import Task, learned, load, module

WARMUP = 3  # epochs, after the first and before the timed ones


class Classifier(Configured, ABC):
    """A task of scikit-learn's data. One timed step is an epoch; `iterations` counts epochs."""

    task: ClassVar[Task]
    takes = ("iterations", "warmup", "batch_size", "seed")

    def training(self) -> None:
        """All epochs of the task, then the accuracy on data that it has never seen."""
        task, seed = self.task, self.settings.value("seed", 0)
        split = load(task, seed)
        labels = split.train_labels
        size = self.settings.value("batch_size", task.batch_size or len(labels))
        network = module("sklearn.neural_network").MLPClassifier(
            task.hidden,
            solver="adam",
            alpha=0,  # no weight decay: the other frameworks have none
            learning_rate_init=task.learning_rate,
            batch_size=min(size, len(labels)),
            random_state=seed,
        )
        classes = np.arange(task.classes)

        def epoch() -> None:
            # One pass over the data.
            network.partial_fit(split.train_features, labels, classes=classes)

        warmup = self.settings.value("warmup", WARMUP)
        timed = self.measure(
            epoch,
            item="epoch",
            warmup=warmup,
            iterations=self.settings.value("iterations", max(1, task.epochs - 1 - warmup)),
            block_size=1,
            report=False,
        )
        epochs = 1 + warmup + timed.iterations
        log_loss = module("sklearn.metrics").log_loss
        metrics = learned(
            task,
            epochs=epochs,
            accuracy=network.score(split.test_features, split.test_labels),
            train_loss=log_loss(labels, network.predict_proba(split.train_features)),
            test_loss=log_loss(split.test_labels, network.predict_proba(split.test_features)),
        )
        extras = {
            "batch_size": size,
            "epochs": epochs,
            "train_examples": len(labels),
            "test_examples": len(split.test_labels),
            "seed": seed,
            "scikit_learn_version": module("sklearn").__version__,
        }
        self.report_benchmark(**timed.report_arguments(metrics=metrics, extras=extras))

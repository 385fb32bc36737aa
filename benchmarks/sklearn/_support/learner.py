"""Training a small network on real data to a known accuracy, by scikit-learn: no framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._support.datasets.learning import Split, Task, module


class Learner:
    """A network of MLPClassifier, trained with Adam."""

    def __init__(self, task: Task, split: Split, batch_size: int, seed: int) -> None:
        self._split = split
        self._classes = np.arange(task.classes)
        self._network = module("sklearn.neural_network").MLPClassifier(
            task.hidden,
            solver="adam",
            alpha=0,  # no weight decay: the other frameworks have none
            learning_rate_init=task.learning_rate,
            batch_size=min(batch_size, len(split.train_labels)),
            random_state=seed,
        )

    def epoch(self) -> None:
        # One pass over the data.
        split = self._split
        self._network.partial_fit(split.train_features, split.train_labels, classes=self._classes)

    def scores(self) -> dict[str, float]:
        split, predicted = self._split, self._network.predict_proba
        log_loss = module("sklearn.metrics").log_loss
        return {
            "accuracy": self._network.score(split.test_features, split.test_labels),
            "train_loss": log_loss(split.train_labels, predicted(split.train_features)),
            "test_loss": log_loss(split.test_labels, predicted(split.test_features)),
        }

    def facts(self) -> dict[str, Any]:
        return {"scikit_learn_version": module("sklearn").__version__}

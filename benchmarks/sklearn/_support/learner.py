"""Training a small network on real data to a known accuracy, by scikit-learn: no framework."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks._support.datasets.learning import Recipe, Split, Task, module
from benchmarks._support.knobs import Settings
from perfrun import SetupError


class Learner:
    """A network of MLPClassifier, trained with Adam."""

    suffix: ClassVar[str] = ".joblib"

    def __init__(self, task: Task, split: Split, recipe: Recipe, settings: Settings) -> None:
        self._split = split
        self._classes = np.arange(task.classes)
        self._network = module("sklearn.neural_network").MLPClassifier(
            task.hidden,
            solver="adam",
            alpha=0,  # no weight decay: the other frameworks have none
            learning_rate_init=task.learning_rate,
            batch_size=min(recipe.batch_size, len(split.train_labels)),
            random_state=recipe.seed,
        )
        self._pools = _pools(settings.value("intra_threads"))

    def scope(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def epoch(self) -> None:
        # One pass over the data.
        split = self._split
        self._network.partial_fit(split.train_features, split.train_labels, classes=self._classes)

    def scored(
        self, features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> tuple[float, float]:
        log_loss = module("sklearn.metrics").log_loss
        loss = log_loss(labels, self._network.predict_proba(features))
        return loss, self._network.score(features, labels)

    def facts(self) -> dict[str, Any]:
        return {
            "device": "cpu",
            "threads": max((pool["num_threads"] for pool in self._pools), default=1),
            "scikit_learn_version": module("sklearn").__version__,
        }

    def save(self, path: str) -> None:
        module("joblib").dump(self._network, path)

    def load(self, path: str) -> Any:
        return module("joblib").load(path)  # a pickle: this process wrote it

    def predict(self, network: Any) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._chosen(network).predict_proba(self._split.test_features)
        return found

    def _chosen(self, network: Any) -> Any:
        return self._network if network is None else network


def _pools(threads: int | None) -> list[dict[str, Any]]:
    """Set the threads of the libraries that multiply matrices; return what is known of them.

    SetupError is raised where no such library is loaded, or where it keeps to another number.
    """
    threadpoolctl = module("threadpoolctl")  # which scikit-learn needs, too
    if threads is not None:
        threadpoolctl.threadpool_limits(limits=threads, user_api="blas")
    found: list[dict[str, Any]] = [
        pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"
    ]
    if threads is not None and {pool["num_threads"] for pool in found} != {threads}:
        counts = ", ".join(f"{p['internal_api']} {p['num_threads']}" for p in found) or "none"
        raise SetupError(
            f"intra_threads is {threads}; the libraries of matrix products here have {counts}"
        )
    return found

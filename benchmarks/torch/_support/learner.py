"""Training a small network on real data to a known accuracy, by PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch

from benchmarks._support.datasets.learning import Split, Task
from benchmarks.torch._support import execution


class Learner:
    """A network of linear layers, trained with Adam."""

    def __init__(self, task: Task, split: Split, batch_size: int, seed: int) -> None:
        torch.manual_seed(seed)
        self._device = execution.current()
        self._split = split
        self._batch_size = batch_size
        self._network = _network(split.features, task).to(self._device)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=task.learning_rate)
        self._features = torch.from_numpy(split.train_features).to(self._device)
        self._labels = torch.from_numpy(split.train_labels).to(self._device)

    def epoch(self) -> None:
        for chosen in self._batches():
            self._optimizer.zero_grad(set_to_none=True)
            output = self._network(self._features[chosen])
            torch.nn.functional.cross_entropy(output, self._labels[chosen]).backward()
            self._optimizer.step()

    def scores(self) -> dict[str, float]:
        split = self._split
        self._network.eval()
        with torch.inference_mode():
            test_loss, accuracy = self._scored(split.test_features, split.test_labels)
            train_loss, _ = self._scored(split.train_features, split.train_labels)
        return {"accuracy": accuracy, "train_loss": train_loss, "test_loss": test_loss}

    def facts(self) -> dict[str, Any]:
        return {
            "device": execution.description(self._device),
            "threads": torch.get_num_threads(),
            "torch_version": torch.__version__,
        }

    def _batches(self) -> Iterator[Any]:
        count = len(self._labels)
        if self._batch_size >= count:
            yield slice(None)
            return
        order = torch.randperm(count).to(self._device)
        yield from order.split(self._batch_size)

    def _scored(self, features: Any, labels: Any) -> tuple[float, float]:
        expected = torch.from_numpy(labels).to(self._device)
        output = self._network(torch.from_numpy(features).to(self._device))
        right = output.argmax(dim=1) == expected
        loss = torch.nn.functional.cross_entropy(output, expected)
        return float(loss), int(right.sum()) / len(labels)


def _network(features: int, task: Task) -> torch.nn.Sequential:
    """Build linear layers with ReLU between them; softmax is part of the loss here."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise((features, *task.hidden, task.classes)):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])

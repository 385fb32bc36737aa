"""Training a small network on real data to a known accuracy, by PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._support.datasets.learning import Recipe, Split, Task
from benchmarks._support.knobs import Settings
from benchmarks.torch._support import execution


class Learner:
    """A network of linear layers, trained with Adam."""

    suffix: ClassVar[str] = ".pt"

    def __init__(self, task: Task, split: Split, recipe: Recipe, settings: Settings) -> None:
        self._device = execution.prepared_device(settings)
        torch.manual_seed(recipe.seed)
        self._task = task
        self._split = split
        self._recipe = recipe
        self._network = _network(split.features, task).to(self._device)
        self._optimizer = torch.optim.Adam(self._network.parameters(), lr=task.learning_rate)
        self._features = torch.from_numpy(split.train_features).to(self._device)
        self._labels = torch.from_numpy(split.train_labels).to(self._device)
        self._test_features = torch.from_numpy(split.test_features).to(self._device)

    def scope(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def epoch(self) -> None:
        twice = self._recipe.softmax_twice
        for chosen in self._batches():
            self._optimizer.zero_grad(set_to_none=True)
            output = self._network(self._features[chosen])
            if twice:
                output = torch.nn.functional.softmax(output, dim=1)
            torch.nn.functional.cross_entropy(output, self._labels[chosen]).backward()
            self._optimizer.step()

    def scored(self, features: Any, labels: Any) -> tuple[float, float]:
        """Return loss and accuracy; of a network that has softmax in it, those of the loss used."""
        self._network.eval()
        expected = torch.from_numpy(labels).to(self._device)
        with torch.inference_mode():
            output = self._network(torch.from_numpy(features).to(self._device))
            if self._recipe.softmax_twice:
                output = torch.nn.functional.softmax(output, dim=1)
            right = output.argmax(dim=1) == expected
            loss = torch.nn.functional.cross_entropy(output, expected)
            return float(loss), int(right.sum()) / len(labels)

    def facts(self) -> dict[str, Any]:
        return {
            "device": execution.description(self._device),
            "threads": torch.get_num_threads(),
            "torch_version": torch.__version__,
        }

    def save(self, path: str) -> None:
        torch.save(self._network.state_dict(), path)

    def load(self, path: str) -> torch.nn.Module:
        network = _network(self._split.features, self._task).to(self._device)
        # Only tensors are read: a file of whole objects, as the article writes it, can run code.
        network.load_state_dict(torch.load(path, map_location=self._device, weights_only=True))
        return network.eval()

    def predict(self, network: Any) -> NDArray[np.float32]:
        with torch.inference_mode():
            output = self._chosen(network)(self._test_features)
            found: NDArray[np.float32] = torch.softmax(output, dim=1).cpu().numpy()
        return found

    def _chosen(self, network: Any) -> Any:
        return self._network if network is None else network

    def _batches(self) -> Iterator[Any]:
        count = len(self._labels)
        if self._recipe.batch_size >= count:
            yield slice(None)
            return
        order = torch.randperm(count).to(self._device)
        yield from order.split(self._recipe.batch_size)


def _network(features: int, task: Task) -> torch.nn.Sequential:
    """Build linear layers with ReLU between them; softmax is part of the loss here."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise((features, *task.hidden, task.classes)):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])

"""Training a small network on real data to a known accuracy, by PyTorch."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar

import torch

from benchmarks.configured import Configured
from benchmarks.datasets.scikit import Split, Task, learned, load
from benchmarks.torch import device as devices

WARMUP = 3  # epochs, after the first and before the timed ones
TAKES = ("iterations", "warmup", "batch_size", "seed")


class Classifier(Configured, ABC):
    """A task of scikit-learn's data. One timed step is an epoch; `iterations` counts epochs."""

    task: ClassVar[Task]
    takes = TAKES

    def training(self) -> None:
        """All epochs of the task, then the accuracy on data that it has never seen."""
        task, seed = self.task, self.settings.value("seed", 0)
        split = load(task, seed)
        torch.manual_seed(seed)
        device = devices.current()
        network = _network(split.features, task).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=task.learning_rate)
        features = torch.from_numpy(split.train_features).to(device)
        labels = torch.from_numpy(split.train_labels).to(device)
        size = self.settings.value("batch_size", task.batch_size or len(labels))

        def epoch() -> None:
            for chosen in _batches(len(labels), size, device):
                optimizer.zero_grad(set_to_none=True)
                output = network(features[chosen])
                torch.nn.functional.cross_entropy(output, labels[chosen]).backward()
                optimizer.step()

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
        found = _figures(network, split, device)
        self.report_benchmark(
            **timed.report_arguments(
                metrics=learned(task, epochs=epochs, **found),
                extras={
                    "device": devices.description(device),
                    "threads": torch.get_num_threads(),
                    "batch_size": size,
                    "epochs": epochs,
                    "train_examples": len(labels),
                    "test_examples": len(split.test_labels),
                    "seed": seed,
                    "torch_version": torch.__version__,
                },
            )
        )


def _network(features: int, task: Task) -> torch.nn.Sequential:
    """Linear layers with ReLU between them; no softmax, which is part of the loss here."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise((features, *task.hidden, task.classes)):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def _batches(count: int, size: int, device: torch.device) -> Iterator[Any]:
    if size >= count:
        yield slice(None)
        return
    order = torch.randperm(count).to(device)
    yield from order.split(size)


def _figures(network: torch.nn.Module, split: Split, device: torch.device) -> dict[str, float]:
    network.eval()
    with torch.inference_mode():
        test_loss, accuracy = _scores(network, split.test_features, split.test_labels, device)
        train_loss, _ = _scores(network, split.train_features, split.train_labels, device)
    return {"accuracy": accuracy, "train_loss": train_loss, "test_loss": test_loss}


def _scores(
    network: torch.nn.Module, features: Any, labels: Any, device: torch.device
) -> tuple[float, float]:
    truth = torch.from_numpy(labels).to(device)
    output = network(torch.from_numpy(features).to(device))
    right = output.argmax(dim=1) == truth
    loss = torch.nn.functional.cross_entropy(output, truth)
    return float(loss), int(right.sum()) / len(labels)

"""One rank of a scaling benchmark: it trains with each number of ranks in turn, and writes times.

All levels are measured in the same processes, round by round, so that what slows the machine down
for a while slows all of them down. Ranks that a level does not need wait without using a processor.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import child
from benchmarks.model_spec import ModelSpec
from benchmarks.torch import catalogue
from benchmarks.torch import device as devices

Order = dict[str, Any]


def main(order: Order) -> None:
    """Be the rank that torchrun's variables say."""
    rank = int(os.environ["RANK"])
    folder = Path(order["folder"])
    try:
        _Rank(order, rank, folder / f"rank_{rank}.jsonl").run()
    except BaseException as error:
        traceback.print_exc()
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        answer = {"rank": rank, "time": time.time(), "error": said}
        child.write_answer(folder / f"rank_{rank}.error.json", answer)
        raise


class _Rank:
    def __init__(self, order: Order, rank: int, file: Path) -> None:
        self._order = order
        self._rank = rank
        self._file = file
        self._device = torch.device(order["device"], rank) if order["device"] != "cpu" else _CPU

    def run(self) -> None:
        order = self._order
        self._write(rank=self._rank, pid=os.getpid())
        torch.set_num_threads(order["threads_per_rank"])
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        with _connected(order, self._device):
            control = dist.new_group(backend="gloo")
            trainings = {level: self._training(level) for level in order["levels"]}
            for number in range(order["rounds"]):
                for level in order["levels"]:
                    dist.barrier(group=control)
                    if self._rank < level:
                        self._phase(number, level, *trainings[level])

    def _training(self, level: int) -> tuple[Callable[[], None], Any]:
        """Return the step of a level and its group. Groups are made by all ranks alike."""
        group = dist.new_group(ranks=list(range(level)))
        waiting = dist.new_group(ranks=list(range(level)), backend="gloo")
        torch.manual_seed(self._order["seed"])
        if self._rank >= level:
            return lambda: None, waiting
        model, step_loss = _model_and_loss(
            self._order, self._order["batch_sizes"][str(level)], self._rank, self._device
        )
        if level > 1 and self._order["communication"]:
            ids = [self._device] if self._device.type == "cuda" else None
            model = torch.nn.parallel.DistributedDataParallel(
                model, device_ids=ids, process_group=group
            )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with self._autocast():
                loss = step_loss(model)
            loss.backward()
            optimizer.step()

        return step, waiting

    def _autocast(self) -> torch.autocast:
        dtype = self._order["dtype"]
        enabled = dtype != "float32"
        return torch.autocast(
            self._device.type, getattr(torch, dtype) if enabled else None, enabled=enabled
        )

    def _phase(self, number: int, level: int, step: Callable[[], None], group: Any) -> None:
        """Warm up, wait for each other, time each step."""
        for _ in range(self._order["warmup"] if number == 0 else 1):
            step()
        devices.wait(self._device)
        dist.barrier(group=group)
        times_ns = []
        for _ in range(self._order["steps_per_round"]):
            began_ns = time.perf_counter_ns()
            step()
            devices.wait(self._device)
            times_ns.append(time.perf_counter_ns() - began_ns)
        self._write(round=number, devices=level, step_ns=times_ns, threads=torch.get_num_threads())

    def _write(self, **line: Any) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


_CPU = torch.device("cpu")


@contextmanager
def _connected(order: Order, device: torch.device) -> Iterator[None]:
    options = {"device_id": device} if device.type == "cuda" else {}
    limit = timedelta(seconds=order["silence_s"])
    dist.init_process_group(order["dist_backend"], timeout=limit, **options)
    yield
    dist.destroy_process_group()  # not after an error: it would wait for ranks that are gone


def _model_and_loss(
    order: Order, batch_size: int, rank: int, device: torch.device
) -> tuple[Any, Callable[[Any], Any]]:
    """Return the model, the same in every rank, and its loss on a batch of this rank's own."""
    spec = catalogue.find(order["model"])
    shape = tuple(order["input_shape"] or spec.input_shape)
    model = spec.build(shape).to(device).train()
    torch.manual_seed(order["seed"] + 1 + rank)
    inputs, labels = _example(spec, shape, batch_size, device)
    return model, lambda module: _loss(spec, module(inputs), labels)


def _example(
    spec: ModelSpec, shape: tuple[int, ...], batch_size: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    if spec.input_kind == "tokens":
        tokens = torch.randint(spec.classes or 2, (batch_size, *shape), device=device)
        if spec.target == "next_token":
            return tokens, tokens
        inputs = tokens
    else:
        inputs = torch.randn(batch_size, *shape, device=device)
    return inputs, torch.randint(spec.classes or 2, (batch_size,), device=device)


def _loss(spec: ModelSpec, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    outputs = getattr(outputs, "logits", outputs)
    if spec.target == "none":
        return outputs.square().mean()  # type: ignore[no-any-return]
    if spec.target == "next_token":
        outputs, labels = outputs[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(outputs, labels)

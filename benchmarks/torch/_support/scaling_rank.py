"""Run one rank of a scaling benchmark: train with each number of ranks, and write times.

All levels are measured in the same processes, round by round, so that what slows the machine for a
while slows all of them. Ranks that a level does not need wait without using a processor.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks._support import child
from benchmarks.torch import catalogue
from benchmarks.torch._support import execution
from benchmarks.torch._support.execution import EAGER, Execution
from benchmarks.torch._support.workload import (
    Network,
    Training,
    build,
    example_inputs,
    example_labels,
)

Order = dict[str, Any]
BEAT_NS = 10 * 10**9  # a rank says at least so often that it gets on


def main(order: Order) -> None:
    """Run as the rank that torchrun's variables name."""
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
        self._networks: dict[int, Network] = {}  # by level
        self._beat_ns = time.perf_counter_ns()
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
            for level, network in self._networks.items():
                self._write(devices=level, weights=_digest(network.module))

    def _training(self, level: int) -> tuple[Callable[[], Any], Any]:
        """Return the step of a level and its group; every rank must make every group."""
        group = dist.new_group(ranks=list(range(level)))
        waiting = dist.new_group(ranks=list(range(level)), backend="gloo")
        if self._rank >= level:
            return lambda: None, waiting
        order = self._order
        how = Execution(
            device=self._device,
            dtype=order["dtype"],
            compile=EAGER,
            channels_last=False,
            seed=order["seed"],
        )
        spec = catalogue.find(order["model"])
        shape = None if order["input_shape"] is None else tuple(order["input_shape"])
        network = build(spec, how, shape, training=True)  # the same weights in every rank
        if level > 1 and order["communication"]:
            ids = [self._device] if self._device.type == "cuda" else None
            together = DistributedDataParallel(network.module, device_ids=ids, process_group=group)
            network = replace(network, called=together)
        self._networks[level] = network
        torch.manual_seed(order["seed"] + 1 + self._rank)  # other examples in every rank
        size = order["batch_sizes"][str(level)]
        inputs = example_inputs(spec, network.shape, size, device=self._device)
        labels = example_labels(spec, inputs)
        training = Training(network, how)
        return lambda: training(inputs, labels), waiting

    def _phase(self, number: int, level: int, step: Callable[[], Any], group: Any) -> None:
        """Warm up, wait for the other ranks, and time each step."""
        for _ in range(self._order["warmup"] if number == 0 else 1):
            step()
            self._show_life()
        execution.wait(self._device)
        dist.barrier(group=group)
        times_ns = []
        for _ in range(self._order["steps_per_round"]):
            began_ns = time.perf_counter_ns()
            step()
            execution.wait(self._device)
            times_ns.append(time.perf_counter_ns() - began_ns)
            self._show_life()
        self._write(round=number, devices=level, step_ns=times_ns, threads=torch.get_num_threads())

    def _show_life(self) -> None:
        """Write a line at intervals, never within a timed step."""
        now_ns = time.perf_counter_ns()
        if now_ns > self._beat_ns + BEAT_NS:
            self._beat_ns = now_ns
            self._write(alive=True)

    def _write(self, **line: Any) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


_CPU = torch.device("cpu")


def _digest(module: torch.nn.Module) -> str:
    """Return a digest of all weights, which is the same in ranks that have trained together."""
    found = hashlib.sha256()
    for parameter in module.parameters():
        found.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


@contextmanager
def _connected(order: Order, device: torch.device) -> Iterator[None]:
    options = {"device_id": device} if device.type == "cuda" else {}
    # Ranks wait long for a level that does not need them. The parent finds a rank that hangs.
    dist.init_process_group(order["dist_backend"], timeout=timedelta(days=1), **options)
    yield
    dist.destroy_process_group()  # not after an error: it would wait for ranks that are gone

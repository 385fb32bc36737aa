"""Run one rank of a scaling benchmark: train or infer with each number of ranks; write times.

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
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks._support import child
from benchmarks._support.knobs import Settings
from benchmarks._support.models.descent import Descent
from benchmarks.torch import catalogue
from benchmarks.torch._support import execution
from benchmarks.torch._support.execution import EAGER, Execution
from benchmarks.torch._support.workload import (
    Forward,
    LossScaler,
    Network,
    Training,
    build,
    check_output,
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


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The work of this rank at one level."""

    network: Network
    batch_size: int
    step: Callable[[Any, Any], Any]  # of inputs and labels
    loss_scaler: LossScaler | None  # of training in float16
    batch: tuple[Any, Any] = (None, None)  # synthetic, on the device
    loader: Callable[[], _Loaded] | None = None  # makes one; only while a level is measured


class _Loaded:
    """Batches of a rank's part of a data set, on the device."""

    def __init__(self, loader: Any, bring: Callable[[Any], tuple[Any, Any]]) -> None:
        self._loader = loader
        self._bring = bring
        self.prefetched = loader.prefetched
        self.images = len(loader.images)

    def next(self) -> tuple[Any, Any]:
        return self._bring(next(self._loader))

    def close(self) -> None:
        self._loader.close()


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
            groups = {level: self._groups(level) for level in order["levels"]}
            works = {
                level: self._work(level, groups[level][0])
                for level in order["levels"]
                if self._rank < level
            }
            for number in range(order["rounds"]):
                for level in order["levels"]:
                    dist.barrier(group=control)
                    if level in works:
                        self._phase(number, level, works[level], groups[level][1])
            for level, network in self._networks.items():
                if not order["forward_only"]:
                    self._write(devices=level, weights=_digest(network.module))

    def _groups(self, level: int) -> tuple[Any, Any]:
        """Return a level's groups to train and to wait in; every rank must make every group."""
        ranks = list(range(level))
        return dist.new_group(ranks=ranks), dist.new_group(ranks=ranks, backend="gloo")

    def _work(self, level: int, group: Any) -> _Work:
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
        is_training = not order["forward_only"]
        network = build(spec, how, shape, training=is_training)  # the same weights in every rank
        if level > 1 and order["communication"]:
            ids = [self._device] if self._device.type == "cuda" else None
            together = DistributedDataParallel(network.module, device_ids=ids, process_group=group)
            network = replace(network, called=together)
        self._networks[level] = network
        torch.manual_seed(order["seed"] + 1 + self._rank)  # other examples in every rank
        size = order["batch_sizes"][str(level)]
        trained = None
        if is_training:
            rate, decay = network.spec.learning_rate, order["weight_decay"]
            trained = Training(network, how, Descent(learning_rate=rate, weight_decay=decay))
        step = trained or Forward(network, how)
        work = _Work(
            network=network,
            batch_size=size,
            step=lambda inputs, labels: step(*((inputs, labels) if is_training else (inputs,))),
            loss_scaler=None if trained is None else trained.loss_scaler,
        )
        if order["data"] is not None:
            return replace(work, loader=lambda: self._loader(level, network, how, size))
        inputs = example_inputs(spec, network.shape, size, device=self._device)
        return replace(work, batch=(inputs, example_labels(spec, inputs)))

    def _loader(self, level: int, network: Network, how: Execution, size: int) -> _Loaded:
        """Return a new loader of this rank's part of the data set."""
        # Imported here: ranks without a data set need neither loader nor Pillow.
        from benchmarks._support.datasets import loading
        from benchmarks.torch._support.loader import loader_for, on_device

        data = self._order["data"]
        whole = loading.open_source(data["data_dir"], data["data_backend"])
        own = {name: data[name] for name in ("data_shuffle", "num_loader_threads")}
        settings = Settings(seed=self._order["seed"], **own)
        # It has all that PyTorch's loader uses of a data set.
        images: Any = loading.Shard(whole, self._rank, level)
        loader = loader_for(images, settings, network, how, size)
        return _Loaded(loader, lambda batch: on_device(how, batch))

    def _phase(self, number: int, level: int, work: _Work, group: Any) -> None:
        """Warm up, wait for the other ranks, and time each step."""
        loaded = None if work.loader is None else work.loader()
        result: Any = None

        def step() -> None:
            nonlocal result
            result = work.step(*(work.batch if loaded is None else loaded.next()))

        try:
            warmup = self._order["warmup"] if number == 0 else 1
            if loaded is not None:  # batches that lie ready are taken before the clock starts
                warmup = max(warmup, loaded.prefetched)
            for _ in range(warmup):
                step()
                self._show_life()
            if work.loss_scaler is not None:  # all ranks see the same gradients, and skip alike
                work.loss_scaler.settle(step)
            execution.wait(self._device)
            dist.barrier(group=group)
            times_ns = []
            for _ in range(self._order["steps_by_round"][number]):
                began_ns = time.perf_counter_ns()
                step()
                execution.wait(self._device)
                times_ns.append(time.perf_counter_ns() - began_ns)
                self._show_life()
        finally:
            if loaded is not None:
                loaded.close()
        facts: dict[str, Any] = {} if loaded is None else {"images": loaded.images}
        if work.loss_scaler is not None:
            work.loss_scaler.check(len(times_ns))
            facts["skipped_before"] = work.loss_scaler.skipped_before
        if self._order["forward_only"]:
            check_output(work.network.spec, result, work.batch_size)
        threads = torch.get_num_threads()
        self._write(round=number, devices=level, step_ns=times_ns, threads=threads, **facts)

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

"""Training on 1 to N devices with torch.distributed: weak and strong scaling, and their bound."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch

from benchmarks import child, scaling
from benchmarks.configured import Configured
from benchmarks.scaling import Figures, Level
from benchmarks.torch import catalogue, ranks
from benchmarks.torch import device as devices
from perfrun import SetupError

ROUNDS = 3
MODEL, BATCH_SIZE, STEPS, WARMUP, CPU_RANKS = "resnet18", 8, 30, 3, 2


class Scaling(Configured):
    """One process per device: an accelerator, or on the CPU an equal share of the threads."""

    takes: ClassVar[tuple[str, ...]] = (
        *("model", "input_shape", "batch_size", "iterations", "warmup", "num_gpus", "device"),
        *("dtype", "dist_backend", "intra_threads", "seed"),
    )
    silence_s: ClassVar[float] = 300.0  # after which ranks that write nothing are taken to hang

    def weak(self) -> None:
        """Train with a batch for each device: more devices do more work in the same time."""
        self._scale("weak", divisors=False, communication=True)

    def strong(self) -> None:
        """Train with one batch that all devices share: more devices do the same work sooner."""
        self._scale("strong", divisors=True, communication=True)

    def communication_off(self) -> None:
        """Weak scaling of models that never talk to each other: the bound for `weak`."""
        self._scale("communication_off", divisors=False, communication=False)

    def _scale(self, kind: str, *, divisors: bool, communication: bool) -> None:
        order = self._order(divisors=divisors, communication=communication)
        folder = child.new_folder(Path(self.output_dir), f"scaling_{kind}")
        ranks.run(order, folder=folder, ranks=order["levels"][-1], silence_s=self.silence_s)
        levels = read_levels(folder, order)
        found = scaling.figures(levels, lockstep=communication)
        suspicions = scaling.suspicions(found) + _oversubscribed(order)
        table = {
            "scaling": kind,
            "suspicious": suspicions,
            "levels": [asdict(one) for one in found],
        }
        (folder / "scaling.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
        self._report(kind, order, found, suspicions)

    def _order(self, *, divisors: bool, communication: bool) -> dict[str, Any]:
        value = self.settings.value
        device = devices.chosen(value("device", "auto"))
        number = self._number_of_devices(device)
        levels = scaling.levels_up_to(number, divisors=divisors)
        batch_size = value("batch_size", BATCH_SIZE)
        split = number if divisors else 0  # strong: the largest level's batch, shared by fewer
        model = value("model", MODEL)
        catalogue.find(model)  # an unknown name is said here, not by a rank
        return {
            "module": "benchmarks.torch.scaling_rank",
            "function": "main",
            "model": model,
            "input_shape": value("input_shape"),
            "levels": levels,
            "batch_sizes": {
                level: batch_size * split // level if split else batch_size for level in levels
            },
            "communication": communication,
            "rounds": ROUNDS,
            "steps_per_round": max(1, value("iterations", STEPS) // ROUNDS),
            "warmup": value("warmup", WARMUP),
            "device": device.type,
            "dtype": self.settings.one_of("dtype", "float32", ("float32", "bfloat16", "float16")),
            "dist_backend": self._backend(device),
            "threads_per_rank": value("intra_threads", max(1, _cpus() // number)),
            "seed": value("seed", 0),
        }

    def _number_of_devices(self, device: torch.device) -> int:
        there = CPU_RANKS if device.type == "cpu" else devices.count()
        number = self.settings.value("num_gpus", there)
        if device.type != "cpu" and number > there:
            raise SetupError(f"num_gpus is {number}; PyTorch sees {there} here")
        if number < 2:
            hint = "" if device.type == "cpu" else "; with --device=cpu, processes are devices"
            raise SetupError(f"scaling needs 2 devices or more, and num_gpus is {number}{hint}")
        return number

    def _backend(self, device: torch.device) -> str:
        usual = "nccl" if device.type == "cuda" else "gloo"
        chosen = self.settings.value("dist_backend", "auto")
        if chosen == "nccl" and device.type != "cuda":
            raise SetupError(f"dist_backend is 'nccl', and that is for CUDA, not {device.type}")
        return usual if chosen == "auto" else str(chosen)

    def _report(
        self, kind: str, order: Mapping[str, Any], found: list[Figures], suspicions: list[str]
    ) -> None:
        most = found[-1]
        own = ("model", "dtype", "dist_backend", "threads_per_rank", "warmup", "seed", "rounds")
        self.report_benchmark(
            iters=most.steps,
            wall_time=most.step_median_s,
            throughput=most.examples_per_second,
            metrics=scaling.metrics(most),
            extras={
                **{name: order[name] for name in own},
                **scaling.extras(kind, found, suspicions),
                "batch_size": order["batch_sizes"][most.devices],
                "global_batch_size": most.examples_per_step,
                "device": devices.description(torch.device(order["device"])),
                "torch_version": torch.__version__,
            },
        )


def read_levels(folder: Path, order: Mapping[str, Any]) -> list[Level]:
    """Read what every rank has written; RuntimeError when they did not train one model."""
    times: dict[tuple[int, int], list[tuple[float, ...]]] = {}
    weights: dict[int, list[str]] = {}
    for rank in range(order["levels"][-1]):
        lines = (folder / f"rank_{rank}.jsonl").read_text(encoding="utf-8").splitlines()
        for line in map(json.loads, lines):
            if "step_ns" in line:
                steps = tuple(step_ns / 1e9 for step_ns in line["step_ns"])
                times.setdefault((line["devices"], line["round"]), []).append(steps)
            if "weights" in line:
                weights.setdefault(line["devices"], []).append(line["weights"])
    for level, found in weights.items():
        if order["communication"] and len(set(found)) > 1:
            raise RuntimeError(
                f"the {level} ranks trained {len(set(found))} models, not one: their weights differ"
            )
    return [
        Level(
            devices=level,
            examples_per_step=level * order["batch_sizes"][level],
            rounds=tuple(tuple(times[level, number]) for number in range(order["rounds"])),
        )
        for level in order["levels"]
    ]


def _oversubscribed(order: Mapping[str, Any]) -> list[str]:
    threads = order["levels"][-1] * order["threads_per_rank"]
    if order["device"] != "cpu" or threads <= _cpus():
        return []
    return [f"{threads} threads on {_cpus()} processors: they wait for each other"]


def _cpus() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1

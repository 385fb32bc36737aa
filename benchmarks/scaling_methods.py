"""Weak and strong scaling, and their bound: what the classes of all frameworks have in common."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import child, processors, scaling
from benchmarks.configured import Configured
from benchmarks.scaling import Level
from perfrun import SetupError

ROUNDS = 3
MODEL, BATCH_SIZE, STEPS, WARMUP, CPU_RANKS = "resnet18", 8, 30, 3, 2
KNOBS: tuple[str, ...] = (
    *("model", "input_shape", "batch_size", "iterations", "warmup", "num_gpus", "device"),
    *("dtype", "intra_threads", "seed"),
)
_REPORTED = ("model", "dtype", "threads_per_rank", "warmup", "seed", "rounds")

Order = Mapping[str, Any]
"""What the ranks are told; JSON."""


class ScalingMethods(Configured, ABC):
    """Training on 1 to N devices. A framework's class runs the ranks: `_measured`."""

    takes: ClassVar[tuple[str, ...]] = KNOBS
    silence_s: ClassVar[float] = 300.0  # after which ranks that write nothing are taken to hang
    framework: ClassVar[str]  # its name in messages
    dtypes: ClassVar[tuple[str, ...]]

    def weak(self) -> None:
        """Train with a batch for each device: more devices do more work in the same time."""
        self._scale("weak", communication=True)

    def strong(self) -> None:
        """Train with one batch that all devices share: more devices do the same work sooner."""
        self._scale("strong", communication=True)

    def communication_off(self) -> None:
        """Weak scaling of models that never talk to each other: the bound for `weak`."""
        self._scale("communication_off", communication=False)

    @abstractmethod
    def _devices(self) -> tuple[str, int]:
        """Return the kind of device, `cpu` or another, and how many accelerators there are."""

    @abstractmethod
    def _check_model(self, name: str) -> None:
        """SetupError for a model that the catalogue has not: said here, not by a rank."""

    @abstractmethod
    def _own_order(self, kind: str) -> dict[str, Any]:
        """Return what the framework's ranks are told besides."""

    @abstractmethod
    def _measured(self, order: Order, folder: Path) -> tuple[list[Level], dict[str, Any]]:
        """Run the ranks; return the levels, and what a report says about the framework."""

    def _scale(self, kind: str, *, communication: bool) -> None:
        order = self._order(is_strong=kind == "strong", communication=communication)
        folder = child.new_folder(Path(self.output_dir), f"scaling_{kind}")
        levels, facts = self._measured(order, folder)
        found = scaling.figures(levels, lockstep=communication)
        suspicious = scaling.suspicions(found) + _oversubscribed(order)
        table = {
            "scaling": kind,
            "suspicious": suspicious,
            "levels": [asdict(one) for one in found],
        }
        (folder / "scaling.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
        most = found[-1]
        self.report_benchmark(
            iters=most.steps,
            wall_time=most.step_median_s,
            throughput=most.examples_per_second,
            metrics=scaling.metrics(most),
            extras={
                **{name: order[name] for name in _REPORTED},
                **scaling.extras(kind, found, suspicious),
                "batch_size": order["batch_sizes"][most.devices],
                "global_batch_size": most.examples_per_step,
                **facts,
            },
        )

    def _order(self, *, is_strong: bool, communication: bool) -> Order:
        value = self.settings.value
        kind, accelerators = self._devices()
        number = self._number_of_devices(kind, accelerators)
        levels = scaling.levels_up_to(number, divisors=is_strong)
        batch_size = value("batch_size", BATCH_SIZE)
        split = number if is_strong else 0  # the largest level's batch, shared by fewer
        model = value("model", MODEL)
        self._check_model(model)
        return {
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
            "device": kind,
            "dtype": self.settings.one_of("dtype", "float32", self.dtypes),
            "threads_per_rank": value("intra_threads", max(1, processors.usable() // number)),
            "seed": value("seed", 0),
            **self._own_order(kind),
        }

    def _number_of_devices(self, kind: str, accelerators: int) -> int:
        there = CPU_RANKS if kind == "cpu" else accelerators
        number = self.settings.value("num_gpus", there)
        if kind != "cpu" and number > there:
            raise SetupError(f"num_gpus is {number}; {self.framework} sees {there} here")
        if number < 2:
            hint = "" if kind == "cpu" else "; with --device=cpu, processes are devices"
            raise SetupError(f"scaling needs 2 devices or more, and num_gpus is {number}{hint}")
        return number


def _oversubscribed(order: Order) -> list[str]:
    threads = order["levels"][-1] * order["threads_per_rank"]
    if order["device"] != "cpu" or threads <= processors.usable():
        return []
    return [f"{threads} threads on {processors.usable()} processors: they wait for each other"]

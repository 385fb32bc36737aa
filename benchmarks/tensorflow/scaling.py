"""Training on 1 to N devices with tf.distribute: weak and strong scaling, and their bound."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import child, scaling
from benchmarks.configured import Configured
from benchmarks.scaling import Level
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow.framework import tf
from benchmarks.tensorflow.workers import Group
from perfrun import SetupError

ROUNDS = 3
MODEL, BATCH_SIZE, STEPS, WARMUP, CPU_RANKS = "resnet18", 8, 30, 3, 2


class Scaling(Configured):
    """One process per device: a GPU, or on the CPU an equal share of the threads."""

    takes: ClassVar[tuple[str, ...]] = (
        *("model", "input_shape", "batch_size", "iterations", "warmup", "num_gpus", "device"),
        *("dtype", "intra_threads", "seed"),
    )
    silence_s: ClassVar[float] = 300.0  # after which ranks that write nothing are taken to hang

    def weak(self) -> None:
        """Train with a batch for each device: more devices do more work in the same time."""
        self._scale("weak", communication=True)

    def strong(self) -> None:
        """Train with one batch that all devices share: more devices do the same work sooner."""
        self._scale("strong", communication=True)

    def communication_off(self) -> None:
        """Weak scaling of models that never talk to each other: the bound for `weak`."""
        self._scale("communication_off", communication=False)

    def _scale(self, kind: str, *, communication: bool) -> None:
        order = self._order()
        devices = order["devices"]
        numbers = scaling.levels_up_to(devices, divisors=kind == "strong")
        batch_size = order["batch_size"]
        sizes = {
            number: batch_size * devices // number if kind == "strong" else batch_size
            for number in numbers
        }
        folder = child.new_folder(Path(self.output_dir), f"scaling_{kind}")
        levels, ready = _measured(order, sizes, folder, communication=communication)
        found = scaling.figures(levels, lockstep=communication)
        suspicions = scaling.suspicions(found)
        table = {
            "scaling": kind,
            "suspicious": suspicions,
            "levels": [asdict(one) for one in found],
        }
        (folder / "scaling.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
        most = found[-1]
        own = ("model", "dtype", "threads_per_rank", "warmup", "seed", "rounds")
        self.report_benchmark(
            iters=most.steps,
            wall_time=most.step_median_s,
            throughput=most.examples_per_second,
            metrics=scaling.metrics(most),
            extras={
                **{name: order[name] for name in own},
                **scaling.extras(kind, found, suspicions),
                "batch_size": sizes[most.devices],
                "global_batch_size": most.examples_per_step,
                "device": order["kind"],
                "strategy": "MultiWorkerMirroredStrategy" if communication else "none",
                "tensorflow_version": ready["tensorflow_version"],
            },
        )

    def _order(self) -> dict[str, Any]:
        value = self.settings.value
        # Physical ones: this process must start no device that its ranks are to have.
        gpus = len(tf.config.list_physical_devices("GPU"))
        wanted = value("device", "auto")
        if wanted not in ("auto", "cpu", "gpu", "cuda"):
            raise SetupError(f"device is {wanted!r}; here it must be auto, cpu, gpu or cuda")
        kind = "gpu" if wanted in ("gpu", "cuda") or (wanted == "auto" and gpus) else "cpu"
        there = gpus if kind == "gpu" else CPU_RANKS
        devices = value("num_gpus", there)
        if kind == "gpu" and devices > there:
            raise SetupError(f"num_gpus is {devices}; TensorFlow sees {there} here")
        if devices < 2:
            hint = "" if kind == "cpu" else "; with --device=cpu, processes are devices"
            raise SetupError(f"scaling needs 2 devices or more, and num_gpus is {devices}{hint}")
        model = value("model", MODEL)
        catalogue.find(model)  # an unknown name is said here, not by a rank
        return {
            "model": model,
            "input_shape": value("input_shape"),
            "batch_size": value("batch_size", BATCH_SIZE),
            "devices": devices,
            "kind": kind,
            "rounds": ROUNDS,
            "steps_per_round": max(1, value("iterations", STEPS) // ROUNDS),
            "warmup": value("warmup", WARMUP),
            "dtype": self.settings.one_of("dtype", "float32", ("float32", "bfloat16")),
            "threads_per_rank": value("intra_threads", max(1, _cpus() // devices)),
            "seed": value("seed", 0),
            "silence_s": self.silence_s,
        }


def _measured(
    order: dict[str, Any], sizes: dict[int, int], folder: Path, *, communication: bool
) -> tuple[list[Level], dict[str, Any]]:
    """Measure all levels in turns, so that a slow moment of the machine falls on each.

    The processes of all levels are there from the start; those whose turn it is not are waiting.
    """
    with ExitStack() as stack:
        groups = {}
        facts: dict[str, Any] = {}
        for number, size in sizes.items():
            group = Group(
                {**order, "batch_size": size},
                ranks=number,
                folder=folder / f"devices_{number}",
                communication=communication,
            )
            stack.callback(group.end)
            ready = group.ready()  # one level after the other: compiling takes all of a machine
            _check_ranks(ready, number, communication=communication)
            groups[number], facts = group, ready[0]
        rounds: dict[int, list[tuple[tuple[float, ...], ...]]] = {number: [] for number in groups}
        for turn in range(order["rounds"]):
            backwards = turn % 2 == 1
            for number in sorted(groups, reverse=backwards):
                rounds[number].append(tuple(groups[number].turn(turn)))
    levels = [
        Level(devices=number, examples_per_step=number * sizes[number], rounds=tuple(found))
        for number, found in rounds.items()
    ]
    return levels, facts


def _check_ranks(ready: list[dict[str, Any]], number: int, *, communication: bool) -> None:
    """Ranks that do not train one model together measure something else."""
    if not communication or number == 1:
        return
    weights = {facts["weights"] for facts in ready}
    if len(weights) > 1 or any(not facts["collectives"] for facts in ready):
        raise RuntimeError(f"the {number} ranks did not train one model: {ready}")


def _cpus() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1

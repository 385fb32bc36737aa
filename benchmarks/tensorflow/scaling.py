"""Training on 1 to N devices with tf.distribute: weak and strong scaling, and their bound."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks._support.scaling import Level, Order, ScalingMethods
from benchmarks.tensorflow import catalogue
from benchmarks.tensorflow._support.framework import tf
from benchmarks.tensorflow._support.ranks import Group
from perfrun import SetupError


class Scaling(ScalingMethods):
    """One process per device: a GPU, or on the CPU an equal share of the threads."""

    framework = "TensorFlow"
    dtypes = ("float32", "bfloat16")

    def _devices(self) -> tuple[str, int]:
        # Physical devices are listed: this process must not start a device of its ranks.
        gpus = len(tf.config.list_physical_devices("GPU"))
        wanted = self.settings.value("device", "auto")
        if wanted not in ("auto", "cpu", "gpu", "cuda"):
            raise SetupError(f"device is {wanted!r}; here it must be auto, cpu, gpu or cuda")
        on_gpu = wanted in ("gpu", "cuda") or (wanted == "auto" and gpus > 0)
        return "gpu" if on_gpu else "cpu", gpus

    def _check_model(self, name: str) -> None:
        catalogue.find(name)

    def _own_order(self, kind: str) -> dict[str, Any]:  # noqa: ARG002
        return {"silence_s": self.silence_s}

    def _measured(self, order: Order, folder: Path) -> tuple[list[Level], dict[str, Any]]:
        """Measure all levels in turns, so that a slow moment of the machine falls on each.

        The processes of all levels exist from the start; those of the other levels wait.
        """
        with ExitStack() as stack:
            groups = {}
            for number in order["levels"]:
                group = Group(order, ranks=number, folder=folder / f"devices_{number}")
                stack.callback(group.end)
                ready = group.ready()  # one level after the other: compiling takes all of a machine
                _check_ranks(ready, number, communication=order["communication"])
                groups[number], facts = group, ready[0]
            rounds: dict[int, list[tuple[tuple[float, ...], ...]]] = {each: [] for each in groups}
            for turn in range(order["rounds"]):
                backwards = turn % 2 == 1
                for number in sorted(groups, reverse=backwards):
                    rounds[number].append(tuple(groups[number].turn(turn)))
        sizes = order["batch_sizes"]
        levels = [
            Level(devices=number, examples_per_step=number * sizes[number], rounds=tuple(found))
            for number, found in rounds.items()
        ]
        together = order["communication"]
        return levels, {
            "device": order["device"],
            "strategy": "MultiWorkerMirroredStrategy" if together else "none",
            "tensorflow_version": facts["tensorflow_version"],
        }


def _check_ranks(ready: list[dict[str, Any]], number: int, *, communication: bool) -> None:
    """Raise RankError for ranks that do not train one model together."""
    if not communication or number == 1:
        return
    weights = {facts["weights"] for facts in ready}
    if len(weights) > 1 or any(not facts["collectives"] for facts in ready):
        raise RuntimeError(f"the {number} ranks did not train one model: {ready}")

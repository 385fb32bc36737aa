"""A model on 1 to N devices with torch.distributed: weak and strong scaling, and their bound."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks._support import scaling
from benchmarks._support.scaling import Level, Order, ScalingMethods
from benchmarks.torch import catalogue
from benchmarks.torch._support import execution, ranks
from perfrun import SetupError


class Scaling(ScalingMethods):
    """One process per device: an accelerator, or on the CPU an equal share of the threads."""

    takes = (*scaling.KNOBS, *scaling.FURTHER_KNOBS, "dist_backend")
    framework = "PyTorch"
    dtypes = ("float32", "bfloat16", "float16")

    def _devices(self) -> tuple[str, int]:
        return execution.chosen(self.settings.value("device", "auto")).type, execution.count()

    def _check_model(self, name: str) -> None:
        catalogue.find(name)

    def _own_order(self, kind: str) -> dict[str, Any]:
        task = {"module": "benchmarks.torch._support.scaling_rank", "function": "main"}
        return {**task, "dist_backend": self._backend(kind)}

    def _backend(self, kind: str) -> str:
        usual = "nccl" if kind == "cuda" else "gloo"
        chosen = self.settings.value("dist_backend", "auto")
        if chosen == "nccl" and kind != "cuda":
            raise SetupError(f"dist_backend is 'nccl', and that is for CUDA, not {kind}")
        return usual if chosen == "auto" else str(chosen)

    def _measured(self, order: Order, folder: Path) -> tuple[list[Level], dict[str, Any]]:
        ranks.run(order, folder=folder, ranks=order["levels"][-1], silence_s=self.silence_s)
        return read_levels(folder, order), {
            **_notes(folder, order),
            "dist_backend": order["dist_backend"],
            "device": execution.description(torch.device(order["device"])),
            "torch_version": torch.__version__,
        }


def _notes(folder: Path, order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ranks' notes on float16 and on their images at the most devices."""
    last = order["levels"][-1]
    lines = [
        line
        for rank in range(last)
        for line in map(json.loads, (folder / f"rank_{rank}.jsonl").read_text("utf-8").splitlines())
        if line.get("devices") == last
    ]
    found: dict[str, Any] = {}
    skipped = [line["skipped_before"] for line in lines if "skipped_before" in line]
    if skipped:
        found.update(skipped_steps_before=max(skipped), skipped_steps=0)
    images = [line["images"] for line in lines if line.get("round") == 0 and "images" in line]
    if images:
        data = order["data"]
        found.update(data_dir=data["data_dir"], data_backend=data["data_backend"])
        found["images_by_rank"] = ", ".join(map(str, images))
    return found


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

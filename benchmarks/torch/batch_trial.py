"""Try a batch size of a PyTorch model: runs in a probe's own process."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.torch import device as devices


def trial(arguments: Mapping[str, Any], batch_size: int, steps: int) -> dict[str, Any]:
    """Run steps of the class's model; return their seconds and the peak of the GPU's memory."""
    module, name = arguments["class"]
    benchmark = getattr(importlib.import_module(module), name)(**arguments["knobs"])
    training = not benchmark.settings.value("forward_only", False)
    job = benchmark.job(training=training, batch_size=batch_size)
    job.run()  # compiles, and lets the optimiser make its own state
    devices.wait(job.how.device)
    step_s = []
    for _ in range(steps):
        began_s = time.perf_counter()
        job.run()
        devices.wait(job.how.device)
        step_s.append(time.perf_counter() - began_s)
    on_gpu = job.how.device.type == "cuda"
    peak = int(torch.cuda.max_memory_reserved(job.how.device)) if on_gpu else None
    return {"step_s": step_s, "device_peak_bytes": peak}

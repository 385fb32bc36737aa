"""Try a batch size of a model: runs in a probe's own process."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.models.job import Job


def trial(arguments: Mapping[str, Any], batch_size: int, steps: int) -> dict[str, Any]:
    """Run steps of the class's model; return their seconds and the peak of the GPU's memory."""
    module, name = arguments["class"]
    benchmark = getattr(importlib.import_module(module), name)(**arguments["knobs"])
    training = not benchmark.settings.value("forward_only", False)
    job: Job = benchmark.job(training=training, batch_size=batch_size)
    step_s = []
    with job.scope():
        job.wait(job.run())  # compiles, and lets the optimiser make its own state
        for _ in range(steps):
            began_s = time.perf_counter()
            job.wait(job.run())
            step_s.append(time.perf_counter() - began_s)
    return {"step_s": step_s, "device_peak_bytes": job.device_peak_bytes()}

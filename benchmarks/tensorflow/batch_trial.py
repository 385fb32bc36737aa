"""Try a batch size of a Keras model: runs in a probe's own process."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any


def trial(arguments: Mapping[str, Any], batch_size: int, steps: int) -> dict[str, Any]:
    """Run steps of the class's model; return their seconds and the peak of the GPU's memory."""
    module, name = arguments["class"]
    benchmark = getattr(importlib.import_module(module), name)(**arguments["knobs"])
    forward_only = benchmark.settings.value("forward_only", False)
    scope, step = benchmark.ready(forward_only=forward_only, batch_size=batch_size)
    step_s = []
    with scope:
        _finished(step())  # traces and compiles
        for _ in range(steps):
            began_s = time.perf_counter()
            _finished(step())
            step_s.append(time.perf_counter() - began_s)
    return {"step_s": step_s, "device_peak_bytes": _device_peak_bytes()}


def _finished(result: Any) -> None:
    """Wait for the device: copying a result to the host does."""
    from benchmarks.tensorflow.framework import tf

    for part in tf.nest.flatten(result):
        part.numpy()


def _device_peak_bytes() -> int | None:
    from benchmarks.tensorflow.framework import tf

    if not tf.config.list_logical_devices("GPU"):
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])

"""A probe's own process: what `benchmarks.largest_batch.probe` starts."""

from __future__ import annotations

import contextlib
import importlib
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks import child

# By the name of the exception's class or one of its bases: no framework is imported for it.
_CLASSES = {"MemoryError", "OutOfMemoryError", "ResourceExhaustedError"}
# RuntimeErrors of PyTorch's CPU allocator, of CUDA's libraries, of XLA.
_MESSAGES = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
    "std::bad_alloc",
    "Cannot allocate memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell want of memory from any other failure."""
    if _CLASSES & {kind.__name__ for kind in type(error).__mro__}:
        return True
    return any(message in str(error) for message in _MESSAGES)


def _peak_rss_bytes() -> int:
    """Return the kernel's mark; getrusage's survives exec, so that it may be the parent's."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _run(order: dict[str, Any]) -> dict[str, Any]:
    try:
        module, name = order["target"]
        function = getattr(importlib.import_module(module), name)
        found = function(order["arguments"], order["batch_size"], order["steps"])
        return {"status": "fits", **found}
    except Exception as error:  # whatever it is: its kind is the answer
        traceback.print_exc()
        said = " ".join(str(error).split())[:500]
        status = "out_of_memory" if is_out_of_memory(error) else "failed"
        return {"status": status, "reason": f"{type(error).__name__}: {said}"}


def answer(order: dict[str, Any]) -> None:
    """Run what the order says and write the answer."""
    _be_first_to_go()
    found = _run(order)
    child.write_answer(Path(order["answer"]), {**found, "peak_rss_bytes": _peak_rss_bytes()})


def _be_first_to_go() -> None:
    """Ask the kernel to kill this process before others when memory is short."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")

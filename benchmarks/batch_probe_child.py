"""The program of a probe: `python batch_probe_child.py ORDER`. See `benchmarks.batch_probe`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

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
        function = getattr(importlib.import_module(order["module"]), order["function"])
        found = function(order["arguments"], order["batch_size"], order["steps"])
        return {"status": "fits", **found}
    except Exception as error:  # whatever it is: its kind is the answer
        traceback.print_exc()
        said = " ".join(str(error).split())[:500]
        status = "out_of_memory" if is_out_of_memory(error) else "failed"
        return {"status": status, "reason": f"{type(error).__name__}: {said}"}


def main() -> int:
    """Carry out the order: the exit status is 0 whenever there is an answer."""
    # This file's folder is the first of the import path, and `import torch` must not look there.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    spec = importlib.util.spec_from_file_location("benchmarks_child", here / "child.py")
    assert spec is not None
    assert spec.loader is not None
    child = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(child)
    child.end_with_parent()
    _be_first_to_go()
    order = child.read_order(Path(sys.argv[1]))
    answer = _run(order)
    child.write_answer(Path(order["answer"]), {**answer, "peak_rss_bytes": _peak_rss_bytes()})
    return 0


def _be_first_to_go() -> None:
    """Ask the kernel to kill this process before others when memory is short."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())

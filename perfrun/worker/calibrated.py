"""Workloads with known reference values, which `perfrun selftest` runs.

Each method runs as every benchmark does, in a process of its own, in the environment under test.
The reference values are in the constants, or the workload reports them from a source other than the
one under test. numpy and torch are used where the environment has them; neither is required.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from perfrun.worker.author import Benchmark

MIB = 2**20
SLEEP_S = 0.1
SLEEPS = 10
# A fraction of a millisecond: even a busy machine sometimes runs that long without interruption.
SPIN_OPERATIONS = 20_000
SPIN_FACTOR = 4  # how many times the operations of the small spin the large one has
BATCH = 20
BATCH_FACTOR = 2
ALLOCATED_BYTES = 256 * MIB
CHILD_BYTES = 256 * MIB
SHARED_BYTES = 256 * MIB
HELD_S = 1.2  # long enough for the slowest sampler, which samples once a second
BUSY_CPU_S = 1.0
EXIT_CODE = 3
HARD_EXIT_CODE = 5
PRODUCT_ROWS = 1024  # of the square matrices, in single precision
DEVICE_ROWS = 4096
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")

_CHILD = """
import sys, time
held = bytearray(b"x") * int(sys.argv[1])
time.sleep(float(sys.argv[2]))
"""


class Calibrated(Benchmark):
    """Known amounts of time, memory and work, and known ways to end."""

    def nothing(self) -> None:
        """Do nothing, which leaves the worker's own cost."""
        self.report_benchmark(iters=1, wall_time=0.0)

    def sleep(self) -> None:
        """Sleep for a known time, and compare the clocks over it."""
        before = _clocks()
        self.measure(
            lambda: time.sleep(SLEEP_S),
            name="sleep",
            warmup=0,
            iterations=SLEEPS,
        )
        elapsed = {name + "_s": after - before[name] for name, after in _clocks().items()}
        self._report_metrics("clocks", elapsed)

    def spin(self) -> None:
        """Count to a known number, and to a multiple of it."""
        self._measured("spin_small", lambda: _spin(SPIN_OPERATIONS))
        self._measured("spin_large", lambda: _spin(SPIN_OPERATIONS * SPIN_FACTOR))

    def batch(self) -> None:
        """Work on a batch of known size, and on one twice as large."""
        items = [list(range(1000, 0, -1)) for _ in range(BATCH * BATCH_FACTOR)]
        few = items[:BATCH]
        self._measured("batch", lambda: _work(few), BATCH)
        self._measured("double_batch", lambda: _work(items), BATCH * BATCH_FACTOR)

    def busy(self) -> None:
        """Keep a processor busy until it has worked for a known time, by the kernel's account."""
        began, end = time.perf_counter(), time.process_time() + BUSY_CPU_S
        while time.process_time() < end:
            _spin(1000)
        self.report_benchmark(iters=1, wall_time=time.perf_counter() - began)

    def allocation(self) -> None:
        """Hold memory of known size."""
        began = time.perf_counter()
        held = bytearray(b"x") * ALLOCATED_BYTES
        self.report_benchmark(iters=1, wall_time=time.perf_counter() - began)
        del held

    def empty_child(self) -> None:
        """Start a child that holds nothing: the baseline of `holding_child`."""
        self._with_child(0)

    def holding_child(self) -> None:
        """Start a child that holds memory of known size."""
        self._with_child(CHILD_BYTES)

    def sharing_child(self) -> None:
        """Hold memory of known size and share all of it with a forked child."""
        held = bytearray(b"x") * SHARED_BYTES
        began = time.perf_counter()
        child = os.fork()
        if not child:
            try:
                time.sleep(HELD_S)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        self.report_benchmark(iters=1, wall_time=time.perf_counter() - began)
        del held

    def product(self) -> None:
        """Multiply matrices, whose rate must stay below the peak of the machine."""
        step, library = _product_step()
        if step is None:
            return self._report_metrics("product", {}, {"skipped": library})
        found = self._measured("product", step)
        operations = 2.0 * PRODUCT_ROWS**3
        self._report_metrics("rate", {"flops_per_s": operations / found}, {"library": library})
        return None

    def device(self) -> None:
        """Work on an accelerator, timed by its own clock and by the processor's."""
        why = _why_no_device()
        if why:
            return self._report_metrics("device", {}, {"skipped": why})
        device_s, wall_s, name = _device_times()
        times = {"device_s": device_s, "wall_s": wall_s}
        return self._report_metrics("device", times, {"device": name})

    def raises(self) -> None:
        """Fail with an exception."""
        raise ArithmeticError("meant to fail")

    def exits(self) -> None:
        """End by sys.exit."""
        sys.exit(EXIT_CODE)

    def exits_hard(self) -> None:
        """End by os._exit, without a report."""
        os._exit(HARD_EXIT_CODE)

    def aborts(self) -> None:
        """Die of SIGABRT, as a library's failed assertion does."""
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        os.abort()

    def is_killed(self) -> None:
        """Die of SIGKILL."""
        os.kill(os.getpid(), signal.SIGKILL)

    def misses_its_bounds(self) -> None:
        """Report a metric that is out of the bounds that go with it."""
        self.report_benchmark(wall_time=0.0, metrics=[{"name": "one", "value": 1, "max_value": 0}])

    def _measured(
        self, name: str, step: Callable[[], object], items: Optional[int] = None
    ) -> float:
        """Time a step as every benchmark does; return the shortest time, in seconds."""
        return self.measure(step, name=name, items_per_step=items, max_time_s=1.0).min_s

    def _with_child(self, size_bytes: int) -> None:
        import subprocess

        argv = [sys.executable, "-I", "-S", "-c", _CHILD, str(size_bytes), str(HELD_S)]
        began = time.perf_counter()
        subprocess.run(argv, check=True)
        self.report_benchmark(iters=1, wall_time=time.perf_counter() - began)

    def _report_metrics(
        self, name: str, metrics: Dict[str, float], notes: Optional[Dict[str, str]] = None
    ) -> None:
        listed: List[Dict[str, Any]] = [{"name": n, "value": v} for n, v in metrics.items()]
        self.report_benchmark(iters=1, name=name, metrics=listed, extras=notes)


def _spin(operations: int) -> None:
    for _ in range(operations):
        pass


def _work(items: List[List[int]]) -> None:
    for item in items:
        sum(item)


def _clocks() -> Dict[str, float]:
    """Read the clocks that this system has, one after the other, in seconds."""
    clocks = {"perf_counter": time.perf_counter(), "realtime": time.time()}
    if hasattr(time, "CLOCK_BOOTTIME"):
        clocks["boottime"] = time.clock_gettime(time.CLOCK_BOOTTIME)
    return clocks


def _product_step() -> Tuple[Optional[Callable[[], object]], str]:
    """Return a matrix product and the library that computes it, or None and the reason."""
    try:
        numpy: Any = importlib.import_module("numpy")
        matrix = numpy.ones((PRODUCT_ROWS, PRODUCT_ROWS), dtype=numpy.float32)
        out = numpy.empty_like(matrix)
        return lambda: numpy.matmul(matrix, matrix, out=out), "numpy " + numpy.__version__
    except ImportError:
        pass
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None, "the environment has neither numpy nor torch"
    square = torch.ones((PRODUCT_ROWS, PRODUCT_ROWS))
    return lambda: torch.matmul(square, square), "torch " + torch.__version__


def _why_no_device() -> str:
    """Return why no accelerator can be used; empty when one can. Import torch only if one may."""
    if not any(map(os.path.exists, _DEVICE_FILES)):
        return "no accelerator is seen from here"
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return "the environment has no torch to reach the accelerator with"
    return "" if torch.cuda.is_available() else "torch finds no accelerator that it can use"


def _device_times() -> Tuple[float, float, str]:
    """Return the seconds of ten products by the device's events and by our clock, and its name."""
    torch: Any = importlib.import_module("torch")
    matrix = torch.ones((DEVICE_ROWS, DEVICE_ROWS), device="cuda")
    torch.matmul(matrix, matrix)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    began = time.perf_counter()
    begin.record()
    for _ in range(10):
        torch.matmul(matrix, matrix)
    end.record()
    torch.cuda.synchronize()
    wall_s = time.perf_counter() - began
    return begin.elapsed_time(end) / 1000.0, wall_s, torch.cuda.get_device_name()

"""What PyTorch and its device do, timed by perfrun and by hand in the same process.

`--perfzero_constructor_args='{"device": "cpu"}'` is the rehearsal of machines without a GPU: the
same code at a small size, timed by the clock where CUDA has events.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from perfrun import Benchmark, SetupError

_MIB = 2**20
_REPETITIONS = 30


class Device(Benchmark):
    """Questions to one device. Each method reports what perfrun found and what a loop found."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.device = torch.device(str(self.constructor_args.get("device", "cuda")))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise SetupError(f"PyTorch {torch.__version__} sees no CUDA device here")
        self.is_cuda = self.device.type == "cuda"

    def synchronisation(self) -> None:
        """Time products by perfrun's clock, by CUDA events, and without waiting at all."""
        left, right = self._matrices()

        def step() -> Any:
            return left @ right

        found = self._timed(step)
        began = time.perf_counter()
        step()
        launch_s = time.perf_counter() - began
        self._wait()
        self._say(
            found,
            event_s=self._median(step),
            launch_s=launch_s,
            device_time_s=found.device_time_s or 0.0,
        )

    def two_streams(self) -> None:
        """Time a step most of whose work is on a stream of its own."""
        left, right = self._matrices()
        side: Any = torch.cuda.Stream() if self.is_cuda else None

        def step() -> Any:
            small = left[:64, :64] @ right[:64, :64]
            if side is None:
                return small, left @ right
            with torch.cuda.stream(side):
                return small, [left @ right for _ in range(3)]

        found = self._timed(step)
        self._say(found, by_hand_s=self._by_clock(step), default_stream_s=self._median(step))

    def memory(self) -> None:
        """Hold memory, take more for a moment, and say what the allocator and the driver saw."""
        held_mib, more_mib = (2048, 1024) if self.is_cuda else (64, 32)
        held = torch.ones(held_mib * _MIB // 4, device=self.device)
        more = torch.ones(more_mib * _MIB // 4, device=self.device)
        time.sleep(1.0)  # devices are read five times a second
        notes = {"held_bytes": float((held_mib + more_mib) * _MIB)}
        if self.is_cuda:
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            notes |= {
                "allocated_bytes": float(torch.cuda.max_memory_allocated()),
                "reserved_bytes": float(torch.cuda.max_memory_reserved()),
                "driver_used_bytes": float(total - free),
            }
        total_s = float(held[0] + more[0])  # neither may be given back before
        self.report_benchmark(wall_time=total_s, extras=notes)

    def copies(self) -> None:
        """Copy between host and device, from pageable and from pinned memory."""
        size = (256 if self.is_cuda else 8) * _MIB
        pageable = torch.ones(size // 4)
        pinned = pageable.pin_memory() if self.is_cuda else pageable
        on_device = pageable.to(self.device)
        rates = {}
        for name, host in (("pageable", pageable), ("pinned", pinned)):
            to_s = self._median(partial(on_device.copy_, host, non_blocking=True))
            from_s = self._median(partial(host.copy_, on_device, non_blocking=True))
            rates[f"{name}_to_device"] = size / to_s
            rates[f"{name}_from_device"] = size / from_s
        self.report_benchmark(wall_time=size / rates["pinned_to_device"], extras=rates)

    def load(self) -> None:
        """Keep the device busy for some seconds, for its power, energy and utilisation."""
        left, right = self._matrices()
        seconds = 6.0 if self.is_cuda else 0.5
        began, products = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            for _ in range(10 if self.is_cuda else 1):
                left @ right
                products += 1
            self._wait()
        spent_s = time.perf_counter() - began
        self.report_benchmark(iters=products, wall_time=spent_s, extras={"seconds": spent_s})

    def resnet18_by_hand(self) -> None:
        """Run ResNet-18 as anybody would write it, for its time and its peak on the device."""
        from benchmarks.torch._support.libraries.torchvision import load

        batch = 32 if self.is_cuda else 2
        model = load().models.resnet18(weights=None).to(self.device).eval()
        images = torch.randn(batch, 3, 224, 224, device=self.device)
        with torch.inference_mode():
            median_s = self._by_clock(lambda: model(images), 50 if self.is_cuda else 3)
        peak = float(torch.cuda.max_memory_allocated()) if self.is_cuda else 0.0
        self.report_benchmark(wall_time=median_s, extras={"allocated_bytes": peak})

    def _matrices(self) -> tuple[torch.Tensor, torch.Tensor]:
        size = 8192 if self.is_cuda else 256
        made = [torch.rand(size, size, device=self.device) for _ in range(2)]
        return made[0], made[1]

    def _timed(self, step: Callable[[], Any]) -> Any:
        return self.measure(step, report=False, block_size=1, max_time_s=5.0, min_time_s=0.2)

    def _say(self, found: Any, **notes: float) -> None:
        self.report_benchmark(**found.report_arguments(extras=notes))

    def _wait(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def _median(self, step: Callable[[], Any]) -> float:
        """Return the median seconds between CUDA events on the current stream, warm."""
        if not self.is_cuda:
            return self._by_clock(step)
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        times: list[float] = []
        for _ in range(_REPETITIONS):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            step()
            after.record()
            torch.cuda.synchronize()
            times.append(float(before.elapsed_time(after)) / 1e3)
        return statistics.median(times)

    def _by_clock(self, step: Callable[[], Any], repetitions: int = _REPETITIONS) -> float:
        """Return the median seconds by the clock, all streams waited for, warm."""
        for _ in range(5):
            step()
        self._wait()
        times = []
        for _ in range(repetitions):
            began = time.perf_counter()
            step()
            self._wait()
            times.append(time.perf_counter() - began)
        return statistics.median(times)

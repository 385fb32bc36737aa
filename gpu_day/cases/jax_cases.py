"""What JAX and its device do, timed by perfrun and by hand in the same process."""

from __future__ import annotations

import statistics
import time

import jax

from perfrun import Benchmark


class Device(Benchmark):
    """Questions to JAX' default device."""

    def synchronisation(self) -> None:
        """Time products by perfrun, by `block_until_ready`, and without waiting at all."""
        platform = jax.devices()[0].platform
        size = 512 if platform == "cpu" else 8192
        matrix = jax.random.normal(jax.random.key(0), (size, size))
        product = jax.jit(lambda one: one @ one)
        product(matrix).block_until_ready()
        found = self.measure(
            lambda: product(matrix), report=False, block_size=1, max_time_s=5.0, min_time_s=0.2
        )
        times, launches = [], []
        for _ in range(30):
            began = time.perf_counter()
            returned = product(matrix)
            launches.append(time.perf_counter() - began)
            returned.block_until_ready()
            times.append(time.perf_counter() - began)
        notes = {
            "by_hand_s": statistics.median(times),
            "launch_s": statistics.median(launches),
            "platform": platform,
        }
        self.report_benchmark(**found.report_arguments(extras=notes))

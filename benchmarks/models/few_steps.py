"""A quick first benchmark: a fixed number of steps, the same in every framework."""

from __future__ import annotations

from abc import ABC

from benchmarks.models.methods import Methods


class FewSteps(Methods, ABC):
    """`Methods` with 30 steps of inference, 6 of training, and 3 before them."""

    timed_steps = (30, 6)
    warmup_steps = 3

    def inference_batch8(self) -> None:
        """Forward passes, always batch 8."""
        self.measure_model(training=False, batch_size=8, iterations=10)

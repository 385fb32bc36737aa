"""Modules that a trial does not import, because its peak memory is to be that of the model's steps.

A companion counts and measures, and a loader comes with a data set.
"""

from __future__ import annotations

# What counts and measures; where it is imported, it is run.
COUNTING = (
    *("benchmarks._support.models.counting", "benchmarks._support.models.peak"),
    *(f"benchmarks.{name}._support.arithmetic" for name in ("jax", "keras", "tensorflow", "torch")),
    "torch.utils.flop_counter",
)
LOADING = (
    *("benchmarks._support.datasets.loading", "benchmarks._support.datasets.threaded"),
    *(f"benchmarks.{name}._support.loader" for name in ("tensorflow", "torch")),
)
NOT_IN_A_TRIAL = (*COUNTING, *LOADING)

"""Metrics that both frameworks report of a model under the same names.

An unknown figure has no metric. `Work` and `Peak` are found by a trial's companion, never in the
trial: its memory is the model's. perfrun adds them to the report (`perfrun.summary.arithmetic`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Metric = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The arithmetic of one example, as far as it was counted."""

    flops_per_example: float | None  # a multiply-add is two
    counted_by: str  # tool, convention, and which passes
    why_unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The most arithmetic that the device was seen to do, in operators that do little else."""

    flops_per_second: float | None
    measured_by: str  # the operator that was fastest, and among how many calls
    by_kind: str = ""  # the best of each kind of operator
    why_unknown: str = ""


def metrics_of(values: Mapping[str, float | None]) -> list[Metric]:
    """Return metrics of the values that are known."""
    return [{"name": name, "value": value} for name, value in values.items() if value is not None]


def final_loss(loss: float) -> list[Metric]:
    """Return the loss of the last step; RuntimeError when it is not a finite number."""
    if not math.isfinite(loss):
        raise RuntimeError(
            f"the loss became {loss}; these steps trained nothing; "
            "a smaller `learning_rate` may keep it finite"
        )
    return metrics_of({"final_loss": loss})


def start_up(
    *,
    framework_import_s: float | None,
    model_build_s: float,
    first_call_s: float,
    steady_s: float,
    is_compiled: bool,
    age_s: float | None,
) -> list[Metric]:
    """Return the times before the steady steps; `age_s` is the process's at the first step.

    The time of compilation is that of the first step less that of a later one; absent if not more.
    """
    more_s = first_call_s - steady_s
    return metrics_of(
        {
            "framework_import_s": framework_import_s,
            "model_build_s": model_build_s,
            "compile_s": more_s if is_compiled and more_s > 0 else None,
            "cold_start_s": None if age_s is None else age_s + first_call_s,
        }
    )

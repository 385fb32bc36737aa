"""Metrics that both frameworks report of a model under the same names.

An unknown figure has no metric; where the model's utilisation is unknown, an extra says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Metric = dict[str, Any]

_ABOVE = (
    "{share:.3g} of the peak, so this peak is none: other processes disturbed all of its probes, "
    "or an operator of the model is faster than they are or saves multiplications (Winograd, FFT)"
)


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
        raise RuntimeError(f"the loss became {loss}; these steps trained nothing")
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


def achieved(work: Work, examples_per_second: float | None) -> float | None:
    """Return the FLOP/s of a device at this rate of examples; None where it is unknown."""
    flops = work.flops_per_example
    return None if flops is None or not examples_per_second else flops * examples_per_second


def arithmetic(
    work: Work, peak: Peak, examples_per_second: float | None
) -> tuple[list[Metric], dict[str, Any]]:
    """Return the arithmetic of one example, and the share of the device's that is used.

    `examples_per_second` and the peak are those of one device.
    """
    flops = work.flops_per_example
    done = achieved(work, examples_per_second)
    share = None
    if done is not None and peak.flops_per_second:
        share = done / peak.flops_per_second
    metrics = metrics_of(
        {
            "flops_per_example": flops,
            "macs_per_example": None if flops is None else flops / 2,
            "achieved_flops_per_second": done,
            "peak_flops_per_second": peak.flops_per_second,
            "model_flops_utilisation": share,
        }
    )
    extras = {
        "flops_counted_by": work.counted_by,
        "peak_measured_by": peak.measured_by,
        "peak_by_kind": peak.by_kind,
    }
    if share is None:
        why = work.why_unknown or peak.why_unknown or "the steps are too short for the clock"
        extras["mfu_absent"] = why
    elif share > 1:
        extras["mfu_suspicious"] = _ABOVE.format(share=share)
    return metrics, {name: text for name, text in extras.items() if text}

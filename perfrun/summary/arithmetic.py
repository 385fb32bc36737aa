"""The arithmetic of a report: that of the model, that of its device, and the share that is used.

Both are counted by a trial's companion (`perfrun.worker.companion`). An unknown figure has no
metric; where the utilisation is unknown, an extra says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfrun.dataclass import dataclass, replace
from perfrun.summary.document import Metric, Report

_ABOVE = (
    "{share:.3g} of the peak, so this peak is none: other processes disturbed all of its probes, "
    "or an operator of the model is faster than they are or saves multiplications (Winograd, FFT)"
)
_LONGEST = 2000  # characters of a text


@dataclass(frozen=True, kw_only=True)
class Work:
    """The arithmetic of one example, as far as it was counted."""

    flops_per_example: float | None = None  # a multiply-add is two
    counted_by: str = ""  # tool, convention, and which passes
    why_unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The most arithmetic that the device was seen to do, in operators that do little else."""

    flops_per_second: float | None = None
    measured_by: str = ""  # the operator that was fastest, and among how many calls
    by_kind: str = ""  # the best of each kind of operator
    why_unknown: str = ""


def work_of(said: object) -> Work:
    """Return the work as a companion has told it. Raises ValueError for anything else."""
    values = _checked(said, "flops_per_example", ("counted_by", "why_unknown"))
    return Work(**values)


def peak_of(said: object) -> Peak:
    """Return the peak as a companion has told it. Raises ValueError for anything else."""
    values = _checked(said, "flops_per_second", ("measured_by", "by_kind", "why_unknown"))
    return Peak(**values)


def _checked(said: object, number: str, texts: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(said, Mapping) or set(said) - {number, *texts}:
        raise ValueError(f"not a mapping of {number} and {', '.join(texts)}")
    value = said.get(number)
    if value is not None and not is_positive(value):
        raise ValueError(f"{number} is not a finite number above 0")
    values: dict[str, Any] = {number: None if value is None else float(value)}
    for name in texts:
        text = said.get(name, "")
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise ValueError(f"{name} is not a text of at most {_LONGEST} characters")
        values[name] = text
    return values


def is_positive(value: object) -> bool:
    """Return True for a finite number above 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return is_number and 0 < float(value) < math.inf  # type: ignore[arg-type]
    except OverflowError:  # of an int that no float can hold
        return False


def achieved(work: Work, examples_per_second: float | None) -> float | None:
    """Return the FLOP/s of a device at this rate of examples; None where it is unknown."""
    if work.flops_per_example is None or not examples_per_second:
        return None
    done = work.flops_per_example * examples_per_second
    return done if math.isfinite(done) else None


def figures(
    work: Work, peak: Peak, examples_per_second: float | None
) -> tuple[dict[str, float], dict[str, str]]:
    """Return metrics and extras: the arithmetic of one example, and the share that is used.

    `examples_per_second` and the peak are those of one device.
    """
    flops = work.flops_per_example
    done = achieved(work, examples_per_second)
    share = None
    if done is not None and peak.flops_per_second:
        share = done / peak.flops_per_second
    metrics = {
        "flops_per_example": flops,
        "macs_per_example": None if flops is None else flops / 2,
        "achieved_flops_per_second": done,
        "peak_flops_per_second": peak.flops_per_second,
        "model_flops_utilisation": share,
    }
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
    return (
        {name: value for name, value in metrics.items() if value is not None},
        {name: text for name, text in extras.items() if text},
    )


def with_figures(report: Report, metrics: Mapping[str, float], extras: Mapping[str, str]) -> Report:
    """Return the report with more metrics and extras; what it has by itself stays as it is."""
    known = {metric.name for metric in report.metrics}
    said = {extra.get("name") for extra in report.extras}
    return replace(
        report,
        metrics=(
            *report.metrics,
            *(Metric(name=name, value=v) for name, v in metrics.items() if name not in known),
        ),
        extras=(
            *report.extras,
            *({"name": name, "value": v} for name, v in extras.items() if name not in said),
        ),
    )

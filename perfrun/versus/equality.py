"""What must be equal in a comparison of frameworks: type, TF32, layout, threads, allocator.

Results of frameworks have been disputed because one of them computed in TF32 by default and the
other did not. The benchmarks report what they ran with, the worker which allocator it had, and a
comparison of unequal arms is refused unless the user has allowed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfrun.errors import UsageError
from perfrun.summary.record import SummaryRecord
from perfrun.summary.series_identity import effective_allocator, section
from perfrun.versus.options import Arm, VersusPlan

_ADVICE = {
    "dtype": "give all the same, as -- --dtype=float32",
    "tf32": "set it alike, as --flags=torch='--env=NVIDIA_TF32_OVERRIDE=0' for each of them",
    "layout": "set it alike, as --flags=torch='-- --channels_last=true'",
    "threads": "give all the same, as -- --intra_threads=1",
    "allocator": "give all the same --allocator",
}
_LAYOUTS = {"true": "channels last", "false": "channels first"}
_TF32 = ("matmul_allow_tf32", "cudnn_allow_tf32")


def extra_of(record: SummaryRecord, name: str) -> Any:
    """Return an extra of the trial's report by its name; None without it."""
    extras = record.document["benchmark_result"].get("extras") or ()
    return next((item["value"] for item in extras if item["name"] == name), None)


def refuse_unequal(asked: VersusPlan, readings: Mapping[str, SummaryRecord]) -> None:
    """Raise UsageError when the arms ran with what may not differ; a line names both values."""
    found = []
    for what, value_of in _VALUES.items():
        if what not in asked.allow_unequal:
            values = _reported(what, value_of, asked.arms, readings)
            if len(set(values.values())) > 1:
                said = ", ".join(f"{label} {value}" for label, value in values.items())
                found.append((what, f"{what} ({said})"))
    if found:
        names = ",".join(what for what, _ in found)
        raise UsageError(
            f"perfrun versus: not equal: {'; '.join(text for _, text in found)}: "
            f"{'; '.join(_ADVICE[what] for what, _ in found)}; "
            f"or allow it: --allow_unequal={names}"
        )


def _reported(
    what: str,
    value_of: Callable[[SummaryRecord], str | None],
    arms: Sequence[Arm],
    readings: Mapping[str, SummaryRecord],
) -> dict[str, str]:
    """Return the values by label; an arm that does not report one is equal to all."""
    found = {}
    for arm in arms:
        record = readings.get(arm.label)
        if record is None or (what == "dtype" and arm.names_its_type):
            continue
        value = value_of(record)
        if value is not None:
            found[arm.label] = value
    return found


def _dtype(record: SummaryRecord) -> str | None:
    return _text(extra_of(record, "dtype"))


def _threads(record: SummaryRecord) -> str | None:
    return _text(extra_of(record, "threads"))


def _tf32(record: SummaryRecord) -> str | None:
    values = [_text(extra_of(record, name)) for name in _TF32]
    known = [value for value in values if value is not None]
    return None if not known else "on" if "true" in known else "off"


def _layout(record: SummaryRecord) -> str | None:
    """Return the layout of images; other input has none."""
    shape = _text(extra_of(record, "input_shape")) or ""
    last = _text(extra_of(record, "channels_last"))
    return None if last is None or shape.count("x") != 2 else _LAYOUTS.get(last.lower(), last)


def _allocator(record: SummaryRecord) -> str | None:
    """Return the allocator by the name of its flag; an older summary has none."""
    found = section(section(record.document, "perfrun"), "allocator")
    return effective_allocator(found) if found else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


_VALUES: dict[str, Callable[[SummaryRecord], str | None]] = {
    "dtype": _dtype,
    "tf32": _tf32,
    "layout": _layout,
    "threads": _threads,
    "allocator": _allocator,
}

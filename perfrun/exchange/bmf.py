"""Results in the Bencher Metric Format: benchmark to measure to value, and nothing else.

    {"benchmark": {"latency": {"value": 88.0, "lower_value": 87.4, "upper_value": 88.6}}}

Bencher's own measures `latency` (nanoseconds) and `throughput` (operations a second) become the
wall time and a rate; of any other measure, unit and direction follow from its name alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from perfrun.exchange.exported import Exported
from perfrun.exchange.foreign import Figure, ForeignTrial, Source, Timing

TOOL = "bmf"
_NS = 1e-9
_MOST_VALUES = 100_000


class _Value(Struct):
    value: float
    lower_value: float | None = None
    upper_value: float | None = None


def read(source: Source) -> list[ForeignTrial]:
    """Return the trials of a file, one a benchmark. Raises ForeignError."""
    document = source.convert(dict[str, dict[str, _Value]])
    if sum(map(len, document.values())) > _MOST_VALUES:
        raise source.wrong("", f"has more than {_MOST_VALUES:,} values")
    return [_trial(source, name, measures) for name, measures in document.items()]


def _trial(source: Source, stated: str, measures: Mapping[str, _Value]) -> ForeignTrial:
    name = source.name(stated, "a benchmark's name")
    timing: Timing | None = None
    figures: list[Figure] = []
    extras: dict[str, float | str] = {}
    for stated_measure, one in measures.items():
        measure = source.name(stated_measure, f"{name}: the name of a measure")
        place = f"{name}.{measure}"
        value = source.number(one.value, f"{place}.value", 0 if measure == "latency" else None)
        if measure == "latency":
            timing = Timing(median_s=value * _NS)
        elif measure == "throughput":
            figures.append(Figure(name=measure, value=value, unit="1/s", direction="higher"))
        else:
            figures.append(Figure(name=measure, value=value))
        # The format does not say what the bounds are, an interval or the extremes: so a note.
        bounds = [
            f"{side} {source.number(bound, f'{place}.{side}_value'):g}"
            for side, bound in (("lower", one.lower_value), ("upper", one.upper_value))
            if bound is not None
        ]
        if bounds:
            extras[f"{measure} bounds"] = ", ".join(bounds)
    return ForeignTrial(
        method=name, timestamp=None, timing=timing, figures=tuple(figures), extras=extras
    )


def write(results: Sequence[Exported]) -> dict[str, Any]:
    """Return the document: a latency with its confidence interval, and the other figures."""
    found: dict[str, Any] = {}
    for one in results:
        measures: dict[str, Any] = {}
        if one.median_s is not None:
            measures["latency"] = {"value": one.median_s / _NS}
            if one.interval_s is not None:
                low, high = one.interval_s
                measures["latency"] |= {"lower_value": low / _NS, "upper_value": high / _NS}
        for figure in one.figures:
            measures.setdefault(figure.name, {"value": figure.value})
        if measures:
            found[one.name] = measures
    return found

"""A figure known to be true, and what was measured of it: the rows of `perfrun selftest`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
Documents = Mapping[str, Document]
"""Summaries by the name of the workload's method."""

INFINITY = float("inf")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One truth and what was measured.

    `error` is measured / truth - 1, and `allowed` its limits, both inclusive. They are None where
    truth is a text, which must be met exactly.
    """

    what: str
    truth: float | str | None
    measured: float | str | None
    unit: str
    source: str  # of the measured value, and of the truth where that is not a constant
    error: float | None = None
    allowed: tuple[float, float] | None = None
    verdict: str = "ok"  # ok, off or skipped
    reason: str | None = None  # why off or skipped

    @property
    def distance(self) -> float:
        """How far off: 0 when not, and comparable between attempts at the same row."""
        if self.verdict != "off":
            return 0.0
        if self.error is None or self.allowed is None:
            return INFINITY
        return max(self.allowed[0] - self.error, self.error - self.allowed[1])


@dataclass(frozen=True, kw_only=True)
class Check:
    """A row to be, and the workloads that it needs."""

    what: str
    workloads: tuple[str, ...]
    judge: Callable[[Check, Documents], Row]
    deaths: bool = False  # whether the workloads are to end otherwise than well

    def row(self, documents: Documents) -> Row:
        """Judge. A workload that did not end well, or without the figure, makes the row `off`."""
        for name in () if self.deaths else self.workloads:
            outcome = documents[name]["perfrun"]["outcome"]
            if outcome["status"] != "passed":
                return self._off(f"the workload {name!r}: {outcome['status']}, {outcome['reason']}")
        try:
            return self.judge(self, documents)
        except (KeyError, IndexError, TypeError, ZeroDivisionError) as error:
            return self._off(f"a figure is not there: {type(error).__name__}: {error}")

    def _off(self, reason: str) -> Row:
        return _without_figures(self, "off", reason)


def compare(
    check: Check,
    truth: float,
    measured: float,
    unit: str,
    allowed: tuple[float, float],
    source: str,
) -> Row:
    """A row about a number."""
    error = measured / truth - 1
    is_ok = allowed[0] <= error <= allowed[1]
    return Row(
        what=check.what,
        truth=truth,
        measured=measured,
        unit=unit,
        source=source,
        error=error,
        allowed=allowed,
        verdict="ok" if is_ok else "off",
        reason=None if is_ok else f"off by {100 * error:+.3g} %",
    )


def skipped(check: Check, reason: str) -> Row:
    """A row about something that this machine or environment does not have."""
    return _without_figures(check, "skipped", reason)


def _without_figures(check: Check, verdict: str, reason: str) -> Row:
    return Row(
        what=check.what,
        truth=None,
        measured=None,
        unit="",
        source="",
        verdict=verdict,
        reason=reason,
    )


def around(share: float) -> tuple[float, float]:
    """Limits of so much on both sides."""
    return (-share, share)


def report(document: Document, name: str) -> Mapping[str, Any]:
    """Return the report of that name; KeyError when there is none."""
    for found in document["perfrun"]["reports"]:
        if found["name"] == f"Calibrated.{name}":
            return found  # type: ignore[no-any-return]
    raise KeyError(name)


def metric(document: Document, of: str, name: str) -> float:
    """Return a metric of a report; KeyError when there is none."""
    for found in report(document, of)["metrics"]:
        if found["name"] == name:
            return float(found["value"])
    raise KeyError(name)


def note(document: Document, of: str, name: str) -> str | None:
    """Return a note (`extras`) of a report, or None."""
    extras = {item["name"]: item["value"] for item in report(document, of)["extras"]}
    return extras.get(name)

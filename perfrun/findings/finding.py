"""One thing that is to be known about the quality of a trial's figures."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from perfrun.dataclass import dataclass


class Severity(str, Enum):
    """What a finding means for the figures."""

    INFO = "info"  # good to know; the grade stays
    WARNING = "warning"  # figures are less certain; doing it again would be no better
    DISTURBED = "disturbed"  # something from outside came in between; doing it again may help


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found, with its number and the limit that it is beyond."""

    code: str  # stable; a key for programs
    severity: Severity
    text: str  # one line for people
    value: float | None = None
    limit: float | None = None
    unit: str | None = None
    mend: str | None = None  # what helps, if anything does


@dataclass(frozen=True, kw_only=True)
class Limits:
    """From where on a value is worth a warning, and from where on it is a disturbance."""

    warning: float | None = None
    disturbed: float | None = None

    def severity(self, value: float) -> Severity | None:
        """The worst that holds; None below all limits."""
        if self.disturbed is not None and value > self.disturbed:
            return Severity.DISTURBED
        if self.warning is not None and value > self.warning:
            return Severity.WARNING
        return None

    def limit(self, severity: Severity) -> float | None:
        """The limit that a value of this severity is beyond."""
        return self.disturbed if severity is Severity.DISTURBED else self.warning


def beyond(
    code: str,
    value: float | None,
    limits: Limits,
    *,
    text: str,
    unit: str,
    mend: str | None = None,
) -> Iterable[Finding]:
    """Yield a finding if the value is known and beyond a limit."""
    severity = None if value is None else limits.severity(value)
    if severity is not None:
        yield Finding(
            code=code,
            severity=severity,
            text=text,
            value=value,
            limit=limits.limit(severity),
            unit=unit,
            mend=mend,
        )

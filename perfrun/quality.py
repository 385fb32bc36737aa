"""How far the figures of a trial can be trusted: findings, and a grade over them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.findings.devices import device_findings
from perfrun.findings.finding import Finding, Severity
from perfrun.findings.machine import machine_findings
from perfrun.findings.series import series_findings
from perfrun.findings.span import Span
from perfrun.probes.devices import DeviceUsage

# A disturbance weighs as much as three reasons to be careful.
POINTS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.DISTURBED: 3}
GRADES = "ABCDEF"  # by points: 0, 1, 2, 3, 4 and 5, more
_WORST_POINTS = (0, 1, 2, 3, 5)  # the most that each grade but the last may have
ENOUGH_SAMPLES = 5  # of the process tree; with fewer, what is sampled may be far off


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The verdict on one trial."""

    grade: str  # A, the best, to F
    disturbed: bool  # something from outside came in between: run it again
    findings: tuple[Finding, ...]


def judge_quality(
    span: Span | None,
    *,
    series: Sequence[Mapping[str, Any]] = (),
    devices: Sequence[DeviceUsage] = (),
    samples: int | None = None,
) -> Quality:
    """Judge a trial by the machine around it and by its own series.

    `samples`: how often the process tree was looked at. What is None gives no finding.
    """
    findings = [
        *(machine_findings(span) if span else ()),
        *device_findings(devices),
        *series_findings(series),
        *_sampling(samples),
    ]
    return Quality(
        grade=grade(findings),
        disturbed=any(finding.severity is Severity.DISTURBED for finding in findings),
        findings=tuple(findings),
    )


def grade(findings: Iterable[Finding]) -> str:
    """The letter for these findings: one more finding never makes it better.

    Of each code the worst counts, once: a trial of nine short series has one reason to be careful
    with it, not nine, and is no worse than nine trials of one series each.
    """
    worst: dict[str, int] = {}
    for finding in findings:
        worst[finding.code] = max(worst.get(finding.code, 0), POINTS[finding.severity])
    points = sum(worst.values())
    return GRADES[sum(points > most for most in _WORST_POINTS)]


def _sampling(samples: int | None) -> Iterable[Finding]:
    if samples is not None and samples < ENOUGH_SAMPLES:
        yield Finding(
            code="few_samples",
            severity=Severity.INFO,
            text=f"the process tree was sampled {samples} times: its peak is a lower bound",
            value=samples,
            limit=ENOUGH_SAMPLES,
            unit="samples",
        )

"""How far the figures of a trial can be trusted: findings, and a grade over them. Pure.

What the accelerators say: others that used them, and clocks that were held down. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.probes.accelerators import DeviceUsage
from perfrun.summary.finding import Finding, MachineDelta, Severity
from perfrun.summary.quality_machine import machine_findings
from perfrun.summary.quality_series import series_findings

# Reasons for lower clocks as NVML names them (clocks event reasons), and what they mean for a
# trial. The others (idle, a display, clocks that were set by somebody) are no reason for doubt.
REASONS = {
    "hw_thermal_slowdown": Severity.DISTURBED,
    "sw_thermal_slowdown": Severity.DISTURBED,
    "hw_power_brake_slowdown": Severity.DISTURBED,
    "hw_slowdown": Severity.DISTURBED,
    "sw_power_cap": Severity.WARNING,  # a busy device at its power limit: so it will be again
    "sync_boost": Severity.WARNING,
}
SHARE_LIMIT = 0.01  # of the samples; a single one at the start says little


def device_findings(devices: Sequence[DeviceUsage]) -> Iterator[Finding]:
    """Yield what is to be said about each device."""
    for device in devices:
        name = f"{device.vendor} {device.index}"
        others = device.other_processes
        if others:
            held = sum(size or 0 for size in others.values())
            yield Finding(
                code="device_shared",
                severity=Severity.DISTURBED,
                text=f"{name}: {len(others)} other process(es) used it"
                + (f", which held {held / (1 << 20):,.0f} MiB" if held else ""),
                value=len(others),
                limit=0,
                unit="processes",
                mend="nvidia-smi shows them",
            )
        for reason, share in sorted((device.throttle_reasons or {}).items()):
            if reason in REASONS and share > SHARE_LIMIT:
                yield Finding(
                    code="device_throttled",
                    severity=REASONS[reason],
                    text=f"{name}: clocks held down in {share:.0%} of the samples "
                    f"({reason.replace('_', ' ')})",
                    value=share,
                    limit=SHARE_LIMIT,
                    unit="share",
                    mend="cooling, or a higher power limit: nvidia-smi -q -d PERFORMANCE,POWER",
                )


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
    span: MachineDelta | None,
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

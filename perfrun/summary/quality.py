"""Judge the quality of a trial's figures: findings about it, and a grade from the findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfrun.dataclass import dataclass
from perfrun.probes.accelerators import DeviceUsage
from perfrun.summary.allocator import allocator_findings
from perfrun.summary.finding import Finding, MachineDelta, Severity
from perfrun.summary.quality_machine import machine_findings
from perfrun.summary.quality_series import series_findings
from perfrun.summary.series_identity import effective_allocator

# NVML's reasons for lower clocks (clocks event reasons) that matter to a trial. The others (idle, a
# display, clocks that somebody has set) do not.
REASONS = {
    "hw_thermal_slowdown": Severity.DISTURBED,
    "sw_thermal_slowdown": Severity.DISTURBED,
    "hw_power_brake_slowdown": Severity.DISTURBED,
    "hw_slowdown": Severity.DISTURBED,
    "sw_power_cap": Severity.WARNING,  # a busy device at its power limit: another trial has it, too
    "sync_boost": Severity.WARNING,
}
SHARE_LIMIT = 0.01  # of the samples; a single one at the start means little
# A disturbance weighs as much as three warnings.
POINTS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.DISTURBED: 3}
GRADES = "ABCDEF"  # for 0, 1, 2, 3, 4 to 5, and more points
_WORST_POINTS = (0, 1, 2, 3, 5)  # the most that each grade but the last may have
ENOUGH_SAMPLES = 5  # of the process tree; with fewer, what is sampled may be far off


def device_findings(devices: Sequence[DeviceUsage]) -> Iterator[Finding]:
    """Yield findings about each device: other users, and clocks that were held down."""
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


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The grade of one trial and its findings."""

    grade: str  # A, the best, to F
    disturbed: bool  # something outside disturbed the trial: run it again
    findings: tuple[Finding, ...]


def judge_quality(
    delta: MachineDelta | None,
    *,
    series: Sequence[Mapping[str, Any]] = (),
    devices: Sequence[DeviceUsage] = (),
    samples: int | None = None,
    allocator: Mapping[str, Any] | None = None,
) -> Quality:
    """Judge a trial by the machine, the devices and its own series.

    `samples` is the number of samples of the process tree, `allocator` the summary's section. A
    value of None gives no finding.
    """
    findings = [
        *(machine_findings(delta) if delta else ()),
        *device_findings(devices),
        *series_findings(series, effective_allocator(allocator or {})),
        *allocator_findings(allocator or {}),
        *_sampling(samples),
    ]
    return Quality(
        grade=grade(findings),
        disturbed=any(finding.severity is Severity.DISTURBED for finding in findings),
        findings=tuple(findings),
    )


def grade(findings: Iterable[Finding]) -> str:
    """Return the grade of these findings; a further finding never improves it.

    The worst finding of each code counts once: a trial with nine short series is no worse than nine
    trials of one series each.
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

"""What the accelerators say: others that used them, and clocks that were held down. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfrun.findings.finding import Finding, Severity
from perfrun.probes.devices import DeviceUsage

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

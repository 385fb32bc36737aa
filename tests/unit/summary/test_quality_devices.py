"""Findings about accelerators."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from perfrun.probes.accelerators import DeviceUsage
from perfrun.summary.finding import Severity
from perfrun.summary.quality import device_findings


def used(index: int = 0, **known: Any) -> DeviceUsage:
    """A device of which nothing is known but this."""
    nothing = dict.fromkeys(field.name for field in fields(DeviceUsage))
    return DeviceUsage(**{**nothing, "vendor": "nvidia", "index": index, "name": "H200", **known})


def test_a_device_of_ones_own_at_full_clocks_gives_no_findings() -> None:
    idle = {"gpu_idle": 0.9, "applications_clocks_setting": 1.0, "sw_power_cap": 0.005}
    watched = used(other_processes={}, throttle_reasons=idle)
    assert list(device_findings([watched, used(1)])) == []


def test_another_user_is_a_disturbance_with_what_it_held() -> None:
    watched = used(1, other_processes={7: 3 << 30, 8: None})
    (finding,) = device_findings([watched])
    assert (finding.code, finding.severity, finding.value) == (
        "device_shared",
        Severity.DISTURBED,
        2,
    )
    assert finding.text == "nvidia 1: 2 other process(es) used it, which held 3,072 MiB"


@pytest.mark.parametrize(
    ("reason", "severity"),
    [
        ("hw_thermal_slowdown", Severity.DISTURBED),
        ("sw_thermal_slowdown", Severity.DISTURBED),
        ("hw_power_brake_slowdown", Severity.DISTURBED),
        ("sw_power_cap", Severity.WARNING),
    ],
)
def test_heat_disturbs_and_a_power_limit_is_a_warning(reason: str, severity: Severity) -> None:
    (finding,) = device_findings([used(throttle_reasons={reason: 0.25})])
    assert (finding.code, finding.severity) == ("device_throttled", severity)
    assert "25% of the samples" in finding.text

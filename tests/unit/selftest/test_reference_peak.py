"""The bound on operations a second, from texts of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.selftest.reference import highest_khz, peak, read_peak


@pytest.mark.parametrize(
    ("line", "operations"),
    [
        ("flags\t\t: fpu sse2", 8),
        ("flags\t\t: fpu sse2 avx", 16),
        ("flags\t\t: fpu sse2 avx fma avx2", 32),
        ("flags\t\t: fpu sse2 avx avx2 avx512f avx512dq", 64),
        ("Features\t: fp asimd", 32),
        ("Features\t: fp asimd sve", 64),
    ],
)
def test_the_widest_instructions_and_the_highest_clock_count(line: str, operations: int) -> None:
    found = peak(f"processor\t: 0\n{line}\nbogomips\t: 1\n", "3000000\n", 4, "any")
    assert found.flops_per_s == 4 * operations * 3e9
    assert "4 cores" in found.how
    assert "3 GHz" in found.how


def test_without_a_known_clock_the_bound_is_that_of_the_fastest_there_is() -> None:
    found = peak("flags : sse2\n", "", 1, "x86_64")
    assert found.flops_per_s == 8 * 6.2e9


@pytest.mark.parametrize("place", ["cpufreq", "cpu0/cpufreq"])
@pytest.mark.parametrize(("boost", "hertz"), [("1\n", 6.2e9), ("0\n", 2.45e9), (None, 2.45e9)])
def test_where_a_boost_is_on_the_highest_clock_of_sysfs_is_no_bound(
    tmp_path: Path, place: str, boost: str | None, hertz: float
) -> None:
    # As acpi-cpufreq shows an EPYC 7763, whose cores reach 3.5 GHz.
    for folder in ("cpufreq", "cpu0/cpufreq"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "cpu0/cpufreq/cpuinfo_max_freq").write_text("2450000\n")
    if boost is not None:
        (tmp_path / place / "boost").write_text(boost)
    found = peak("flags : avx2\n", highest_khz(tmp_path), 1, "x86_64")
    assert found.flops_per_s == 32 * hertz


def test_an_unknown_processor_has_no_bound_and_the_reason() -> None:
    found = peak("isa : rv64imafdc\n", "", 1, "riscv64")
    assert found.flops_per_s is None
    assert "riscv64" in str(found.why_unknown)


def test_this_machine_has_a_bound_or_a_reason_for_none() -> None:
    found = read_peak()
    assert found.flops_per_s or found.why_unknown
    assert found.cores >= 1

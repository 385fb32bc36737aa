"""Energy counters: they are summed, also when they wrap around; a missing one has a reason."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfrun.probes.rapl import ENABLE, NO_ZONES, ROOT, Rapl


def zone(root: Path, folder: str, name: str, uj: int, range_uj: int = 262_143_328_850) -> Path:
    path = root / folder
    path.mkdir()
    (path / "name").write_text(name + "\n")
    (path / "energy_uj").write_text(f"{uj}\n")
    (path / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return path


def test_packages_and_their_parts_are_added_up(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 500_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 7)  # the same package once more
    (tmp_path / "intel-rapl").mkdir()
    rapl = Rapl(tmp_path)
    assert rapl.works
    (package / "energy_uj").write_text("4500000\n")
    (memory / "energy_uj").write_text("600000\n")
    meters = {meter.name: meter.energy_j for meter in rapl.meters()}
    assert meters == {"package-0": 3.5, "package-0/dram": pytest.approx(0.1)}
    assert all(meter.seconds > 0 for meter in rapl.meters())


def test_a_counter_that_starts_again_loses_nothing(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000, range_uj=9_999_999)
    rapl = Rapl(tmp_path)
    for _ in range(3):  # it goes round more than twice, and was read in between
        (package / "energy_uj").write_text("2000000\n")
        rapl.read()
        (package / "energy_uj").write_text("9000000\n")
        rapl.read()
    assert rapl.meters()[0].energy_j == pytest.approx(30.0)


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder that everybody can reach, seen by a user who is not root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        package = zone(Path(folder), "intel-rapl:0", "package-0", 1)
        for path in (package, *package.iterdir()):  # whatever the umask is
            path.chmod(0o755)
        (package / "energy_uj").chmod(0)
        was = os.geteuid()
        if was == 0:
            os.seteuid(65534)
        yield Path(folder)
        os.seteuid(was)


def test_counters_for_root_only_come_with_the_line_that_mends_it(nobody: Path) -> None:
    rapl = Rapl(nobody)
    assert not rapl.works
    assert "root" in (rapl.reason or "")
    assert rapl.enable == ENABLE


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    rapl = Rapl(tmp_path / "missing")
    assert (rapl.works, rapl.reason, rapl.meters()) == (False, NO_ZONES, ())


def test_this_machine_has_counters_or_a_reason() -> None:
    rapl = Rapl()
    assert rapl.works or rapl.reason
    if not ROOT.exists():
        assert rapl.reason == NO_ZONES

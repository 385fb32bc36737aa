"""A trial that fills the disk of its output folder is noticed, and nobody is blamed for another."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfrun.launchers.container import DiskGuard

MEBI = 2**20


def write(path: Path, mebibytes: int) -> None:
    with path.open("wb") as file:
        file.write(os.urandom(mebibytes * MEBI))
        file.flush()
        os.fsync(file.fileno())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of 600 MiB, in memory."""
    mount = ("mount", "-t", "tmpfs", "-o", "size=600m", "none", str(tmp_path))
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can make a disk")
    yield tmp_path
    subprocess.run(("umount", "--lazy", str(tmp_path)), check=True)


@pytest.mark.root
def test_whoever_leaves_less_than_the_reserve_is_told_with_figures(disk: Path) -> None:
    trial, other = disk / "trial", disk / "other"
    trial.mkdir()
    other.mkdir()
    guard, bystander = DiskGuard(trial, 450 * MEBI), DiskGuard(other, 450 * MEBI)
    write(trial / "a", 250)
    assert guard.complaint() is None  # half of what was free is left: 300 MiB
    write(trial / "b", 100)
    assert guard.complaint() == (
        "its output folder has grown to 0.3 GiB and left 0.2 GiB of the disk free"
    )
    assert bystander.complaint() is None
    write(other / "c", 50)
    assert bystander.complaint() is None


@pytest.mark.root
def test_a_disk_that_is_full_from_the_start_is_limit_enough(disk: Path) -> None:
    write(disk / "earlier", 400)
    guard = DiskGuard(disk)
    write(disk / "now", 190)
    assert guard.complaint() is None


def test_a_folder_that_is_not_there_has_no_guard(tmp_path: Path) -> None:
    assert DiskGuard(tmp_path / "none").complaint() is None

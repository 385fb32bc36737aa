"""Carry wheels to a machine without a network: downloaded here, unpacked there."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# What a run of perfrun imports; a framework built for CUDA is some gigabytes and must be named.
PACKAGES = ("psutil", "py-cpuinfo", "nvidia-ml-py", "absl-py", "numpy", "scipy", "rich")
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")
_UNPACKED = "carried"


class CarryError(Exception):
    """Wheels cannot be had, are too large, or cannot be unpacked."""


def carry(folder: str, packages: Sequence[str] | None, python_version: str, most_mib: float) -> str:
    """Download wheels of packages and all that they need into a folder; return what came."""
    place = Path(folder).absolute()
    place.mkdir(parents=True, exist_ok=True)
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    _pip(
        "pip download",
        *("download", "--quiet", "--only-binary=:all:"),
        *("--implementation", "cp", "--python-version", python_version, *platforms),
        *("--dest", str(place), *(packages or PACKAGES)),
    )
    wheels = sorted(place.glob("*.whl"))
    mib = sum(wheel.stat().st_size for wheel in wheels) / 2**20
    if mib > most_mib:
        raise CarryError(
            f"{folder} has {mib:.1f} MiB, more than {most_mib:g}; carry less, or say --most_mib"
        )
    return f"{len(wheels)} wheels for Python {python_version}, {mib:.1f} MiB, in {folder}"


def unpack(folder: Path, output: Path) -> Path | None:
    """Install the wheels beside the report, for PYTHONPATH; None where the folder has none.

    The interpreters of the machine stay as they are, and what they have is not carried over it.
    """
    wheels = [wheel for wheel in sorted(folder.glob("*.whl")) if not _is_installed(wheel)]
    if not wheels:
        return None
    place = output / _UNPACKED
    _pip(
        f"{folder}: the wheels cannot be installed",
        *("install", "--quiet", "--no-index", "--no-deps"),
        *("--no-compile", "--no-cache-dir", "--upgrade", "--target", str(place)),
        *map(str, wheels),
    )
    return place


def _pip(failure: str, *words: str) -> None:
    """Run pip; CarryError says `failure` and pip's last error."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["?"]
        errors = [line for line in said if line.startswith("ERROR")]
        raise CarryError(f"{failure}: {(errors or said)[-1]}")


def _is_installed(wheel: Path) -> bool:
    try:
        importlib.metadata.version(wheel.name.partition("-")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True

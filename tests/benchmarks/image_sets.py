"""Small data sets of generated images, made by the program that users have."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKE = ("-m", "benchmarks.datasets.make")


def make(python: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the maker in an interpreter that has Pillow and lmdb."""
    return subprocess.run(
        [python, *MAKE, str(folder), *arguments], capture_output=True, text=True, cwd=ROOT
    )


def run_code(python: str, code: str, *arguments: str) -> str:
    """Run a program that imports benchmarks/, and return what it prints."""
    done = subprocess.run(
        [python, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        # For networks this small, a second thread on a busy machine costs 50 times what it saves.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

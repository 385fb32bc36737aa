"""An edit within a second, which Python's own check of compiled files does not see."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IMPORTS = """
import sys
sys.path[:0] = sys.argv[1:]
from perfrun.worker.bytecode import tell_edits_apart
tell_edits_apart()
import edited
print(edited.VALUE)
"""


def imported(folder: Path) -> str:
    """Import `edited` in a new process and return its VALUE."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, ROOT, folder],
        capture_output=True,
        text=True,
        check=True,
        env=variables,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("age", [0.1, 1.5], ids=["just now", "a second ago"])
def test_an_edit_of_the_same_size_and_second_is_what_runs(tmp_path: Path, age: float) -> None:
    source = tmp_path / "edited.py"
    changed = time.time() - age
    for value in "123":
        source.write_text(f"VALUE = {value}\n")
        os.utime(source, (changed, changed))
        assert imported(tmp_path) == value


def test_a_source_of_a_second_ago_is_compiled_once(tmp_path: Path) -> None:
    source = tmp_path / "edited.py"
    source.write_text("VALUE = 1\n")
    changed = time.time() - 1
    os.utime(source, (changed, changed))
    assert imported(tmp_path) == "1"
    (compiled,) = tmp_path.rglob("*.pyc")
    before = compiled.stat()
    assert compiled.read_bytes()[4:8] == b"\3\0\0\0"  # PEP 552: known by the source's hash
    assert imported(tmp_path) == "1"
    assert compiled.stat().st_mtime_ns == before.st_mtime_ns


def test_a_source_that_stays_as_it_is_is_compiled_once(tmp_path: Path) -> None:
    source = tmp_path / "edited.py"
    source.write_text("VALUE = 1\n")
    os.utime(source, (time.time() - 60,) * 2)
    assert imported(tmp_path) == "1"
    (compiled,) = tmp_path.rglob("*.pyc")
    before = compiled.stat()
    assert imported(tmp_path) == "1"
    assert compiled.stat().st_mtime_ns == before.st_mtime_ns

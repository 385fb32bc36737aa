"""An edit within a second, which Python's own check of compiled files does not see."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
IMPORTS = """
import sys
sys.path[:0] = sys.argv[1:]
from perfrun.worker.bytecode import keep_none_of_new_files
keep_none_of_new_files()
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


def test_an_edit_of_the_same_size_in_the_same_second_is_what_runs(tmp_path: Path) -> None:
    source = tmp_path / "edited.py"
    for value in "12":
        source.write_text(f"VALUE = {value}\n")
        second = time.time() // 1
        os.utime(source, (second, second))
        assert imported(tmp_path) == value
        assert not list(tmp_path.rglob("*.pyc"))


def test_a_source_that_stays_as_it_is_is_compiled_once(tmp_path: Path) -> None:
    source = tmp_path / "edited.py"
    source.write_text("VALUE = 1\n")
    os.utime(source, (time.time() - 60,) * 2)
    assert imported(tmp_path) == "1"
    (compiled,) = tmp_path.rglob("*.pyc")
    before = compiled.stat()
    assert imported(tmp_path) == "1"
    assert compiled.stat().st_mtime_ns == before.st_mtime_ns

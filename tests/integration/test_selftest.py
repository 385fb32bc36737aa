"""`perfrun selftest` as a user runs it: real workloads, real processes, this busy machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import schemas
from selftest_rows import off, wrong

from perfrun.selftest.reference import checks, read_peak

pytestmark = pytest.mark.slow


def selftest(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "perfrun", "selftest", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=540,
    )


def test_what_perfrun_measures_here_is_true(tmp_path: Path) -> None:
    done = selftest("--format=json", cwd=tmp_path)
    found = json.loads(done.stdout)
    schemas.check("selftest", found)
    assert wrong(found) == {}, done.stderr
    assert (found["passed"], done.returncode) == ((False, 1) if off(found) else (True, 0))
    assert [row["what"] for row in found["rows"]] == [check.what for check in checks(read_peak())]
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_workspace_that_was_named_keeps_the_summaries(tmp_path: Path) -> None:
    folder = tmp_path / "a 'workspace'"
    done = selftest(f"--workspace={folder}", cwd=tmp_path)
    assert done.returncode == (1 if " off: " in done.stdout else 0), done.stdout + done.stderr
    assert done.stdout.splitlines()[0].split()[:3] == ["what", "reference", "measured"]
    assert len(list(folder.glob("output/*/perfzero_summary.json"))) >= 15


def test_an_interpreter_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = selftest("--python=/no/such/python", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "/no/such/python" in done.stderr


def test_limits_that_are_too_narrow_make_rows_off(tmp_path: Path) -> None:
    """No interpreter has begun in a thousandth of a second, three times over.

    So short, because a harness that stands still for a second lets a trial of a second pass.
    """
    done = selftest("--timeout=0.001", "--format=json", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    schemas.check("selftest", found)
    assert found["passed"] is False
    reasons = {row["what"]: str(row["reason"]) for row in found["rows"]}
    assert "timed_out" in reasons["sleep of known length"]

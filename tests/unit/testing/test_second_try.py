"""The second try that tests of real processes get in CI (tests/conftest.py), seen from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
OF_REAL_PROCESSES = """
import itertools
import pytest

runs = itertools.count(1)

@pytest.fixture(scope="module")
def run():
    return next(runs)

def test_that_looks_at_a_quiet_run(run):
    assert run == 1

def test_that_a_disturbed_run_spoils(run):
    assert run == 2

def test_that_looks_at_what_ran_again(run):
    assert run == 2

def test_that_finds_a_fault(run):
    assert run == "right"
"""


def closing_line(tmp_path: Path, folder: str, **variables: str) -> tuple[int, str]:
    (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "tests" / folder / "test_it.py").write_text(OF_REAL_PROCESSES)
    environment = {k: v for k, v in os.environ.items() if k != "CI" and "PYTEST" not in k}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=."],
        cwd=tmp_path,
        env={**environment, **variables, "PYTHONPATH": os.fspath(TESTS)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_in_ci_a_disturbed_run_is_made_again_and_a_fault_fails_twice(tmp_path: Path) -> None:
    code, line = closing_line(tmp_path, "integration", CI="true")
    assert code == 1
    assert "1 failed, 3 passed, 2 rerun" in line


@pytest.mark.slow
def test_unit_tests_and_tests_outside_ci_have_one_try(tmp_path: Path) -> None:
    assert "3 failed, 1 passed in" in closing_line(tmp_path / "a", "integration")[1]
    assert "3 failed, 1 passed in" in closing_line(tmp_path / "b", "unit", CI="true")[1]

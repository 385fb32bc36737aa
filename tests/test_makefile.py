"""The targets of the Makefile wait for one another where they share an environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES")  # these tests may be run by it


@pytest.mark.parametrize(
    ("goals", "order"),
    [
        (["site", "lint"], [".[test,lint]", ".[site]", "zensical build"]),
        (["audit", "site"], [".[test,lint]", ".[site]", "scripts/ci/audit.py"]),
        (["test", "site"], [".[test,lint]", ".[site]", "-m pytest"]),
    ],
)
def test_no_two_pips_are_at_work_in_one_environment(goals: list[str], order: list[str]) -> None:
    # As one job, make shows what each target waits for: the goals alone ask for another order.
    words = ["make", "--dry-run", "--always-make", "--jobs=1", *goals]
    env = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    places = [done.stdout.index(words) for words in order]
    assert places == sorted(places)

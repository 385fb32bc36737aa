"""`perfrun selftest` in a container: what it measures there is as true as outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from actors import Caller
from selftest_rows import off, wrong

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.torch
def test_the_selftest_is_green_in_the_image(
    torch_image: str, user: Caller, workspace: Path
) -> None:
    command = ("docker", "run", "--rm", "--init", torch_image, "selftest", "--format=json")
    done = user.run(*command, cwd=workspace)
    found = json.loads(done.stdout)
    assert wrong(found) == {}, done.stderr
    assert done.returncode == (1 if off(found) else 0)
    verdicts = {row["what"]: row["verdict"] for row in found["rows"]}
    # numpy comes with torch, so that this one is not skipped.
    assert verdicts["matrix product below the peak"] == "ok"
    assert verdicts["peak memory of a child"] == "ok"


@pytest.mark.torch
def test_the_selftest_is_green_under_compose(
    torch_image: str, user: Caller, checkout: Path
) -> None:
    done = user.compose(checkout, "run", "--rm", "-T", "perfrun", "selftest", "--format=json")
    assert torch_image
    found = json.loads(done.stdout)
    assert wrong(found) == {}, done.stderr
    assert done.returncode == (1 if off(found) else 0)
    truths = {row["what"]: row["truth"] for row in found["rows"]}
    assert truths["sleep of known length"] == 0.1


@pytest.mark.torch
def test_the_selftest_is_green_with_a_container_for_each_workload(
    torch_image: str, user: Caller, checkout: Path, workspace: Path
) -> None:
    words = ("selftest", f"--image={torch_image}", f"--workspace={workspace}", "--format=json")
    done = user.perfrun(checkout, *words, cwd=workspace)
    found = json.loads(done.stdout)
    assert wrong(found) == {}, done.stderr
    assert done.returncode == (1 if off(found) else 0)
    assert len(list(workspace.glob("output/*/perfzero_summary.json"))) >= 15

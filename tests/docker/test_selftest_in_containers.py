"""`perfrun selftest` in a container: what it measures there is as true as outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from actors import Caller

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.torch
def test_the_selftest_is_green_in_the_image(
    torch_image: str, user: Caller, workspace: Path
) -> None:
    command = ("docker", "run", "--rm", "--init", torch_image, "selftest", "--format=json")
    done = user.run(*command, cwd=workspace)
    found = json.loads(done.stdout)
    off = {row["what"]: row["reason"] for row in found["rows"] if row["verdict"] == "off"}
    assert (off, done.returncode) == ({}, 0), done.stderr
    verdicts = {row["what"]: row["verdict"] for row in found["rows"]}
    # numpy comes with torch, so that this one is not skipped.
    assert verdicts["matrix product below the peak"] == "ok"
    assert verdicts["peak memory of a child"] == "ok"


@pytest.mark.torch
def test_the_selftest_is_green_under_compose(
    torch_image: str, user: Caller, checkout: Path
) -> None:
    done = user.compose(checkout, "run", "--rm", "-T", "perfrun", "selftest")
    assert torch_image
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 ms" in done.stdout


@pytest.mark.torch
def test_the_selftest_is_green_with_a_container_for_each_workload(
    torch_image: str, user: Caller, checkout: Path, workspace: Path
) -> None:
    words = ("selftest", f"--image={torch_image}", f"--workspace={workspace}", "--format=json")
    done = user.perfrun(checkout, *words, cwd=workspace)
    found = json.loads(done.stdout)
    off = {row["what"]: row["reason"] for row in found["rows"] if row["verdict"] == "off"}
    assert (off, done.returncode) == ({}, 0), done.stderr
    assert len(list(workspace.glob("output/*/perfzero_summary.json"))) >= 15

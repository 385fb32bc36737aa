"""`perfrun doctor` where there is an engine, and in a container."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from worlds import ROOT, World, strict

pytestmark = [pytest.mark.docker]


def checks(text: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in strict(text)["checks"]}


def test_the_engine_and_compose_are_found_with_their_versions(engine: str, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    # Docker finds no plugins of the system when the home directory is not a folder.
    done = World(tmp_path).run("doctor", "--for=compose", "--format=json", HOME=str(tmp_path))
    found = checks(done.stdout)
    assert done.code == 0
    assert found["engine"]["value"].startswith(f"Docker {engine}, ")
    assert found["compose"]["status"] == "found"


def test_in_a_container_it_says_so_and_what_it_cannot_tell(base_image: str) -> None:
    """Nothing but the standard library is needed up to the table, so any Python will do."""
    words = ["-v", f"{ROOT}:{ROOT}:ro", "-e", f"PYTHONPATH={ROOT}", "-w", "/tmp", base_image]
    command = ["python3", "-m", "perfrun", "doctor", "--format=json"]
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", *words, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = checks(json.dumps(json.loads(done.stdout)))
    assert found["in_container"]["value"] == "in Docker"
    assert found["engine"]["status"] == "missing"


def test_the_image_of_the_trials_is_looked_for(
    engine: str, base_image: str, tmp_path: Path
) -> None:
    for name, code in ((base_image, 0), ("perfrun-test/no-such-image", 1)):
        done = World(tmp_path).run("doctor", f"--image={name}", "--format=json", HOME=str(tmp_path))
        assert done.code == code, done.stderr
        found = checks(done.stdout)["image"]
        assert (found["status"], found["needed"]) == ("missing" if code else "found", True)

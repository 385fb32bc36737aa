"""A capsule made on this host is replayed in a container that has no network."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from actors import give, make_repository
from engines import Site
from launched import launched_world
from wheels import make_wheel
from worlds import World, strict

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

SOURCE = """
from perfrun import Benchmark


class Cases(Benchmark):
    def spin(self):
        import demo_lib
        self.report_benchmark(wall_time=demo_lib.COST)
"""
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
# The container sees another memory than the host.
ALLOWED = "--allow_different=hardware,driver,allocator"


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    yield from launched_world(place, site)


def test_a_capsule_is_replayed_without_network(
    world: World, site: Site, torch_image: str, place: Path
) -> None:
    asked = [site.user.python(), "-c", VERSION]
    here = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    there = site.user.docker(
        "run", "--rm", "--entrypoint=/opt/perfrun/bin/python", torch_image, "-c", VERSION
    )
    # A capsule is for one version: this test needs a host that has the image's.
    assert here == there, f"the host has Python {here}, the image {there}"
    folder = place / uuid.uuid4().hex  # venv refuses a path with a colon, as the world's has
    environment, capsule = folder / "environment", folder / "capsule.tar"
    wheel = make_wheel(folder / "made", "demo-lib", "1", code={"demo_lib.py": "COST = 0.5\n"})
    subprocess.run([site.user.python(), "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index"]
    subprocess.run([*pip, "--quiet", str(wheel)], check=True)
    package = folder / "code" / "pkg"
    package.mkdir(parents=True)
    (package / "cases.py").write_text(SOURCE, encoding="utf-8")
    commit = make_repository(folder / "code", site.user)
    give(folder, site.user)
    perfrun = [*world.prefix, world.python, world.entry]
    own = f"--workspace={world.workspace}"
    done = world.run_words(
        [
            *(*perfrun, own, f"--python={python}", "--python_path=code", "--format=json"),
            f"--git_repos={(folder / 'code').as_uri()};;{commit}",
            "--benchmark_methods=pkg.cases.Cases.spin",
        ]
    )
    assert done.statuses == ["passed"], done.stderr
    words = ["pack", "last", own, "--wheels=installed", f"--output={capsule}"]
    packed = world.run_words([*perfrun, *words])
    assert packed.code == 0, packed.stderr
    answer = strict(
        site.user.docker(
            *("run", "--rm", "--network=none", f"--volume={folder}:/given:ro"),
            *(torch_image, "replay", "/given/capsule.tar", "--trust=all", "--workspace=/tmp/w"),
            *("--trials=3", "--format=json", ALLOWED),
        )
    )
    assert answer["status"] == "reproduced"
    assert answer["old"] == answer["low"] == answer["high"] == 0.5
    kinds = {one["kind"] for one in answer["unmatched"]}
    assert not kinds & {"distribution", "git", "source", "variable"}  # what the capsule brings

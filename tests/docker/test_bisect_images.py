"""`perfrun bisect --images`: which of a row of images made a method slower."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import Site
from launched import launched_world
from worlds import World, strict

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]

# What the images differ in is a variable of theirs. No time is measured: the machine may be busy.
SOURCE = """
class Cases(Benchmark):
    def spin(self):
        cpu_s = int(os.environ["LOOPS"]) * 25e-9 * (1 + time.time_ns() % 7 * 0.002)
        self.report_benchmark(metrics=[{"name": "cpu_s", "value": cpu_s}])
"""


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    yield from launched_world(place, site, SOURCE)


@pytest.fixture
def images(site: Site, base_image: str) -> Iterator[list[str]]:
    """Four nightly builds: two fast ones, one that does not start, a slow one."""
    repository = f"perfrun-test-{uuid.uuid4().hex[:8]}"
    changes = ("LOOPS=20000", "LOOPS=20000", "PERFRUN_PYTHON=/nowhere/python", "LOOPS=60000")
    made = []
    maker = site.user.docker("create", base_image, "true")
    for number, change in enumerate(changes):
        made.append(f"{repository}:{number}")
        site.user.docker("commit", "--change", f"ENV {change}", maker, made[-1])
    site.user.docker("rm", maker)
    yield made
    site.user.docker("image", "rm", *made)


def test_the_image_that_is_slower_is_named_with_what_could_not_be_tried(
    world: World, images: list[str]
) -> None:
    words = ["bisect", f"--images={','.join(images)}", "--metric=cpu_s", "--format=json"]
    done = world.run(*words, methods="pkg.cases.Cases.spin")
    answer = strict(done.stdout)
    assert answer["status"] == "range", done.stderr  # the one between does not start
    assert done.code == 1
    assert answer["previous"]["name"] == images[1]
    assert [one["name"] for one in answer["candidates"]] == images[2:]
    assert [one["name"] for one in answer["skipped"]] == [images[2]]
    assert "no python3 or python in it" in answer["skipped"][0]["reason"]
    assert answer["low"] > 1.5
    assert {one["kind"] for one in answer["environment_differences"]} <= {"container"}
    assert not world.left_running()

"""`max_batch_size` in a container with a memory limit: the kernel ends a probe, not the search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import Site
from launched import launched_world
from worlds import Finished, World

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

PER_EXAMPLE = 16_000_000
LIMIT = 256 * 2**20
SOURCE = f"""
from benchmarks._support.largest_batch.search import KNOBS, BatchSearch

class Holds(BatchSearch):
    takes = ("batch_size", *KNOBS)
    batch_trial = "pkg.cases"

class HoldsWhateverItTakes(Holds):
    def __init__(self, **given):
        super().__init__(**given, max_batch_memory={100 * LIMIT})

def trial(arguments, batch_size, steps):
    block = bytearray(b"x") * ({PER_EXAMPLE} * batch_size)
    return {{"step_s": [0.25] * steps, "device_peak_bytes": None}}
"""


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    yield from launched_world(place, site, SOURCE)


def searches(done: Finished) -> list[tuple[int, list[dict[str, Any]], dict[str, Any]]]:
    """Of each trial the largest batch, the probes that did not fit, and the summary."""
    assert set(done.statuses) == {"passed"}, done.stderr
    found = []
    for result, summary in zip(done.results, done.summaries(), strict=True):
        metrics = {m["name"]: m["value"] for m in summary["benchmark_result"]["metrics"]}
        table = Path(result["summary"]).parent / "max_batch" / "probes.jsonl"
        probes = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
        refused = [probe for probe in probes if probe["status"] != "fits"]
        found.append((int(metrics["max_batch_size"]), refused, summary))
    return found


def test_a_search_ends_with_an_answer_whoever_keeps_the_limit(
    world: World, base_image: str
) -> None:
    words = ("--format=json", "--quiet", f"--image={base_image}", f"--memory={LIMIT}")
    methods = ",".join(f"pkg.cases.{n}.max_batch_size" for n in ("HoldsWhateverItTakes", "Holds"))
    by_kernel, by_itself = searches(world.run(*words, methods=methods))

    largest, killed, summary = by_kernel
    # The interpreters of the method and of the probe take the rest.
    assert LIMIT - 5 * PER_EXAMPLE < largest * PER_EXAMPLE < LIMIT
    assert {probe["reason"] for probe in killed} == {
        "killed by the kernel, which was out of memory"
    }
    assert min(probe["batch_size"] for probe in killed) == largest + 1
    assert f"the kernel killed {len(killed)} process(es)" in "\n".join(summary["perfrun"]["notes"])
    peak = summary["perfrun"]["memory"]["cgroup"]["peak"]["bytes"]
    assert largest * PER_EXAMPLE < peak <= LIMIT

    largest, _, summary = by_itself
    assert 0.5 * LIMIT < largest * PER_EXAMPLE < 0.8 * LIMIT
    (report,) = summary["perfrun"]["reports"]
    extras = {extra["name"]: extra["value"] for extra in report["extras"]}
    allowed = int(extras["max_batch_memory"])
    assert 0.6 * LIMIT < allowed < 0.8 * LIMIT

    given = f"--perfzero_constructor_args={json.dumps({'max_batch_memory': allowed})}"
    outside = world.run("--format=json", "--quiet", given, methods="pkg.cases.Holds.max_batch_size")
    ((there, _, _),) = searches(outside)
    assert abs(there - largest) <= 1  # the two interpreters need not be of one size

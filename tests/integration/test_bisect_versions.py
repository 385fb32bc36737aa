"""`perfrun bisect --wheels`: real wheels, installed by pip without an index, and real processes."""

from __future__ import annotations

from pathlib import Path

import schemas

from tests.wheels import make_wheel
from tests.worlds import World, strict

SOURCE = """
import random
import kernels
import padding


class Cases(Benchmark):
    def spin(self):
        cpu_s = kernels.B * (1 + random.random() * 0.002)
        self.report_benchmark(metrics=[{"name": "cpu_s", "value": cpu_s}])
"""


def test_the_version_that_is_slower_is_named_with_what_cannot_be_installed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(SOURCE)
    wheels = tmp_path / "wheels of a night"
    for version, cost, requires in (
        ("2.10.0.dev20261101", 1.0, ("padding",)),
        ("2.10.0.dev20261102", 1.5, ("padding", "not-there")),
        ("2.10.0", 1.5, ("padding>=2",)),
    ):
        make_wheel(wheels, "kernels", version, requires, code={"kernels.py": f"B = {cost}\n"})
    make_wheel(wheels, "padding", "2.0", code={"padding.py": ""})
    flags = (f"--wheels={wheels}", "--metric=cpu_s", "--seed=1", "--format=json")
    done = world.run("bisect", *flags, methods="pkg.cases.Cases.spin")
    assert done.stdout, done.stderr
    answer = strict(done.stdout)
    schemas.check("bisect", answer)
    assert answer["status"] == "range", done.stderr  # the one between cannot be installed
    assert answer["previous"]["name"] == "kernels==2.10.0.dev20261101"
    assert [one["name"] for one in answer["candidates"]] == [
        "kernels==2.10.0.dev20261102",
        "kernels==2.10.0",
    ]
    (skipped,) = answer["skipped"]
    assert skipped["name"] == "kernels==2.10.0.dev20261102"
    assert "not-there" in skipped["reason"]
    assert 0 < skipped["spent_s"] < answer["spent_s"]  # also where no trial was lost
    assert skipped["trials"] == answer["trials_run"] - 2 * answer["pairs_run"]
    assert answer["estimate"]["trials_clear"] < answer["estimate"]["trials_most"] == 1200
    assert "expected: 35 trials where the change is clear" in done.stderr
    (differs,) = answer["environment_differences"]
    assert differs["name"] == "kernels"
    assert (differs["base"], differs["new"]) == ("2.10.0.dev20261101", "2.10.0")
    folder = Path(answer["folder"])
    assert not (folder / "environments").exists()
    path = min(folder.glob("b/output/*/perfzero_summary.json"))
    there = strict(path.read_text(encoding="utf-8"))["perfrun"]["environment"]["distributions"]
    assert there["kernels"] == "2.10.0"
    assert "numpy" in there  # what the interpreter of perfrun has, unless told otherwise

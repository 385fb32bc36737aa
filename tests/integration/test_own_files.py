"""`perfrun run FILE.py` runs a user's own classes as they lie there, whatever the folder's name."""

from __future__ import annotations

import sys
from pathlib import Path

from worlds import ENTRY, Finished, World, strict

SOURCE = '''
from perfrun import Benchmark
from .helper import VALUE

class Sorting(Benchmark):
    def numbers(self):
        """Say a number."""
        self.report_benchmark(wall_time=VALUE, extras={"file": __file__})
    def other(self):
        self.report_benchmark(wall_time=2.0)
'''


def run(world: World, *words: str) -> Finished:
    return world.run_words([sys.executable, ENTRY, *words])


def test_own_files_run_and_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "my" $(place), -x'
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "helper.py").write_text("VALUE = 1.5\n")
    (folder / "pkg" / "sorting.py").write_text(SOURCE)
    (folder / "test.py").write_text(SOURCE.replace("from .helper import VALUE", "VALUE = 2.5"))
    world = World(folder)
    done = run(
        world, "run", "pkg/", "test.py::Sorting.numbers", "--benchmark_num_trials=2",
        "--format=json", "--quiet",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    names = ["pkg.sorting.Sorting.numbers", "pkg.sorting.Sorting.other", "test.Sorting.numbers"]
    assert [result["name"] for result in done.results] == names * 2
    first, _, third, *_ = (one["benchmark_result"] for one in done.summaries())
    assert (first["wall_time"], third["wall_time"]) == (1.5, 2.5)
    assert first["extras"][0]["value"] == str(folder / "pkg" / "sorting.py")
    listed = strict(run(world, "list", "./pkg", "test.py::Sorting", "--format=json").stdout)
    assert [one["name"] for one in listed["methods"]] == [*names, "test.Sorting.other"]
    for words, said in (
        (["run", "test.py::Nobody"], "perfrun: test.py::Nobody: test has no class Nobody; it has"),
        (["run", "pkg/helper.py"], "perfrun: pkg/helper.py: has no benchmark; write a class"),
        (["test.py"], "perfrun: 'test.py' is no command; to run it: `perfrun run test.py`"),
    ):
        wrong = run(world, *words)
        assert (wrong.code, wrong.stdout) == (2, "")
        [line] = wrong.stderr.splitlines()
        assert line.startswith(said)

"""Submissions on this machine and on hosts: killed on the way, nothing lost and nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.sshd import hosts
from tests.worlds import HOLD, Finished, World, finish, strict, wait_until

CASES = (
    HOLD
    + """
from absl import flags
from perfrun import Benchmark

FOLDER = {folder!r}
flags.DEFINE_integer("batch_size", 1, "")

class Cases(Benchmark):
    def fine(self):
        if {held}:
            hold_at({held}, FOLDER)
        if os.path.basename(os.environ["HOME"]) == {held_on!r}:
            hold_at(1, FOLDER)
        self.report_benchmark(wall_time=8.0 / flags.FLAGS.batch_size)

    def wrong(self):
        raise ValueError("on purpose")
"""
)


class Place:
    """A world with a suite, and the files by which its benchmarks are held."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.suite = folder / "suite.toml"
        self.workspace = folder / "ws"
        self.held = folder / "notes" / "held"

    def write(self, *methods: str, held: int = 0, held_on: str = "") -> None:
        """Write a suite of these methods. The trial `held`, counted from 1, waits.

        Or the first one on the host `held_on`.
        """
        self.held.parent.mkdir(parents=True)
        code = self.world.folder / "code"
        code.mkdir()
        source = CASES.format(folder=str(self.held.parent), held=held, held_on=held_on)
        (code / "cases.py").write_text(source)
        tables = "".join(f'[[methods]]\nname = "cases.Cases.{name}"\n' for name in methods)
        self.suite.write_text(
            f'name = "models"\nworkspace = "ws"\npython_path = ["./code"]\n{tables}'
        )

    def words(self, command: str, *words: str) -> list[str]:
        return [self.world.python, self.world.entry, command, *words]

    def run(self, command: str, *words: str) -> Finished:
        return self.world.run_words(self.words(command, *words))

    def fleet(self, *words: str) -> dict[str, Any]:
        """What `perfrun fleet` says."""
        done = self.run("fleet", f"--workspace={self.workspace}", "--format=json", *words)
        said: dict[str, Any] = strict(done.stdout)
        return said

    def states(self) -> dict[int, str]:
        return {one["index"]: one["state"] for one in self.fleet()["shards"]}

    def results(self) -> Counter[str]:
        """The folders of results, by what identifies a result."""
        found = Counter[str]()
        for path in (self.workspace / "output").glob("*/perfzero_summary.json"):
            document = json.loads(path.read_text())
            flags = document["perfrun"]["benchmark_flags"]
            found[f"{document['benchmark_result']['name'].rpartition('.')[2]} {flags}"] += 1
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "a b")


def test_a_submission_that_was_killed_goes_on_and_no_result_is_lost_or_there_twice(
    place: Place,
) -> None:
    place.world.folder.mkdir()
    place.write("fine", "wrong", held=2)
    sweep = ["--sweep", "batch_size=1,8"]
    process = place.world.start_words(place.words("submit", str(place.suite), *sweep))
    wait_until(place.held.exists)
    process.kill()
    finish(process)
    # The shard, whose other end has died, ends by itself: it was stopped, and has not failed.
    wait_until(lambda: "running" not in place.states().values())
    before = Counter(place.states().values())
    assert (before["done"], before["preempted"]) == (1, 1), before
    ended = before["done"] + before["benchmark failed"]
    assert sum(place.results().values()) == ended  # they were collected by `perfrun fleet`

    later = place.run("submit", "--resume", str(place.suite))
    assert later.code == 1, later.stderr
    assert f"{4 - ended} of 4 shards are submitted again" in later.stderr
    assert place.states() == {
        0: "done",
        1: "benchmark failed",
        2: "done",
        3: "benchmark failed",
    }
    everything = Counter(
        {
            f"{name} {flags}": 1
            for name in ("fine", "wrong")
            for flags in (["--batch_size=1"], ["--batch_size=8"])
        }
    )
    assert place.results() == everything
    (folder,) = (place.workspace / "submissions").glob("models-*")
    assert len(list(folder.glob("shards/*/attempt-*"))) == 5  # one twice

    table = place.fleet("--table", "--metric=wall_time")
    assert [
        (row["setting"], one["values"], one["ratio"])
        for row in table["rows"]
        for one in row["metrics"]
    ] == [({"batch_size": "1"}, [8.0], None), ({"batch_size": "8"}, [1.0], 0.125)]


def test_the_shards_of_a_host_that_dies_run_on_another_one(place: Place, tmp_path: Path) -> None:
    place.world.folder.mkdir()
    place.write("fine", held_on="right")
    with hosts(tmp_path / "hosts", "left", "right") as there:
        sweep = ["--sweep", "batch_size=1,2,4"]
        words = place.words("submit", str(place.suite), *sweep, *there.words, "--format=json")
        process = place.world.start_words(words)
        wait_until(place.held.exists)
        there.hosts["right"].kill()
        done = finish(process)
        assert done.code == 0, done.stderr
        said = strict(done.stdout)
        assert said["states"] == {"done": 3}
        assert "right does not answer as it should; its shards go to other machines" in done.stderr
        assert [one["attempts"] for one in said["shards"] if one["attempts"] > 1] == [2]
        assert {one["machine"] for one in said["shards"]} == {"left"}
        assert list(place.results().values()) == [1, 1, 1]
        assert not list((there.hosts["left"].home / ".cache/perfrun/fleet").glob("models*"))


def test_every_host_runs_everything_and_what_a_dead_one_had_stays_missing(
    place: Place, tmp_path: Path
) -> None:
    place.world.folder.mkdir()
    place.write("fine")
    refused = place.run("submit", str(place.suite), "--per_node=all")
    assert refused.code == 2
    assert "--per_node: --engine=local cannot choose a node" in refused.stderr
    with hosts(tmp_path / "hosts", "left", "right") as there:
        unknown = place.run("submit", str(place.suite), *there.words, "--per_node=middle")
        assert "--per_node: middle is not one of left, right" in unknown.stderr
        there.hosts["right"].kill()
        words = [*there.words, "--per_node=all", "--rounds=2", "--format=json"]
        words += ["--sweep", "batch_size=1"]
        done = place.run("submit", str(place.suite), *words)
        assert done.code == 1, done.stderr
        said = strict(done.stdout)
        assert said["states"].get("done") == 2, (said, done.stderr)
        ran = [one["machine"] for one in said["shards"] if one["state"] == "done"]
        assert ran == ["left", "left"]
        assert len(said["shards"]) == 4

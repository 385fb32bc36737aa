"""Results come into the workspace once each, whatever happened before."""

from __future__ import annotations

from pathlib import Path

from perfrun.shards.collect import collect, collected_summary
from perfrun.shards.places import ShardPlace
from perfrun.shards.plan import Plan
from tests.submissions import SUMMARY, attempt, ended, finished, plan


def brought(made: Plan) -> dict[str, str]:
    output = made.workspace / "output"
    return {path.name: (path / SUMMARY).read_text() for path in sorted(output.iterdir())}


def test_a_collection_is_repeated_and_nothing_is_there_twice(tmp_path: Path) -> None:
    made = plan(tmp_path)
    finished(made, 0, a="A", b="B")
    finished(made, 1, c="C")
    (tmp_path / "output" / "a").mkdir(parents=True)
    (tmp_path / "output" / "a" / SUMMARY).write_text("A")  # it came by hand, too
    first = collect(made, [0, 1], print)
    assert (len(first.new), first.known, first.problems) == (2, 1, ())
    assert brought(made) == {"a": "A", "b": "B", "c": "C"}
    again = collect(made, [0, 1], print)
    assert (again.new, again.known) == ((), 0)
    # What somebody has pruned since does not come back.
    (tmp_path / "output" / "c" / SUMMARY).unlink()
    assert collect(made, [0, 1], print).new == ()


def test_a_collection_that_was_killed_goes_on(tmp_path: Path) -> None:
    made = plan(tmp_path)
    begun = finished(made, 0, a="A", b="B")
    (tmp_path / "output").mkdir()
    (begun.folder / "output" / "a").rename(tmp_path / "output" / "a")
    found = collect(made, [0], print)
    assert ([path.parent.name for path in found.new], found.known) == (["b"], 1)


def test_two_machines_may_give_two_results_one_name(tmp_path: Path) -> None:
    made = plan(tmp_path)
    attempts = [finished(made, 0, same="A"), finished(made, 1, same="B")]
    assert len(collect(made, [0, 1], print).new) == 2
    assert sorted(brought(made).values()) == ["A", "B"]
    for one, text in zip(attempts, "AB", strict=True):
        assert one.ended is not None
        path = collected_summary(made, one, *one.ended.trials[0])
        assert path is not None
        assert path.read_text() == text


def test_what_is_not_what_was_written_is_not_collected(tmp_path: Path) -> None:
    made = plan(tmp_path, 4)
    changed = finished(made, 0, a="A")
    (changed.folder / "output" / "a" / SUMMARY).write_text("other")
    linked = attempt(made, 1)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / SUMMARY).write_text("S")
    (linked.folder / "output").mkdir()
    (linked.folder / "output" / "s").symlink_to(tmp_path / "secret")
    ShardPlace(made, 1).end(linked, ended(s="S"))
    gone = finished(made, 2, g="G")
    (gone.folder / "output" / "g").rename(tmp_path / "elsewhere")
    upwards = attempt(made, 3)
    ShardPlace(made, 3).end(upwards, ended(**{"..": "S"}))
    found = collect(made, range(4), print)
    assert (found.new, brought(made)) == ((), {})
    said = [text.partition(": ")[2] for text in found.problems]
    assert said == [
        "its summary is not the one that was written",
        "is no folder",
        "its folder is gone",
        "is no name of a folder",
    ]

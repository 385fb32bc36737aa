"""The files of a shard: who is first counts, a killed attempt has not failed."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from perfrun.fleet.submissions import bring_in
from perfrun.locks import FileLock
from perfrun.options.plan import parse_repos
from perfrun.shards.places import ENDED, LOCK, RESULT, How, ShardPlace
from perfrun.shards.plan import ShardState
from perfrun.shards.status import by_files, merged, statuses
from perfrun.workspace.checkouts import checked_out
from tests.gitrepos import make_repository
from tests.submissions import attempt, ended, finished, plan


def test_of_two_attempts_the_first_result_counts(tmp_path: Path) -> None:
    made = plan(tmp_path)
    place = ShardPlace(made, 0)
    one, two = attempt(made, 0, a="A"), attempt(made, 0, b="B")
    assert (one.number, two.number) == (1, 2)
    assert place.end(two, ended(b="B"))
    assert not place.end(one, ended(a="A"))
    counts = place.counted()
    assert counts is not None
    assert counts.number == 2
    assert by_files(made, made.shards[0]).state is ShardState.DONE


def test_who_looks_at_a_shard_disturbs_neither_who_begins_it_nor_who_looks(
    tmp_path: Path,
) -> None:
    place = ShardPlace(plan(tmp_path), 0)
    place.make()
    with place.held() as free:
        assert free
        assert place.is_held()
        with place.held() as second:
            assert not second
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            place.is_held()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(200):
            with place.held() as free:
                assert free
    finally:
        over.set()
        thread.join()
    with FileLock(place.folder / LOCK) as lock:  # another one that looks, stopped in between
        assert lock.try_share()
        assert not place.is_held()


@pytest.mark.parametrize(
    ("how", "state"),
    [
        (None, ShardState.PREEMPTED),  # killed
        (How.INTERRUPTED, ShardState.PREEMPTED),
        (How.MACHINE, ShardState.MACHINE),
        (How.FAILED, ShardState.FAILED),
        (How.RAN, ShardState.DONE),
    ],
)
def test_a_state_follows_from_how_the_attempt_ended(
    tmp_path: Path, how: How | None, state: ShardState
) -> None:
    made = plan(tmp_path)
    assert by_files(made, made.shards[0]).state is ShardState.UNKNOWN
    begun = attempt(made, 0)
    place = ShardPlace(made, 0)
    with place.held():
        assert by_files(made, made.shards[0]).state is ShardState.RUNNING
    if how is not None:
        place.end(begun, ended(how, "because"))
    found = by_files(made, made.shards[0])
    assert found.state is state
    assert found.reason == ("because" if how else "")
    assert [one.state for one in statuses(made)] == [state, ShardState.UNKNOWN]


def test_a_result_outweighs_the_engine_which_outweighs_an_earlier_end(tmp_path: Path) -> None:
    made = plan(tmp_path)
    unknown = by_files(made, made.shards[0])
    for said in (ShardState.WAITING, ShardState.CANCELLED, ShardState.PREEMPTED):
        assert merged(unknown, said).state is said
    begun = attempt(made, 0)
    ShardPlace(made, 0).end(begun, ended(How.MACHINE))
    failed = by_files(made, made.shards[0])
    assert merged(failed, ShardState.WAITING).state is ShardState.WAITING  # submitted again
    assert merged(failed, ShardState.PREEMPTED).state is ShardState.MACHINE
    assert merged(failed, None) is failed
    finished(made, 0)
    done = by_files(made, made.shards[0])
    assert merged(done, ShardState.RUNNING).state is ShardState.DONE


def test_what_was_killed_between_end_and_result_is_settled_and_what_is_withdrawn_is_not(
    tmp_path: Path,
) -> None:
    made = plan(tmp_path)
    place = ShardPlace(made, 0)
    finished(made, 0, a="A")
    (place.folder / RESULT).unlink()  # as if killed just before
    assert place.counted() is None
    place.settle()
    assert place.counted() is not None
    place.withdraw()
    place.settle()
    assert place.counted() is None
    assert by_files(made, made.shards[0]).state is ShardState.UNKNOWN
    assert finished(made, 0, b="B").number == 2
    counts = place.counted()
    assert counts is not None
    assert counts.number == 2


def test_attempts_on_a_host_fetch_a_commit_once_and_have_checkouts_of_their_own(
    tmp_path: Path,
) -> None:
    (one_commit,) = make_repository(tmp_path / "repository", [{"m.py": "x = 1"}])
    (repo,) = parse_repos(f"file://{tmp_path / 'repository'};HEAD;{one_commit}")
    made = plan(tmp_path / "ws")
    fetched = []
    for index in range(2):
        place = ShardPlace(made, index)
        own = attempt(made, index)
        place.share_cache(own)
        with checked_out([repo], workspace=own.folder, use_cached=False) as (checkout,):
            assert checkout.git_hash == one_commit
            (checkout.path / "edited").write_text("by a benchmark")
            fetched.append(checkout.fetched)
        place.tidy(own)
    assert fetched == [True, False]
    host = made.folder / "hosts" / socket.gethostname()
    assert list((host / "git-cache").glob("*.git"))
    bring_in(made, statuses(made), None)
    assert host.exists()
    for index in range(2):
        finished(made, index, **{f"t{index}": "A"})
    bring_in(made, statuses(made), None)
    assert not host.parent.exists()


def test_checkouts_of_an_attempt_go_and_its_results_stay(tmp_path: Path) -> None:
    made = plan(tmp_path)
    begun = finished(made, 0, a="A")
    (begun.folder / "site-packages" / "bench").mkdir(parents=True)
    (begun.folder / "git-cache").symlink_to(tmp_path)
    ShardPlace(made, 0).tidy(begun)
    left = sorted(path.name for path in begun.folder.iterdir())
    assert left == ["begun.json", "ended.json", "output"]
    assert made.path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        '{"attempt": 99}',
        '{"attempt": -1}',
        '{"attempt": "1"}',
        "\xff",
    ],
)
def test_a_result_that_is_none_is_no_result(tmp_path: Path, text: str) -> None:
    made = plan(tmp_path)
    attempt(made, 0)
    place = ShardPlace(made, 0)
    (place.folder / RESULT).write_text(text, encoding="latin-1")
    assert place.counted() is None


def test_an_end_is_believed_only_as_a_proper_file(tmp_path: Path) -> None:
    made = plan(tmp_path)
    begun = finished(made, 0, a="A")
    good = json.loads((begun.folder / ENDED).read_text())
    for change in ({"how": "well"}, {"ended": 1e99}, {"trials": [["../x", "0" * 64]]}):
        (begun.folder / ENDED).write_text(json.dumps({**good, **change}))
        assert ShardPlace(made, 0).counted() is None, change
    (begun.folder / ENDED).unlink()
    (begun.folder / ENDED).symlink_to("/dev/zero")
    assert ShardPlace(made, 0).counted() is None

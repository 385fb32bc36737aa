"""`perfrun prune`: folders on disk, before and after."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfrun.benchmark import main
from perfrun.changes.search_log import begin_search, search_lock
from perfrun.changes.suspects import SuspectState, write_state
from perfrun.incidents import ledger
from perfrun.incidents.incident import Incident, Ledger
from perfrun.locks import FileLock
from perfrun.nightly import prune as pruning
from perfrun.options.plan import RunPlan
from perfrun.options.store_address import parse_address
from perfrun.run.journal import Journal, going_on
from perfrun.store.index import open_store
from tests.summaries import summary, write
from tests.unit.changes.test_suspects import SUSPECT
from tests.unit.incidents.test_grouping import worse

BEGIN = 1591045200.0  # 2020-06-01, in the evening: long ago, whenever this runs


def nights(count: int, slower_from: int = 10**9) -> list[dict[str, Any]]:
    noise = np.exp(0.005 * np.random.default_rng(1).standard_normal(count))
    return [
        summary(
            wall_time=float(noise[number] * (1.2 if number >= slower_from else 1.0)),
            name=f"t-{number:03}",
            run_id=f"run-{number:03}",
            timestamp=BEGIN + number * 86400,
        )
        for number in range(count)
    ]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "work 'space'"


def prune(
    workspace: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> tuple[int, dict[str, Any]]:
    status = main(["prune", f"--workspace={workspace}", "--format=json", *flags])
    return status, json.loads(capsys.readouterr().out)


def left(workspace: Path) -> list[int]:
    return sorted(int(path.name[2:5]) for path in (workspace / "output").iterdir())


def indexed(workspace: Path) -> int:
    with open_store(parse_address(None, workspace)) as store:
        return store.counts().trials


def test_a_dry_run_lists_and_removes_nothing(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(5))
    status, found = prune(workspace, capsys, "--keep_nights=2", "--dry_run")
    assert (status, found["dry_run"], found["kept"]) == (0, True, 2)
    assert [Path(folder).name[:5] for folder in found["removed"]] == ["t-000", "t-001", "t-002"]
    assert found["bytes"] > 1000
    assert left(workspace) == [0, 1, 2, 3, 4]


def test_old_results_go_from_disk_and_index(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(5))
    status, found = prune(workspace, capsys, "--keep_nights=2")
    assert (status, found["kept"]) == (0, 2)
    assert left(workspace) == [3, 4]
    assert indexed(workspace) == 2
    assert not (workspace / ".pruned").exists()
    assert prune(workspace, capsys, "--keep_nights=2")[1]["removed"] == []


def test_the_neighbours_of_a_change_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(40, slower_from=25))
    _, found = prune(workspace, capsys, "--keep_nights=3")
    assert found["neighbours_of_changes"] == 2
    assert left(workspace) == [24, 25, 37, 38, 39]


def test_the_neighbours_of_a_change_stay_when_their_node_is_in_quarantine(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(40, slower_from=25))
    assert main(["nodes", f"--workspace={workspace}", "--quarantine=here"]) == 0
    capsys.readouterr()
    _, found = prune(workspace, capsys, "--keep_nights=3")
    assert found["neighbours_of_changes"] == 2
    assert left(workspace) == [24, 25, 37, 38, 39]


def test_runs_that_can_be_resumed_stay(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(workspace / "output", *nights(4))
    for number in (0, 1):
        journal = Journal(workspace / "runs" / f"run-{number:03}.jsonl")
        journal.begin(RunPlan(selectors=()), {}, 1)
    journal.end()
    prune(workspace, capsys, "--keep_nights=1")
    assert left(workspace) == [0, 3]


def test_what_is_not_the_workspaces_own_is_not_touched(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(3))
    elsewhere = tmp_path / "elsewhere"
    shutil.move(workspace / "output" / "t-000-0", elsewhere)
    (workspace / "output" / "t-000-0").symlink_to(elsewhere)
    (workspace / "output" / "t-999-running").mkdir()
    prune(workspace, capsys, "--keep_nights=1")
    assert (elsewhere / "perfzero_summary.json").exists()
    assert left(workspace) == [0, 2, 999]


def test_a_disk_that_fails_while_it_is_listed_is_one_line(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(workspace / "output", *nights(3))
    listed = os.scandir

    def failing(path: Any = ".") -> Any:
        if path == workspace:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", failing)
    assert main(["prune", f"--workspace={workspace}", "--older_than=1d"]) == 2
    line = f"perfrun: {workspace}: Input/output error; not all was removed\n"
    assert capsys.readouterr().err == line


def test_an_empty_workspace_has_nothing_to_remove(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.mkdir()
    assert prune(workspace, capsys, "--older_than=1d")[1]["removed"] == []


def test_what_a_killed_prune_left_is_removed(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(2))
    (workspace / ".pruned" / "t-000").mkdir(parents=True)
    prune(workspace, capsys, "--keep_nights=1")
    assert not (workspace / ".pruned").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "say what to keep"),
        (("--keep_nights=0",), "must be a whole number, 1 or more"),
        (("--keep_nights=" + "9" * 5000,), "9...: is too large a number"),
        (("--keep_per_series=\u0663",), "must be a whole number, 1 or more"),
        (("--older_than=1y",), "write 90d"),
        (("--unfinished_older_than=soon",), "--unfinished_older_than=soon: write 90d"),
        (("--keep_nights=1", "--workspace=/gone"), "there is no such folder"),
        (("--keep_nights=1", "--format=xml"), "must be table or json"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    workspace: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], says: str
) -> None:
    write(workspace / "output", *nights(1))
    assert main(["prune", f"--workspace={workspace}", *flags]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert left(workspace) == [0]


def put_pairs(workspace: Path, run_id: str, timestamp: float, *, ended: bool = True) -> None:
    """Write both arms of pairs, as `perfrun ab` leaves them."""
    for side in ("a", "b"):
        made = [
            summary(name=f"{run_id}-{n}", run_id=f"{run_id}-{side}", timestamp=timestamp + n)
            for n in range(3)
        ]
        write(workspace / "ab" / side / "output", *made)
        journal = Journal(workspace / "ab" / side / "runs" / f"{run_id}-{side}.jsonl")
        journal.begin(RunPlan(selectors=()), {}, 1)
        if ended:
            journal.end()


def pairs_left(workspace: Path) -> set[str]:
    return {path.name.split("-")[0] for path in (workspace / "ab").glob("*/output/*")}


def test_pairs_go_as_a_whole_unless_they_can_go_on(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(5))
    put_pairs(workspace, "old", BEGIN)
    put_pairs(workspace, "cut", BEGIN, ended=False)
    put_pairs(workspace, "new", BEGIN + 4 * 86400)
    _, found = prune(workspace, capsys, "--keep_nights=2", "--dry_run")
    assert (found["trials"], found["pair_trials"], len(found["removed"])) == (3, 6, 9)
    assert pairs_left(workspace) == {"old", "cut", "new"}
    status, found = prune(workspace, capsys, "--keep_nights=2")
    assert (status, found["trials"], found["pair_trials"], found["kept"]) == (0, 3, 6, 2)
    assert pairs_left(workspace) == {"cut", "new"}
    assert prune(workspace, capsys, "--keep_nights=2")[1]["pair_trials"] == 0


def test_the_newest_pairs_of_a_method_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.mkdir()
    for number, run_id in enumerate(("one", "two", "three")):
        put_pairs(workspace, run_id, BEGIN + number * 86400)
    prune(workspace, capsys, "--keep_per_series=2")
    assert pairs_left(workspace) == {"two", "three"}


def test_interrupted_pairs_go_when_they_are_old_enough_to_be_given_up(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(5))
    age = f"{(time.time() - BEGIN) / 86400 - 2:.3f}d"  # until two nights after the beginning
    put_pairs(workspace, "old", BEGIN)
    put_pairs(workspace, "cut", BEGIN, ended=False)
    put_pairs(workspace, "late", BEGIN + 4 * 86400, ended=False)
    killed = workspace / "ab" / "a" / "output" / "cut-killed"  # its trial left no summary
    killed.mkdir()
    Journal(workspace / "ab" / "a" / "runs" / "cut-a.jsonl").started(("m", 4), killed)
    status, found = prune(workspace, capsys, f"--unfinished_older_than={age}")
    assert (status, found["trials"], found["pair_trials"], found["kept"]) == (0, 0, 6, 5)
    assert pairs_left(workspace) == {"old", "late"}  # nothing was said of what has ended
    assert not killed.exists()
    assert going_on(workspace / "ab" / "a" / "runs") == {"late-a"}  # the other cannot be resumed
    # With a policy more, both must let it go.
    put_pairs(workspace, "cut", BEGIN + 86400, ended=False)
    both = (f"--unfinished_older_than={age}", "--keep_nights=4")
    assert prune(workspace, capsys, *both)[1]["trials"] == 1
    assert pairs_left(workspace) == {"cut", "late"}
    prune(workspace, capsys, both[0], "--keep_nights=3")
    assert pairs_left(workspace) == {"late"}


def test_what_was_interrupted_is_not_the_newest_of_its_method(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.mkdir()
    put_pairs(workspace, "one", BEGIN)
    put_pairs(workspace, "cut", BEGIN + 86400, ended=False)
    prune(workspace, capsys, "--keep_per_series=1")
    assert pairs_left(workspace) == {"one", "cut"}
    prune(workspace, capsys, "--keep_per_series=1", "--unfinished_older_than=1d")
    assert pairs_left(workspace) == {"one"}


def test_what_cannot_be_locked_now_is_left_to_the_next_prune(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning._Locks, "room", 2)  # a set of pairs has one for each arm
    workspace.mkdir()
    put_pairs(workspace, "first", BEGIN, ended=False)
    put_pairs(workspace, "second", BEGIN, ended=False)
    assert prune(workspace, capsys, "--unfinished_older_than=1d")[1]["pair_trials"] == 6
    prune(workspace, capsys, "--unfinished_older_than=1d")
    assert pairs_left(workspace) == set()


def test_what_is_running_stays_however_old_it_is(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(4))
    put_pairs(workspace, "cut", BEGIN, ended=False)
    search = begin_search(workspace / "bisect", "0", ["a", "b"], seed=1)
    write(search.folder / "a" / "output", summary(timestamp=BEGIN))
    run = Journal(workspace / "runs" / "run-000.jsonl")
    run.begin(RunPlan(selectors=()), {}, 1)
    flags = ("--unfinished_older_than=1d", "--keep_nights=1")
    with ExitStack() as work:  # as those who are at it hold it
        work.enter_context(search_lock(search)).own()
        work.enter_context(run.held())
        for side in "ab":
            journal = Journal(workspace / "ab" / side / "runs" / f"cut-{side}.jsonl")
            assert work.enter_context(journal.held())
        assert prune(workspace, capsys, *flags)[1]["trials"] == 2
        assert (pairs_left(workspace), left(workspace)) == ({"cut"}, [0, 3])
        assert search.path.exists()
    found = prune(workspace, capsys, *flags)[1]
    assert (found["trials"], found["pair_trials"]) == (1, 7)
    assert (pairs_left(workspace), left(workspace)) == (set(), [3])
    assert not search.folder.exists()
    assert going_on(workspace / "runs") == set()


def test_a_run_that_is_given_up_keeps_the_neighbours_of_a_change(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(40, slower_from=25))
    for number in (10, 24, 25):
        run = Journal(workspace / "runs" / f"run-{number:03}.jsonl")
        run.begin(RunPlan(selectors=()), {}, 1)
    prune(workspace, capsys, "--keep_nights=3", "--unfinished_older_than=1d")
    assert left(workspace) == [24, 25, 37, 38, 39]
    assert going_on(workspace / "runs") == {"run-024", "run-025"}


def test_a_search_that_was_killed_before_its_first_trial_goes_by_its_record(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    young, old = (begin_search(workspace / "bisect", name, ["a", "b"], seed=1) for name in "ab")
    os.utime(old.path, (BEGIN, BEGIN))
    prune(workspace, capsys, "--unfinished_older_than=1d")
    assert (young.folder.exists(), old.folder.exists()) == (True, False)


@pytest.mark.parametrize(("status", "stays"), [("found", False), ("undecided", True)])
def test_searches_go_with_their_checkouts_when_they_have_an_answer(
    workspace: Path, capsys: pytest.CaptureFixture[str], status: str, stays: bool
) -> None:
    log = begin_search(workspace / "bisect", "0", ["a", "b"], seed=1)
    write(log.folder / "a" / "output", summary(timestamp=BEGIN))
    (log.folder / "a" / "site-packages" / "repo").mkdir(parents=True)
    prune(workspace, capsys, "--older_than=1d")
    assert log.folder.exists()  # it has not come to its end
    log.end(status)
    _, found = prune(workspace, capsys, "--older_than=1d")
    assert log.folder.exists() is stays
    assert found["pair_trials"] == (0 if stays else 1)
    prune(workspace, capsys, "--unfinished_older_than=1d")
    assert not log.folder.exists()


def test_replays_and_explanations_go_as_a_whole_unless_they_are_in_use(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(5))
    for side in ("a", "b"):
        for name, days in (("old", 0), ("new", 4)):
            made = summary(name=name, run_id=name, timestamp=BEGIN + days * 86400)
            write(workspace / "explain" / side / "output", made)
    (workspace / "explain" / "old.json").write_text("{}", encoding="utf-8")  # the answer
    replays = workspace / "replays"
    for place in ("0" * 16, "1" * 16):
        write(replays / place / "output", summary(name="t", run_id="r", timestamp=BEGIN))
        (replays / place / "capsule").mkdir()
    (replays / ("2" * 16)).symlink_to(replays / ("0" * 16))
    (workspace / "companion").mkdir()
    (workspace / "companion" / "peak.json").write_text("{}", encoding="utf-8")
    with FileLock(replays / ".locks" / ("1" * 16)) as lock:
        assert lock.try_own()
        status, found = prune(workspace, capsys, "--keep_nights=2")
    assert (status, found["trials"], found["pair_trials"]) == (0, 3, 3)
    assert {path.name for path in (workspace / "explain").glob("*/output/*")} == {"new-0"}
    assert [path.name for path in sorted(replays.iterdir())] == [".locks", "1" * 16, "2" * 16]
    assert (workspace / "explain" / "old.json").exists()
    assert (workspace / "companion" / "peak.json").exists()
    assert prune(workspace, capsys, "--keep_nights=2")[1]["pair_trials"] == 1
    assert not (replays / ("1" * 16)).exists()


def test_the_sides_of_an_open_suspect_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace / "output", *nights(5))
    sides = replace(SUSPECT, before_execution_id="t-000", after_execution_id="t-001")
    write_state(workspace, SuspectState(open=(sides,)))
    prune(workspace, capsys, "--keep_nights=2")
    assert left(workspace) == [0, 1, 3, 4]


def test_the_sides_of_an_open_incident_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search places the step elsewhere now: the sides that pairs have compared are bisected."""
    write(workspace / "output", *nights(5))
    sides = replace(worse("a"), before_execution_id="t-000", after_execution_id="t-001")
    over = replace(worse("b"), before_execution_id="t-002", status="not_reproduced")
    both = (Incident(id=1, changes=(sides,)), Incident(id=2, changes=(over,)))
    ledger.change(workspace, lambda _: Ledger(incidents=both, next=3))
    prune(workspace, capsys, "--keep_nights=2")
    assert left(workspace) == [0, 1, 3, 4]

"""Who submits, submits alone; what nobody has to run again is not handed to an engine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.errors import PerfrunError, StoreError, UsageError
from perfrun.fleet.engines import EngineFlag, Options
from perfrun.fleet.submissions import find_plan
from perfrun.fleet.submit import submit_shards
from perfrun.fleet.transfer import send_plan
from perfrun.locks import FileLock
from perfrun.shards.collect import collect
from perfrun.shards.places import How, ShardPlace
from perfrun.shards.plan import Plan, ShardState
from perfrun.shards.status import statuses
from tests.submissions import SUMMARY, attempt, ended, finished, plan
from tests.trial_documents import perfrun_summary


class Scheduler:
    """An engine that notes what it is given, and knows what it is told."""

    flags: Sequence[EngineFlag] = ()
    stays = False

    def __init__(self, said: Mapping[int, ShardState] | None = None) -> None:
        self.had: list[int] = []
        self.cancelled: list[int] = []
        self._said = said or {}

    def check(self, options: Options) -> None: ...

    def submit(self, plan: Plan, indices: Sequence[int], options: Options) -> None:
        self.had += indices

    def states(self, plan: Plan, indices: Sequence[int]) -> Mapping[int, ShardState]:
        return {one: self._said[one] for one in indices if one in self._said}

    def cancel(self, plan: Plan, indices: Sequence[int]) -> None:
        self.cancelled += indices


def test_a_scheduler_gets_what_is_missing_and_a_second_submit_waits_for_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(tmp_path, 4)
    finished(made, 0, a="A")
    ShardPlace(made, 1).end(attempt(made, 1), ended(How.MACHINE, "no disk"))
    engine = Scheduler({2: ShardState.WAITING, 3: ShardState.RUNNING})
    assert submit_shards(made, engine, {}, range(4), None, as_json=False) == 0
    assert engine.had == [1, 2, 3]
    said = capsys.readouterr().out
    assert "lab-1 on local: 4 shards, 1 waiting, 1 running, 1 done, 1 machine failed" in said
    assert "no disk" in said
    assert (tmp_path / "output" / "a").is_dir()
    with FileLock(made.folder / ".submit.lock") as lock:
        assert lock.try_own()
        with pytest.raises(UsageError, match="another perfrun submits its shards"):
            submit_shards(made, engine, {}, range(4), None, as_json=False)


def test_results_come_in_when_an_engine_fails(tmp_path: Path) -> None:
    made = plan(tmp_path)

    class Failing(Scheduler):
        def submit(self, plan: Plan, indices: Sequence[int], options: Options) -> None:
            finished(plan, 0, a="A")
            raise PerfrunError("the queue is full")

    with pytest.raises(PerfrunError, match="queue is full"):
        submit_shards(made, Failing(), {}, range(2), None, as_json=False)
    assert (tmp_path / "output" / "a").is_dir()


def test_what_failed_is_withdrawn_by_who_submits_and_after_it_was_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(tmp_path, 2)
    failed = attempt(made, 0, old="OLD")
    ShardPlace(made, 0).end(failed, ended(How.FAILED, "wrong", old="OLD"))
    finished(made, 1, fine="FINE")
    engine = Scheduler()
    monkeypatch.setattr("perfrun.fleet.local.engine", lambda: engine)
    retry = ["submit", "--resume", f"--workspace={tmp_path}", "--retry_failed"]

    def files() -> dict[Path, bytes]:
        found = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        return {path: content for path, content in found.items() if path.name != "lock"}

    before = files()
    assert main([*retry, "--dry_run"]) == 0
    assert "1 shards (1 different); nothing was submitted" in capsys.readouterr().out
    assert files() == before
    with FileLock(made.folder / ".submit.lock") as lock:
        assert lock.try_own()
        assert main(retry) == 2
    assert statuses(made)[0].state is ShardState.FAILED
    assert engine.had == []

    assert main(retry) == 0
    assert engine.had == [0]
    assert (tmp_path / "output" / "old" / SUMMARY).read_text() == "OLD"
    assert statuses(made)[0].state is ShardState.UNKNOWN


def test_what_another_engine_still_has_is_not_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(tmp_path, 4)  # of `local`
    finished(made, 0)
    waiting = {1: ShardState.WAITING, 2: ShardState.RUNNING, 3: ShardState.CANCELLED}
    slurm, other = Scheduler(waiting), Scheduler({2: ShardState.WAITING, 3: ShardState.MACHINE})
    monkeypatch.setattr("perfrun.fleet.slurm.engine", lambda: slurm)
    monkeypatch.setattr("perfrun.fleet.kubernetes.engine", lambda: other)
    resume = ["submit", "--resume", f"--workspace={tmp_path}"]
    fleet = ["fleet", f"--workspace={tmp_path}", "--format=json"]

    def states() -> list[str]:
        return [one["state"] for one in json.loads(capsys.readouterr().out)["shards"]]

    main([*resume, "--engine=slurm", "--dry_run"])
    capsys.readouterr()
    assert main(fleet) == 1
    assert states() == ["done", "not begun", "not begun", "not begun"]
    assert main([*resume, "--engine=slurm"]) == 0
    assert slurm.had == [1, 2, 3]
    capsys.readouterr()
    main(fleet)
    assert states() == ["done", "waiting", "running", "cancelled"]
    # Another engine again: what the one before it has goes on there.
    assert main([*resume, "--engine=kubernetes", "--format=json"]) == 0
    assert states() == ["done", "waiting", "running", "machine failed"]
    assert other.had == [3]
    main([*fleet, "--no_engine"])
    assert states() == ["done", "not begun", "not begun", "not begun"]
    assert main([*resume, "--dry_run", "--format=json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["index"] for one in said["shards"]] == [3]
    main([*fleet, "--cancel"])
    assert slurm.cancelled == other.cancelled == [1, 2, 3]

    used = made.folder / "engine" / "used"
    assert used.read_text() == "local\nslurm\nkubernetes\n"
    used.unlink()
    used.symlink_to("/dev/zero")
    assert main(fleet) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_who_waits_collects_what_comes_and_outlives_a_cluster_that_is_silent_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(tmp_path)
    finished(made, 0, a="A")

    class Cluster(Scheduler):
        looks = 0

        def gather(self, plan: Plan) -> None:
            self.looks += 1
            if self.looks == 2:
                raise PerfrunError("the cluster cannot be asked")
            if self.looks == 4:
                finished(plan, 1, b="B")

    engine = Cluster({1: ShardState.RUNNING})
    monkeypatch.setattr("perfrun.fleet.command.engines_of", lambda _: (engine,))
    monkeypatch.setattr("perfrun.fleet.command._LOOK_S", 0.0)
    words = ["fleet", made.submission, f"--workspace={tmp_path}"]
    assert main([*words, "--wait"]) == 0
    shown = capsys.readouterr()
    assert "2 shards, 2 done" in shown.out
    said = shown.err.splitlines()
    assert said[0] == "perfrun: the cluster cannot be asked; it is asked again"
    assert "[1/1] cases.Cases.m1 default, round 1: done" in said[-1]
    assert {path.name for path in (tmp_path / "output").iterdir()} == {"a", "b"}
    assert main([*words, "--wait", "--cancel"]) == 2
    # One that stays silent is not asked for ever.
    ShardPlace(made, 1).withdraw()
    monkeypatch.setattr("perfrun.fleet.command._MOST_FAILURES", 2)
    looks = iter([None, PerfrunError("no"), PerfrunError("no"), PerfrunError("no")])

    def silent(_: Plan) -> None:
        if (error := next(looks)) is not None:
            raise error

    monkeypatch.setattr(engine, "gather", silent)
    assert main([*words, "--wait"]) == 3


def test_the_store_of_the_suite_gets_every_result_whoever_collects_it_and_whatever_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> int:
        with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM trials").fetchone()
        return int(count)

    def results(*numbers: int) -> None:
        for number in numbers:
            finished(made, number, **{f"t{number}": json.dumps(perfrun_summary(number))})

    monkeypatch.setattr("perfrun.fleet.local.engine", Scheduler)
    monkeypatch.chdir(tmp_path)
    methods = "".join(f'[[methods]]\nname = "cases.Cases.m{one}"\n' for one in range(5))
    Path("suite.toml").write_text(f'name = "lab"\nstore = "sqlite:///x.db"\n{methods}')
    assert main(["submit", "suite.toml"]) == 0
    made = find_plan(tmp_path / "workspace", "last")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    fleet = ["fleet", str(made.folder)]
    results(0)
    main(fleet)
    assert rows() == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []

    results(1, 2)
    killed = collect(made, [1], print)  # before the store was told
    assert len(killed.new) == 1
    (source,) = made.folder.glob("shards/00002/attempt-1/output/t2")
    source.rename(made.workspace / "output" / "t2")  # and before a collection could say so
    main(fleet)
    assert rows() == 3

    results(3)
    monkeypatch.setattr("perfrun.store.index.open_store", refuse)
    main(fleet)
    assert "not indexed yet (the server is away)" in capsys.readouterr().err
    monkeypatch.undo()
    main(fleet)
    assert rows() == 4
    assert collect(made, range(5), print).to_index == ()
    sent = io.BytesIO()
    send_plan(made, sent)  # to a host, which is not to know a password
    assert b"x.db" in made.path.read_bytes()
    assert b"x.db" not in sent.getvalue()


def refuse(*_: Any, **__: Any) -> Any:
    raise StoreError("the server is away")


def test_a_submission_is_found_by_id_and_folder_and_the_newest_by_none(tmp_path: Path) -> None:
    for workspace in (tmp_path, tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="there is no submission"):
            find_plan(workspace, "last")
    old, new = (plan(tmp_path, submission=name) for name in ("old", "new"))
    os.utime(new.path, ns=(2**60 + 1, 2**60 + 1))  # both may have been written in one tick
    os.utime(old.path, ns=(2**60, 2**60))
    assert find_plan(tmp_path, "last").submission == "new"
    assert find_plan(tmp_path, "old") == find_plan(tmp_path, str(old.folder)) == old
    assert new != old
    for word in ("other", "..", "", "a" * 300):
        with pytest.raises(UsageError, match="there is no such submission"):
            find_plan(tmp_path, word)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit"], "name a suite"),
        (["submit", "x.toml", "--engine=loca"], "did you mean local?"),
        (["submit", "x.toml", "--hosts=a"], "--hosts: is a flag of --engine=ssh, not of local"),
        (["submit", "x.toml", "--engine=ssh"], "name the hosts"),
        (["submit", "x.toml", "--engine=ssh", "--hosts=-oProxyCommand=x"], "no name of a host"),
        (["submit", "x.toml", "--engine=ssh", "--hosts=a b"], "no name of a host"),
        (["submit", "x.toml", "--engine=ssh", "--hosts=./none"], "No such file"),
        (["submit", "x.toml", "--jobs=0"], "--jobs=0"),
        (["submit", "x.toml", "--rounds=0"], "--rounds=0"),
        (["submit", "x.toml", "--retry_failed"], "is of --resume"),
        (["submit", "--resume", "--rounds=2"], "the plan has rounds, sweep and nodes"),
        (["fleet", "--metric=x"], "--metric: is of --table"),
        (["fleet", "--table", "--cancel"], "--table: does not go with --cancel"),
        (["shard", "nothing", "0"], "no plan of a submission can be read"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured: Any = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

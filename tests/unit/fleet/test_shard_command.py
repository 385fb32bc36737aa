"""The exit status of `perfrun shard` says whose fault it was: the plan's, or this machine's."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from perfrun.errors import UsageError
from perfrun.fleet.shard_command import BENCHMARK_FAILED, MACHINE_FAILED, shard_command
from perfrun.fleet.transfer import PART, packed_plan
from perfrun.shards import plan_file
from perfrun.shards.places import ShardPlace
from perfrun.shards.plan import ShardState
from perfrun.shards.plan_file import write_plan
from perfrun.shards.status import statuses
from tests.submissions import plan


def test_a_disk_that_cannot_be_written_is_the_machines_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(tmp_path, 3)
    (made.folder / "shards").mkdir()
    ShardPlace(made, 0).folder.touch()  # in the way of a folder
    (ShardPlace(made, 1).folder / "lock").mkdir(parents=True)  # in the way of a lock
    lock = tmp_path / "file" / "locks"
    lock.parent.touch()
    for words in (["0"], ["1"], ["2", f"--alone={lock}"]):
        assert shard_command([str(made.folder), *words]) == MACHINE_FAILED
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not ShardPlace(made, 2).folder.exists()


def test_a_pod_that_cannot_unpack_its_submission_is_a_machine_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, mounted, full = plan(tmp_path / "here", 1), tmp_path / "mounted", tmp_path / "full"
    mounted.mkdir()
    for number, part in enumerate(packed_plan(made)):
        (mounted / f"{PART}{number:03d}").write_bytes(part)
    full.touch()  # in the way of a folder
    words = ["0", f"--unpack={mounted}"]
    assert shard_command([str(full / "lab-1"), *words]) == MACHINE_FAILED
    (said,) = capsys.readouterr().err.splitlines()
    assert "lab-1" in said


def test_a_flag_that_the_benchmark_does_not_know_is_its_failure_and_no_machines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cases.py").write_text("class Cases:\n    def m0(self): pass\n")
    words = ("--benchmark_methods=cases.Cases.m0", f"--python_path={tmp_path}", "--", "--siz=8")
    first = plan(tmp_path, 1)
    made = replace(
        first,
        folder=first.folder.with_name("lab-2"),
        shards=(replace(first.shards[0], words=words, setting=(("siz", "8"),)),),
    )
    write_plan(made)
    assert shard_command([str(made.folder), "0"]) == BENCHMARK_FAILED
    (status,) = statuses(made)
    assert status.state is ShardState.FAILED
    assert status.reason == "flags after --: cases: Unknown command line flag 'siz'"
    assert shard_command([str(made.folder), "0"]) == BENCHMARK_FAILED
    assert "has its result already" in capfd.readouterr().err
    assert len(statuses(made)[0].attempts) == 1


def test_a_plan_that_the_disk_cannot_give_is_not_a_wrong_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError):
        shard_command([str(tmp_path / "nowhere"), "0"])
    made = plan(tmp_path)

    def stale(_: Path) -> NoReturn:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(plan_file, "opened", stale)
    assert shard_command([str(made.folder), "0"]) == MACHINE_FAILED
    assert capsys.readouterr().err == f"perfrun: {made.path}: cannot be read: Stale file handle\n"

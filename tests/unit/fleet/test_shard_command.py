"""The exit status of `perfrun shard` says whose fault it was: the plan's, or this machine's."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest

from perfrun.errors import UsageError
from perfrun.fleet.shard_command import MACHINE_FAILED, shard_command
from perfrun.shards import plan_file
from perfrun.shards.places import ShardPlace
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

"""`perfrun prune` and submissions: over, collected and without trials, or it stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.benchmark import main
from perfrun.fleet.submissions import bring_in
from perfrun.locks import FileLock
from perfrun.shards.places import ShardPlace
from perfrun.shards.plan import Plan
from perfrun.shards.plan_file import LOCK
from perfrun.shards.status import statuses
from tests.submissions import finished, plan
from tests.summaries import summary

OLD, ALL = 1591045200.0, "--older_than=0h"


def submitted(workspace: Path, *, shards: int = 1, timestamp: float = OLD) -> Plan:
    """A submission whose first shard is done."""
    made = plan(workspace, shards)
    text = json.dumps(summary(label=made.submission, timestamp=timestamp, name="t"))
    finished(made, 0, t=text)
    return made


def collected(made: Plan) -> Plan:
    bring_in(made, statuses(made), None)
    return made


def prune(
    workspace: Path, capsys: pytest.CaptureFixture[str], *flags: str
) -> tuple[list[str], dict[str, Any]]:
    assert main(["prune", f"--workspace={workspace}", "--format=json", *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    return [Path(one).name for one in said["removed"]], said


def test_a_submission_that_is_over_goes_with_the_last_of_its_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = collected(submitted(tmp_path))
    names, said = prune(tmp_path, capsys, ALL, "--dry_run")
    assert (names, said["submissions"]) == (["t", "lab-1"], 1)
    assert made.path.exists()
    assert (tmp_path / "output" / "t").exists()
    names, _ = prune(tmp_path, capsys, "--keep_per_series=1")
    assert names == []  # replays of its trial run the code of the submission
    names, said = prune(tmp_path, capsys, ALL)
    assert (names, said["trials"], said["pair_trials"]) == (["t", "lab-1"], 1, 0)
    assert not made.folder.exists()


def test_a_submission_goes_when_its_trials_went_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = collected(submitted(tmp_path))
    other = json.dumps(summary(name="u", timestamp=OLD + 86400))
    (tmp_path / "output" / "u").mkdir()
    (tmp_path / "output" / "u" / "perfzero_summary.json").write_text(other)
    assert prune(tmp_path, capsys, "--keep_per_series=1")[0] == ["t", "lab-1"]
    assert not made.folder.exists()


def test_what_was_not_collected_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = submitted(tmp_path)
    assert prune(tmp_path, capsys, ALL, "--unfinished_older_than=0h")[0] == []
    assert made.path.exists()


def test_a_result_stays_that_was_not_published_before_its_process_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = collected(submitted(tmp_path, shards=2))
    finished(made, 1, u=json.dumps(summary(label=made.submission, timestamp=OLD, name="u")))
    (ShardPlace(made, 1).folder / "result.json").unlink()
    give_up = (ALL, "--unfinished_older_than=0h")
    assert prune(tmp_path, capsys, *give_up)[0] == ["t"]
    ShardPlace(made, 1).settle()  # as --resume does
    collected(made)
    assert prune(tmp_path, capsys, *give_up)[0] == ["u", "lab-1"]


def test_an_open_submission_stays_unless_it_is_given_up_and_nothing_works_on_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = collected(submitted(tmp_path, shards=2))
    give_up = (ALL, "--unfinished_older_than=0h")
    place = ShardPlace(made, 1)
    place.make()
    with place.held():
        assert prune(tmp_path, capsys, *give_up)[0] == ["t"]
    with FileLock(made.folder / LOCK) as lock:
        assert lock.try_own()
        assert prune(tmp_path, capsys, *give_up)[0] == []
    assert prune(tmp_path, capsys, ALL)[0] == []
    assert prune(tmp_path, capsys, ALL, "--unfinished_older_than=9d")[0] == []
    assert prune(tmp_path, capsys, *give_up)[0] == ["lab-1"]

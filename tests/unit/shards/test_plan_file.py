"""The file of a plan: read back as it was written, and nothing else is believed."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from perfrun.errors import UsageError, WorkspaceError
from perfrun.shards.plan_file import read_plan, write_plan
from tests.submissions import plan


def test_a_plan_is_read_as_it_was_written_and_never_written_again(tmp_path: Path) -> None:
    made = plan(tmp_path, 3, 2)
    assert read_plan(made.folder) == read_plan(made.path) == made
    assert made.workspace == tmp_path
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600  # variables of trials may be secret
    with pytest.raises(WorkspaceError, match="never changed"):
        write_plan(made)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"format": "other"},
        {"submission": "../x"},
        {"submission": ""},
        {"shards": []},
        {"shards": [{"index": 0}]},
        {"created": 1e300},
        {"options": {"a b": "c"}},
        {"more": 1},
    ],
)
def test_a_plan_that_is_none_is_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    made = plan(tmp_path)
    made.path.write_text(json.dumps({**json.loads(made.path.read_text()), **change}))
    with pytest.raises(UsageError, match=r"plan\.json: is (no plan|of another)") as error:
        read_plan(made.folder)
    assert "\n" not in str(error.value)


def test_shards_are_numbered_without_gaps_and_a_plan_is_no_link(tmp_path: Path) -> None:
    made = plan(tmp_path)
    found = json.loads(made.path.read_text())
    found["shards"].reverse()
    other = tmp_path / "other.json"
    other.write_text(json.dumps(found))
    with pytest.raises(UsageError, match="not numbered"):
        read_plan(other)
    (tmp_path / "link.json").symlink_to(made.path)
    with pytest.raises(UsageError, match="no plan of a submission can be read"):
        read_plan(tmp_path / "link.json")
    other.write_bytes(b"[" * 100_000)
    with pytest.raises(UsageError, match="is no plan"):
        read_plan(other)

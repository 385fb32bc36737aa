"""The reason of a change that cannot be confirmed says what prevents it."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from perfrun.changes.budget import Budget, parse_budget
from perfrun.changes.confirm import Confirmation, Suspect, confirm
from perfrun.errors import UsageError
from perfrun.reports.terminal import Terminal
from tests.unit.summary.test_reconstruction import summary


def document(**own: Any) -> dict[str, Any]:
    whole = copy.deepcopy(summary(**own))
    whole["benchmark_info"]["has_exception"] = False
    whole["benchmark_result"] = {
        "name": "m.C.x",
        "wall_time": 1.0,
        "metrics": [],
        "extras": [],
    }
    return {**whole, "execution_id": "x", "execution_timestamp": 1.0}


def asked(tmp_path: Path, before: object, after: object) -> Confirmation:
    for name, text in (("before", before), ("after", after)):
        (tmp_path / name).write_text(json.dumps(text), encoding="utf-8")
    suspect = Suspect(
        method="m.C.x",
        metric="wall_time",
        direction="worse",
        before=tmp_path / "before",
        after=tmp_path / "after",
    )
    screen = Terminal(sys.stderr, sys.stderr, quiet=True)
    return confirm(suspect, tmp_path / "ws", Budget(max_pairs=8), screen, trusts_imported=True)


def test_trials_that_are_the_same_on_record_cannot_be_told_apart(tmp_path: Path) -> None:
    found = asked(tmp_path, document(), document())
    assert found.status == "candidate"
    assert found.reason is not None
    assert "what changed was changed in place" in found.reason


def test_a_summary_that_is_gone_or_broken_is_the_reason(tmp_path: Path) -> None:
    found = asked(tmp_path, document(), "nonsense")
    assert (found.status, found.pairs) == ("candidate", 0)
    assert "a summary cannot be read" in str(found.reason)


def test_an_interpreter_that_is_gone_is_the_reason(tmp_path: Path) -> None:
    place = {"environment": {"python": {"executable": "/nowhere/bin/python"}}, "git": []}
    found = asked(tmp_path, document(), document(**place))
    assert found.status == "candidate"
    assert "--python=/env/bin/python: is not there" in str(found.reason)


@pytest.mark.parametrize("count", ["7", "x", "-1"])
def test_too_few_pairs_are_refused(count: str) -> None:
    with pytest.raises(UsageError, match=f"--max_pairs={count}"):
        parse_budget(count, None)

"""The submissions on the page: the newest ones, by their files, and bounded whatever these say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from perfrun.page import fleet
from perfrun.page.document import Page, document_of
from perfrun.page.fitting import fitted, size_of
from perfrun.page.fleet import submissions_shown
from perfrun.shards.places import How, ShardPlace
from perfrun.store import quarantine
from perfrun.store.quarantine import Period, Quarantine
from tests import schemas
from tests.submissions import attempt, ended, finished, plan, swept
from tests.summaries import summary


def test_a_submission_says_what_failed_and_why_on_which_machines(tmp_path: Path) -> None:
    made = plan(tmp_path, 5)
    finished(made, 0, a="A")
    ShardPlace(made, 1).end(attempt(made, 1), ended(How.FAILED, "<b>boom"))
    for _ in range(2):
        ShardPlace(made, 2).end(attempt(made, 2), ended(How.MACHINE, "no disk"))
    attempt(made, 3)  # killed
    host = ShardPlace(made, 0).attempts()[0].begun
    assert host is not None
    said = Period(node=host.host, at=1.0, because="slow by 8 %")
    quarantine.change(tmp_path, lambda _: Quarantine((said,)))
    (one,) = submissions_shown(tmp_path)
    assert (one["submission"], one["shards"], one["is_good"]) == ("lab-1", 5, False)
    assert one["states"] == {
        "done": 1,
        "benchmark failed": 1,
        "machine failed": 1,
        "preempted": 1,
        "not begun": 1,
    }
    failed, machines = one["tables"]
    assert failed["headings"] == ["Method", "State", "Why", "Machine", "Environment", "Round"]
    assert [row[1:3] for row in failed["rows"]] == [
        ["benchmark failed", "<b>boom"],
        ["machine failed", "no disk"],
        ["preempted", "was ended from outside"],
    ]
    assert machines["rows"] == [[host.host, "2", "5", "2", "slow by 8 %"]]


def test_while_shards_run_the_page_says_how_long_the_others_take(tmp_path: Path) -> None:
    made = plan(tmp_path, 3)
    finished(made, 0)
    assert submissions_shown(tmp_path)[0]["left"] == ""
    place = ShardPlace(made, 1)
    place.make()
    with place.held():
        (one,) = submissions_shown(tmp_path)
    assert one["states"] == {"running": 1, "done": 1, "not begun": 1}
    assert one["left"] == "about 0 s left"


def test_a_sweep_has_a_row_for_each_setting(tmp_path: Path) -> None:
    made = swept(tmp_path)
    for shard in made.shards[:2]:
        text = json.dumps(summary(method=shard.method, wall_time=1.0 + shard.index))
        finished(made, shard.index, **{f"t{shard.index}": text})
    (one,) = submissions_shown(tmp_path)
    (_, table) = one["tables"]
    assert table["title"] == "Results by setting"
    at = {heading: place for place, heading in enumerate(table["headings"])}
    assert [(row[at["Setting"]], row[at["wall_time"]]) for row in table["rows"]] == [
        ("size=0", "1 s"),
        ("size=1", "2 s"),
    ]
    schemas.check("page", document_of(page(tmp_path), "1"))


def page(workspace: Path) -> Page:
    return Page(
        title="t",
        selection="s",
        made=1.0,
        newest=None,
        outcomes={},
        fleet=submissions_shown(workspace),
    )


def test_only_the_newest_are_shown_or_those_whose_trials_are(tmp_path: Path) -> None:
    for number in range(6):
        made = plan(tmp_path, 1, submission=f"lab-{number}")
        os.utime(made.path, (number, number))
    (tmp_path / "submissions" / "lab-5" / "plan.json").write_text("{}")
    os.utime(tmp_path / "submissions" / "lab-5" / "plan.json", (9, 9))
    names = [one["submission"] for one in submissions_shown(tmp_path)]
    assert names == ["lab-4", "lab-3", "lab-2"]
    assert [one["submission"] for one in submissions_shown(tmp_path, {"lab-1"})] == ["lab-1"]
    assert submissions_shown(tmp_path, ()) == ()
    assert submissions_shown(tmp_path / "nowhere") == ()


def test_what_is_too_much_is_not_looked_at_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = swept(tmp_path, 30)
    for shard in made.shards:
        ShardPlace(made, shard.index).end(
            attempt(made, shard.index), ended(How.FAILED, 300 * "x", **{f"t{shard.index}": "{}"})
        )
    monkeypatch.setattr(fleet, "_MOST_TRIALS", 29)
    (one,) = submissions_shown(tmp_path)
    assert one["notes"] == ["30 trials are too many for a table here: fleet --table"]
    document = document_of(page(tmp_path), "1")
    small, fit = fitted(page(tmp_path), size_of(document) - 1, "1")
    assert len(fit["fleet"][0]["tables"][0]["rows"]) == 20
    assert small.left_out == ("10 rows of submissions",)
    monkeypatch.setattr(fleet, "_MOST_SHARDS", 29)
    (one,) = submissions_shown(tmp_path)
    assert one["notes"] == ["30 shards are too many to be looked at here: perfrun fleet has them"]
    assert (one["tables"], one["states"]) == ([], {})

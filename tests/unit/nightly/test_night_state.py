"""Records of nights: those that continue, those that are given up, and their deadlines."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from perfrun.errors import WorkspaceError
from perfrun.nightly.night_state import FILE, Nights, why_not_continued
from perfrun.nightly.suite import EnvironmentSpec, MethodSpec, Rules, Suite, UnitDone
from perfrun.options.plan import parse_selector

NOON = datetime(2026, 11, 21, 12, 0).timestamp()


def suite(folder: Path, name: str = "models", deadline: str | None = None) -> Suite:
    return Suite(
        path=folder / "s.toml",
        name=name,
        digest="d1",
        workspace=folder,
        methods=(),
        environments=(EnvironmentSpec(name="default"),),
        deadline=deadline,
    )


def test_a_night_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    nights, own = Nights(tmp_path), suite(tmp_path, deadline="7h")
    night = nights.begin(own, NOON)
    assert night.night == "models-2026-11-21"
    done = UnitDone(summaries=("a", "b"), stopped_by={"m": None, "n": "deadline"})
    night = night.with_unit("default", done, {"bench": "aa"})
    nights.save(night)
    assert nights.unfinished(own) == night
    assert nights.newest() == night.night
    nights.save(replace(night, ended=NOON + 9))
    assert nights.unfinished(own) is None
    assert nights.newest() is None


def test_only_the_last_night_of_the_same_suite_counts(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    first = nights.begin(suite(tmp_path), NOON)
    second = nights.begin(suite(tmp_path), NOON + 60)
    nights.begin(suite(tmp_path, "other"), NOON + 90)
    assert second.night == f"{first.night}-2"
    assert nights.unfinished(suite(tmp_path)) == second
    nights.save(replace(second, ended=NOON + 70))
    assert nights.unfinished(suite(tmp_path)) is None


def test_the_first_commit_of_a_checkout_is_that_of_the_night(tmp_path: Path) -> None:
    night = Nights(tmp_path).begin(suite(tmp_path), NOON)
    night = night.with_unit("a", UnitDone(), {"bench": "aa"})
    night = night.with_unit("b", UnitDone(), {"bench": "bb", "more": "cc"})
    assert night.pinned == {"bench": "aa", "more": "cc"}


def test_why_a_night_cannot_go_on(tmp_path: Path) -> None:
    own = suite(tmp_path, deadline="7h")
    night = Nights(tmp_path).begin(own, NOON)
    assert why_not_continued(night, own, NOON + 3600) is None
    assert "deadline" in str(why_not_continued(night, own, NOON + 8 * 3600))
    assert "changed" in str(why_not_continued(night, replace(own, digest="d2"), NOON))
    no_deadline = replace(night, deadline=None)
    assert why_not_continued(no_deadline, own, NOON + 8 * 3600) is None
    assert "too long ago" in str(why_not_continued(no_deadline, own, NOON + 23 * 3600))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"units": 3}', '{"units": {}, "what": 1}'])
def test_a_broken_record_is_no_night_to_go_on_with(tmp_path: Path, text: str) -> None:
    nights = Nights(tmp_path)
    night = nights.begin(suite(tmp_path), NOON)
    (nights.folder_of(night) / FILE).write_text(text)
    assert nights.unfinished(suite(tmp_path)) is None
    assert nights.begin(suite(tmp_path), NOON).night != night.night


def test_a_workspace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "nights").touch()
    with pytest.raises(WorkspaceError, match="cannot be written"):
        Nights(tmp_path).begin(suite(tmp_path), NOON)


def test_a_night_of_which_only_the_reports_are_missing_goes_on_after_its_deadline(
    tmp_path: Path,
) -> None:
    method = MethodSpec(selector=parse_selector("pkg.cases.Cases.spin"), rules=Rules())
    own = replace(suite(tmp_path, deadline="7h"), methods=(method,))
    night = Nights(tmp_path).begin(own, NOON)
    assert "deadline" in str(why_not_continued(night, own, NOON + 8 * 3600))
    done = night.with_unit("default", UnitDone(), {})
    assert why_not_continued(done, own, NOON + 8 * 3600) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("night", ["n"]),
        ("night", "../other"),
        ("begun", "now"),
        ("begun", 10**400),
        ("ended", {}),
        ("told", None),
        ("pinned", {"bench": 5}),
        ("units", {"default": {"summaries": [1]}}),
        ("units", []),
    ],
)
def test_a_record_with_a_wrong_value_is_no_night(tmp_path: Path, name: str, value: object) -> None:
    nights = Nights(tmp_path)
    right = nights.begin(suite(tmp_path), NOON)
    wrong = nights.folder_of(nights.begin(suite(tmp_path), NOON + 60)) / FILE
    wrong.write_text(json.dumps({**json.loads(wrong.read_text()), name: value}))
    assert nights.newest() == right.night
    assert nights.over() == set()
    assert nights.unfinished(suite(tmp_path)) == right

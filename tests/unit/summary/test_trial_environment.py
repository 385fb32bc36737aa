"""The digest of what a trial ran, as the index keeps it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfrun.summary.trial_environment import checkouts, context, digest_of
from tests.summaries import summary


def digest(git: list[dict[str, Any]] | None = None, **facts: Any) -> str:
    document = summary(**{"commits": {"models": "a" * 40}, **facts})
    document["perfrun"]["git"] = git or []
    return digest_of(
        json.dumps(context(document), sort_keys=True),
        json.dumps(checkouts(document, "hash", "git_hash"), sort_keys=True),
    )


def test_the_host_name_is_no_part_of_it() -> None:
    here, there = (
        digest(system={"hostname": name}, machine={"hostname": name}) for name in ("here", "there")
    )
    assert here == there != ""


@pytest.mark.parametrize(
    "other",
    [
        {"commits": {"models": "b" * 40}},
        {"distributions": {"numpy": "2.3"}},
        {"machine": {"kernel": "6.19"}},
        {"benchmark_flags": ["--batch_size=4"]},
        {"module_sha256": "b" * 64},
        {"flags": {"data_downloads": "https://host/v2.tar"}},
        {"flags": {"cpuset": "0-3"}},
    ],
)
def test_all_else_is(other: dict[str, Any]) -> None:
    assert digest(**other) not in (digest(), "")


def test_it_is_unknown_without_commits_and_of_edits_that_were_not_recorded() -> None:
    assert digest(commits={}) == ""
    edited = {"directory": "models", "git_hash": "a" * 40, "dirty": True, "diff_sha256": None}
    assert digest([edited]) == ""
    recorded = [{**edited, "diff_sha256": name * 64} for name in "cd"]
    assert "" != digest(recorded[:1]) != digest(recorded[1:]) != ""


@pytest.mark.parametrize(
    ("python_path", "is_known"),
    [("models", True), ("models/official, models", True), ("/home/me/bench", False)],
)
def test_it_is_unknown_with_a_folder_that_no_commit_tells_of(
    python_path: str, is_known: bool
) -> None:
    assert bool(digest(flags={"python_path": python_path})) is is_known
    assert digest(flags={"python_path": f"{python_path},others"}) == ""


def test_it_is_unknown_in_an_index_that_an_older_perfrun_has_written() -> None:
    document = context(summary(commits={"models": "a" * 40}))
    del document["folders_without_commit"]
    assert digest_of(json.dumps(document, sort_keys=True), json.dumps({"models": "a" * 40})) == ""


def test_it_is_unknown_of_a_summary_of_perfzero() -> None:
    document = {**summary(commits={"models": "a" * 40}), "perfrun": None}
    assert digest_of(json.dumps(context(document)), json.dumps({"models": "a" * 40})) == ""

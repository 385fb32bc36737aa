"""The allocator in a summary: what the worker says is checked, and a disagreement is a finding."""

from __future__ import annotations

from typing import Any

import pytest

from perfrun.summary.allocator import allocator_findings, trial_allocator
from perfrun.summary.series_identity import effective_allocator


@pytest.mark.parametrize("hostile", [None, [], "x", {"name": 5, "settings": [1]}, {"settings": 0}])
def test_whatever_a_worker_says_the_section_is_whole(hostile: Any) -> None:
    assert trial_allocator(hostile, "retain") == {
        "asked": "retain",
        "name": None,
        "library": None,
        "libc": None,
        "settings": {},
    }


def test_long_texts_and_many_settings_are_cut() -> None:
    found = {"name": "n" * 10**6, "settings": {f"A{n}": "\0" * 10**4 for n in range(1000)}}
    assert len(str(trial_allocator(found, "default"))) < 20_000


@pytest.mark.parametrize(
    ("asked", "name", "is_found"),
    [
        ("retain", "glibc", False),
        ("retain", "jemalloc", True),
        ("jemalloc", "jemalloc", False),
        ("jemalloc", "glibc", True),
        ("default", "jemalloc", False),
        ("jemalloc", None, False),
    ],
)
def test_an_allocator_that_a_trial_did_not_have_is_a_finding(
    asked: str, name: str | None, is_found: bool
) -> None:
    found = list(allocator_findings({"asked": asked, "name": name}))
    assert [finding.code for finding in found] == ["allocator_not_used"] * is_found


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ({}, "default"),
        ({"asked": "default", "name": "musl"}, "default"),
        ({"asked": "default", "name": "jemalloc"}, "jemalloc"),
        ({"asked": "retain", "name": "glibc"}, "retain"),
    ],
)
def test_an_allocator_has_the_name_of_its_flag_or_library(
    section: dict[str, Any], name: str
) -> None:
    assert effective_allocator(section) == name

"""The grade over findings."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as some

from perfrun.summary.document import to_json
from perfrun.summary.finding import Finding, Severity
from perfrun.summary.quality import GRADES, POINTS, grade, judge_quality

severities = some.sampled_from(list(Severity))


def of(*words: Severity | str, code: str = "") -> list[Finding]:
    """One finding for each of the words, of codes of their own unless one is given."""
    return [
        Finding(code=code or f"c{number}", severity=Severity(word), text="t")
        for number, word in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("words", "letter"),
    [
        ([], "A"),
        (["info"] * 9, "A"),
        (["warning"], "B"),
        (["warning"] * 2, "C"),
        (["warning"] * 3, "D"),
        (["disturbed"], "D"),
        (["disturbed", "warning"], "E"),
        (["disturbed", "warning", "warning"], "E"),
        (["disturbed", "disturbed"], "F"),
        (["warning"] * 6, "F"),
    ],
)
def test_the_grade_follows_the_documented_points(words: list[str], letter: str) -> None:
    assert grade(of(*words)) == letter


@given(some.lists(severities, min_size=1, max_size=12))
def test_the_same_of_many_series_counts_once_at_its_worst(words: list[Severity]) -> None:
    assert grade(of(*words, code="unsteady")) == grade(of(max(words, key=POINTS.__getitem__)))


@given(some.lists(severities, max_size=12), severities)
def test_one_more_finding_never_makes_the_grade_better(
    words: list[Severity], more: Severity
) -> None:
    assert GRADES.index(grade(of(*words, more))) >= GRADES.index(grade(of(*words)))


@given(some.permutations(list(Severity) * 2))
def test_the_order_of_findings_does_not_matter(words: list[Severity]) -> None:
    assert grade(of(*words)) == grade(of(*sorted(words)))


@given(some.lists(severities, max_size=12))
def test_a_worse_finding_never_makes_the_grade_better(words: list[Severity]) -> None:
    for index in range(len(words)):
        worse = [*words[:index], Severity.DISTURBED, *words[index + 1 :]]
        assert GRADES.index(grade(of(*worse))) >= GRADES.index(grade(of(*words)))


def test_a_trial_of_which_nothing_is_known_has_no_findings() -> None:
    quality = judge_quality(None)
    assert (quality.grade, quality.disturbed, quality.findings) == ("A", False, ())


def test_few_samples_of_the_tree_are_information() -> None:
    quality = judge_quality(None, samples=2)
    assert [finding.code for finding in quality.findings] == ["few_samples"]
    assert quality.grade == "A"
    assert judge_quality(None, samples=50).findings == ()


def test_a_quality_can_be_written_down() -> None:
    written = json.loads(to_json(asdict(judge_quality(None, samples=2))))
    assert written["findings"][0]["severity"] == "info"

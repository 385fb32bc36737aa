"""`perfrun bisect`: its command line, and the text that it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfrun.changes.bisect import parse_bisect, revisions_of
from perfrun.changes.search_report import bisect_report, estimate_line
from perfrun.errors import UsageError
from tests.gitrepos import make_repository

METHOD = "--method=pkg.mod.Class.method"
REPOS = "--git_repos=file:///r/one.git;main,file:///r/two.git;main;" + "a" * 40


def revision(name: str, subject: str | None = "what it did") -> dict[str, Any]:
    return {"name": name, "author": "A <a@b>", "date": "2026-01-01", "subject": subject}


def answer(status: str, **more: Any) -> dict[str, Any]:
    judged = {"ratio": 1.1, "low": 1.05, "high": 1.15, "p_value": 0.01, "pairs": 9}
    return {
        "status": status,
        "metric": "cpu_s",
        "direction": "worse",
        "culprit": revision("c" * 40),
        "previous": revision("b" * 40),
        "candidates": [revision("c" * 40), revision("d" * 40)],
        "probability": 0.96,
        **judged,
        "good_against_bad": judged,
        "revisions": 31,
        "tested": [{"name": "b", "trials": 4}],
        "skipped": [{"name": "e" * 40, "reason": "failed", "trials": 1, "spent_s": 14.2}],
        "pairs_run": 20,
        "trials_run": 41,
        "spent_s": 410.0,
        "stopped_by": "decided",
        "environment_differences": [{"text": "repo b -> c"}],
        "seed": 1,
        "folder": "/w/bisect/x",
        **more,
    }


def test_the_culprit_is_told_with_its_evidence() -> None:
    text = "\n".join(bisect_report(answer("found")))
    assert "cccccccccccc is the first slower or worse one" in text
    assert f"commit  {'c' * 40}" in text
    assert (
        "cpu_s against bbbbbbbbbbbb before it: 1.100 times (95 % interval 1.050 to 1.150)" in text
    )
    assert f"skipped {'e' * 40} (1 trial, 14 s): failed" in text
    assert "20 pairs, 41 trials in 7 min; seed 1" in text
    skipped = {"name": "e" * 40, "repository": "one", "reason": "x", "trials": 0, "spent_s": 90.0}
    previous = revision("b" * 40) | {"repository": "two", "commits": {"one": "a", "two": "b"}}
    text = "\n".join(bisect_report(answer("found", skipped=[skipped], previous=previous)))
    assert f"skipped one {'e' * 40} (0 trials, 90 s): x" in text
    assert "repo b -> c" in text


def test_an_image_has_neither_author_nor_a_name_cut_short() -> None:
    image = revision("registry/framework:2.13.0-long-name", None)
    text = "\n".join(bisect_report(answer("found", culprit=image)))
    assert "registry/framework:2.13.0-long-name is the first" in text
    assert "author" not in text


@pytest.mark.parametrize(
    ("status", "more", "telling"),
    [
        ("range", {}, "those before the last do not run"),
        ("undecided", {"stopped_by": "max_pairs"}, "all pairs are spent"),
        ("undecided", {"stopped_by": "time_budget"}, "the time is spent"),
        ("undecided", {"probability": None, "stopped_by": "noise"}, "the noise leaves it open"),
        ("not_reproduced", {}, "of bad and good is the same"),
        ("undecided", {"candidates": [revision("c" * 40)] * 25}, "and 5 more"),
    ],
)
def test_what_is_no_culprit_is_not_called_one(
    status: str, more: dict[str, Any], telling: str
) -> None:
    text = "\n".join(bisect_report(answer(status, culprit=None, **more)))
    assert telling in text
    assert "is the first" not in text.replace("The first", "")


def test_interpreters_are_plans_with_labels(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    named = f"--pythons={tmp_path}/a,{tmp_path}/b"
    asked = parse_bisect([METHOD, named, "--execution_label=night", "--", "--batch_size=8"])
    made = revisions_of(asked.plan, asked.words, asked.ends, lambda _: None)
    assert [one.plan.python for one in made] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert made[1].plan.execution_label == f"night/{tmp_path}/b"
    assert made[1].plan.benchmark_flags == ("--batch_size=8",)


def test_images_are_plans_with_containers() -> None:
    asked = parse_bisect([METHOD, "--images=x:1,x:2", "--cpuset=0", "--max_pairs=9"])
    made = revisions_of(asked.plan, asked.words, asked.ends, lambda _: None)
    assert [one.plan.container and one.plan.container.image for one in made] == ["x:1", "x:2"]
    assert asked.rule.max_pairs == 9


@pytest.mark.parametrize("text", [",", "x:1", "x:1,"])
@pytest.mark.parametrize("flag", ["--images", "--pythons"])
def test_a_list_of_fewer_than_two_is_refused(flag: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag}: name two or more, oldest first$"):
        parse_bisect([METHOD, f"{flag}={text}"])


@pytest.mark.parametrize("flag", ["--max_pairs", "--seed"])
@pytest.mark.parametrize("text", ["-1", "x", "9" * 5000])
def test_what_is_no_number_of_pairs_or_seed_is_refused(flag: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag}=.*number"):
        parse_bisect([METHOD, "--images=x:1,x:2", f"{flag}={text}"])


def test_the_repository_that_is_not_pinned_is_searched() -> None:
    ends = ["--good=abcd", "--bad=abce"]
    assert parse_bisect([METHOD, REPOS, *ends]).ends.good == "abcd"
    parse_bisect([METHOD, REPOS, *ends, "--repo=two"])
    with pytest.raises(UsageError, match=r"which repository\?.*has: one, two"):
        parse_bisect([METHOD, REPOS, *ends, "--repo=three"])


@pytest.mark.parametrize(
    ("good", "bad", "more", "telling"),
    [
        ("one=abcd", "one=abce,two=abcf", (), "name the same repositories"),
        ("one=abcd", "abce", (), "name the same repositories"),
        ("one=abcd,three=abcd", "one=abce,three=abcd", (), "'three' is not in --git_repos"),
        ("two=abcd", "two=abce", (), "one is neither pinned to a commit nor named"),
        ("one=abcd,one=abce", "one=abce", (), "'one' is named twice"),
        ("one=abcd,abce", "one=abce", (), "'abce' is not NAME=HASH"),
        ("one=main", "one=abce", (), "'main' of one is not a commit hash"),
        ("one=abcd", "one=abce", ("--repo=one",), "name the repositories already"),
    ],
)
def test_commits_of_several_repositories_are_checked(
    good: str, bad: str, more: tuple[str, ...], telling: str
) -> None:
    with pytest.raises(UsageError, match=telling):
        parse_bisect([METHOD, REPOS, f"--good={good}", f"--bad={bad}", *more])


def test_a_short_hash_is_that_of_the_long_one(tmp_path: Path) -> None:
    ones = make_repository(tmp_path / "one", [{"x": "1"}, {"x": "2"}])
    twos = make_repository(tmp_path / "two", [{"x": "3"}, {"x": "4"}])
    where = f"--git_repos={tmp_path / 'one'};main,{tmp_path / 'two'};main"
    words = (METHOD, where, f"--workspace={tmp_path / 'ws'}", f"--good=one={ones[0]},two={twos[0]}")

    def found(bad: str) -> list[Any]:
        asked = parse_bisect([*words, f"--bad={bad}"])
        return list(revisions_of(asked.plan, asked.words, asked.ends, lambda _: None))

    both = found(f"one={ones[0][:8]},two={twos[1]}")
    assert [(one.repository, one.name) for one in both] == [("two", name) for name in twos]
    assert {one.plan.repos[0].git_hash for one in both} == {ones[0]}
    with pytest.raises(UsageError, match="are the same commit of one"):
        found(f"one={ones[0][:8]},two={twos[0]}")


def test_a_merge_and_its_pull_request_are_named() -> None:
    squashed = revision("c" * 40, "faster (#12)") | {"pull_request": "#12", "is_merge": False}
    text = "\n".join(bisect_report(answer("found", culprit=squashed)))
    assert "is      pull request #12" in text
    merged = revision("c" * 40) | {"pull_request": "g/p!7", "is_merge": True, "branch": "x"}
    text = "\n".join(bisect_report(answer("found", culprit=merged)))
    assert "merges  merge request g/p!7, branch x; --resume --into_merges" in text
    inside = answer("not_reproduced", culprit=None, inside=None)
    text = "\n".join(bisect_report(answer("found", culprit=merged, inside=inside)))
    assert "branch x\n" in text
    assert "Inside the merge:\nNot reproduced" in text


@pytest.mark.parametrize(
    "flag", ["--benchmark_num_trials=2", "--precision=1%", "--max_reruns=1", "--execution_id=x"]
)
def test_flags_that_say_how_often_are_refused(flag: str) -> None:
    with pytest.raises(UsageError, match="perfrun bisect"):
        parse_bisect([METHOD, REPOS, "--good=abcd", "--bad=abce", flag])


@pytest.mark.parametrize("text", ["nothash", "main", "abc", "a" * 65, "v1.2", "abcd\nx"])
@pytest.mark.parametrize("flag", ["--good", "--bad"])
def test_what_cannot_be_a_hash_is_refused_before_anything_is_fetched(flag: str, text: str) -> None:
    other = {"--good": "--bad=abcd", "--bad": "--good=abcd"}[flag]
    with pytest.raises(UsageError, match=f"{flag}: .* is not a commit hash") as refused:
        parse_bisect([METHOD, REPOS, f"{flag}={text}", other])
    assert len(str(refused.value).splitlines()) == 1


def test_a_hash_may_be_short_or_in_capitals() -> None:
    assert parse_bisect([METHOD, REPOS, "--good=ABCD", f"--bad={'b' * 40}"]).ends.good == "ABCD"


def test_what_a_search_may_cost_is_said_before_it() -> None:
    estimate = {"trials_clear": 44, "trials_noisy": 240, "trials_most": 1200, "trial_s": 3.0}
    assert estimate_line(estimate) == (
        "expected: 44 trials (2 min) where the change is clear, 240 trials (12 min) where a "
        "trial's noise is as large as the change, at most 1,200 trials (60 min)"
    )
    assert estimate_line({**estimate, "trial_s": None}).endswith("at most 1,200 trials")

"""`perfrun bisect GOOD BAD`: the search that two results stand for, and what refuses one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfrun.changes.bisect import BisectPlan, parse_bisect
from perfrun.errors import UsageError
from tests.summaries import summary, write
from tests.worlds import written_here

METHOD = "pkg.cases.Cases.spin"
GOOD = {"one": "1" * 40, "two": "2" * 40}
BAD = {"one": "1" * 40, "two": "3" * 40}
Search = Callable[..., BisectPlan]


def result(name: str, commits: dict[str, str], **facts: Any) -> dict[str, Any]:
    own = {"git": facts.pop("git", None), "env": facts.pop("env", {})}
    document = summary(name=name, commits=commits, **facts)
    checkouts = [
        {"directory": name, "url": f"file:///r/{name}.git", "git_hash": commit, "asked_ref": "main"}
        for name, commit in commits.items()
    ]
    document["perfrun"] |= own | {"git": checkouts if own["git"] is None else own["git"]}
    document["perfrun"]["environment"]["python"]["executable"] = "/usr/bin/python3"
    return document


@pytest.fixture
def search(tmp_path: Path) -> Search:
    """Parse the command between two results of the workspace."""

    def parsed(
        good: dict[str, Any], bad: dict[str, Any], *words: str, own: bool = True
    ) -> BisectPlan:
        if not (tmp_path / "output").exists():
            write(tmp_path / "output", good, bad)
        if own:
            written_here(tmp_path)
        ends = [str(tmp_path / "output" / name) for name in ("good-0", "bad-1")]
        return parse_bisect([*ends, f"--workspace={tmp_path}", *words])

    return parsed


def test_method_commits_flags_and_variables_are_those_on_record(search: Search) -> None:
    facts: dict[str, Any] = {
        "flags": {"python_path": "one,two"},
        "env": {"A": "1"},
        "benchmark_flags": ["--size=2"],
    }
    good, bad = result("good", GOOD, **facts), result("bad", BAD, **facts)
    asked = search(good, bad, "--timeout", "300", "--metric=cpu_s", "--", "--more")
    assert [one.text for one in asked.plan.selectors] == [METHOD]
    assert (asked.ends.good, asked.ends.bad) == (f"two={'2' * 40}", f"two={'3' * 40}")
    repos = {one.directory: (one.url, one.git_hash) for one in asked.plan.repos}
    assert repos["one"] == ("file:///r/one.git", "1" * 40)
    assert (asked.plan.flags["python"], asked.plan.flags["python_path"]) == (
        "/usr/bin/python3",
        "one,two",
    )
    assert asked.words[-3:] == ("--", "--size=2", "--more")
    assert "--env=A=1" in asked.words
    assert (asked.metric, asked.plan.timeout_s) == ("cpu_s", 300.0)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"distributions": {"numpy": "2.3"}}, "numpy 2.2 -> 2.3; --allow_differences"),
        ({"env": {"A": "1"}}, "A (none) -> 1; --allow_differences"),
        ({"flags": {"python_path": "two"}}, "more than commits: --python_path; --allow_diff"),
        ({"benchmark_flags": ["--n=2"]}, "flags after -- (none) -> --n=2; --allow_differences"),
    ],
)
def test_what_differs_in_more_than_commits_is_refused_unless_told(
    search: Search, facts: dict[str, Any], said: str
) -> None:
    good, bad = result("good", GOOD), result("bad", BAD, **facts)
    with pytest.raises(UsageError) as refused:
        search(good, bad)
    assert said in refused.value.line
    assert search(good, bad, "--allow_differences").ends.bad == f"two={'3' * 40}"


def test_nothing_that_a_stranger_names_is_run_without_consent(search: Search) -> None:
    good, bad = result("good", GOOD), result("bad", BAD)
    with pytest.raises(
        UsageError, match="imported, not run in this workspace: to search its commits is"
    ):
        search(good, bad, own=False)
    with pytest.raises(UsageError, match="no run of this workspace has used"):
        search(good, bad, "--trust=imported", own=False)
    assert search(good, bad, "--trust=all", own=False).ends.good == f"two={'2' * 40}"


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (result("good", BAD), result("bad", BAD), "are of the same commits (one 111111111111, two"),
        (result("good", {}), result("bad", {}), "record no repository"),
        (result("good", GOOD), result("bad", {"two": "3"}), "not have the same repositories: one"),
        (
            result("good", GOOD, method="a.b.C.d"),
            result("bad", BAD),
            "a search is about one method",
        ),
        (result("good", GOOD), result("bad", BAD, git=[{"directory": "x"}]), "was no git checkout"),
        (
            result("good", GOOD, method="a.b.C.d,e.f.G.h"),
            result("bad", BAD, method="a.b.C.d,e.f.G.h"),
            "GOOD and BAD are of a.b.C.d,e.f.G.h, which is searched",
        ),
        (
            result("good", {"a=1,two": "2" * 40}),
            result("bad", {"a=1,two": "3" * 40}),
            "is not a git url",
        ),
        (result("good", GOOD), result("bad", {**BAD, "two": "main"}), "is not a commit hash"),
    ],
)
def test_results_between_which_nothing_can_be_searched_are_refused(
    search: Search, good: dict[str, Any], bad: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        search(good, bad, "--trust=all")
    assert said in refused.value.line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["one"], "name two results, GOOD and BAD, or say what is searched by flags (one is no"),
        (["one", "two", "three"], "name two results"),
        (["one", "two", "--good=abcd"], "--good: GOOD and BAD, two results, say what is searched"),
        (["one", "two", "--pythons=a,b"], "--pythons: GOOD and BAD"),
        (["one", "two", "--git_repos=file:///r/one.git"], "say which commits are searched"),
        (["one", "two"], "is neither a folder nor"),
        (["--trust=all", "--images=a,b"], "--trust is about two results"),
        (["--allow_differences", "--images=a,b"], "--allow_differences is about two results"),
    ],
)
def test_wrong_words_get_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_bisect([*words, f"--workspace={tmp_path}"])
    assert said in refused.value.line

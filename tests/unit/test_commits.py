"""The commits between two, of real repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.commits import commits_between
from perfrun.errors import UsageError, WorkspaceError
from perfrun.plan import RepoSpec, parse_repos
from tests.gitrepos import git, make_repository


@pytest.fixture
def hashes(tmp_path: Path) -> list[str]:
    return make_repository(tmp_path / "a repo", [{"x": str(number)} for number in range(6)])


@pytest.fixture
def repo(tmp_path: Path, hashes: list[str]) -> RepoSpec:
    assert hashes
    return parse_repos(f"{tmp_path / 'a repo'};main")[0]


def between(tmp_path: Path, repo: RepoSpec, good: str, bad: str) -> list[str]:
    found = commits_between(tmp_path / "ws", repo, good, bad, lambda _: None)
    return [commit.git_hash for commit in found]


def test_good_comes_first_and_bad_last(tmp_path: Path, repo: RepoSpec, hashes: list[str]) -> None:
    assert between(tmp_path, repo, hashes[1], hashes[4]) == hashes[1:5]
    assert between(tmp_path, repo, hashes[1][:8], hashes[2][:8]) == hashes[1:3]


def test_a_merge_is_one_step(tmp_path: Path, repo: RepoSpec, hashes: list[str]) -> None:
    folder = tmp_path / "a repo"
    git(folder, "checkout", "-q", "-b", "side", hashes[3])
    (folder / "y").write_text("side", encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "on the side")
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", 'a merge: "quoted" \\ and é', "side")
    merge = git(folder, "rev-parse", "HEAD")
    found = commits_between(tmp_path / "ws", repo, hashes[2], merge, lambda _: None)
    assert [commit.git_hash for commit in found] == [*hashes[2:], merge]
    assert found[-1].subject == 'a merge: "quoted" \\ and é'
    assert found[-1].author == "A <a@example.com>"
    assert found[-1].date.startswith("20")


def test_ends_that_cannot_be_are_said(tmp_path: Path, repo: RepoSpec, hashes: list[str]) -> None:
    with pytest.raises(UsageError, match="the two are swapped"):
        between(tmp_path, repo, hashes[3], hashes[1])
    with pytest.raises(UsageError, match="the same commit"):
        between(tmp_path, repo, hashes[3], hashes[3][:9])
    with pytest.raises(WorkspaceError, match="no commit on any branch"):
        between(tmp_path, repo, "abcdefabcdef", hashes[3])
    folder = tmp_path / "a repo"
    git(folder, "checkout", "-q", "--orphan", "other")
    git(folder, "commit", "-q", "-m", "no parent")
    orphan = git(folder, "rev-parse", "HEAD")
    with pytest.raises(UsageError, match="does not descend") as error:
        between(tmp_path, repo, hashes[0], orphan)
    assert "swapped" not in str(error.value)


def test_a_history_that_is_here_needs_no_remote(
    tmp_path: Path, repo: RepoSpec, hashes: list[str]
) -> None:
    between(tmp_path, repo, hashes[0], hashes[5])
    (tmp_path / "a repo").rename(tmp_path / "gone")
    assert between(tmp_path, repo, hashes[1], hashes[4]) == hashes[1:5]

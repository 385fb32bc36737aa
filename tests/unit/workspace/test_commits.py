"""The commits between two, of real repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfrun.errors import UsageError, WorkspaceError
from perfrun.options.plan import RepoSpec, parse_repos
from perfrun.workspace.commits import commits_between, commits_inside, parse_log
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
    side = git(folder, "rev-parse", "side")
    assert found[-1].parents == (hashes[5], side)
    assert (found[-1].is_merge, found[-2].is_merge) == (True, False)
    assert found[-1].committed == float(git(folder, "log", "-1", "--format=%ct"))
    [inside] = commits_inside(tmp_path / "ws", repo, merge, lambda _: None)
    assert [commit.git_hash for commit in inside] == [hashes[3], side]
    assert commits_inside(tmp_path / "ws", repo, hashes[5], lambda _: None) == ()


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


def test_a_subject_is_the_first_paragraph_as_git_itself_shows_it(
    tmp_path: Path, repo: RepoSpec, hashes: list[str]
) -> None:
    folder = tmp_path / "a repo"
    git(folder, "commit", "-q", "--allow-empty", "-m", "one\ntwo  \n\nbody", "--cleanup=verbatim")
    tip = git(folder, "rev-parse", "HEAD")
    found = commits_between(tmp_path / "ws", repo, hashes[5], tip, lambda _: None)[-1]
    shown = git(folder, "log", "-1", "--format=%an <%ae>|%aI|%s").split("|")
    assert [found.author, found.date, found.subject] == shown


def test_variables_of_a_hook_that_started_us_are_not_obeyed_and_stay(
    tmp_path: Path, repo: RepoSpec, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert between(tmp_path, repo, hashes[1], hashes[4]) == hashes[1:5]
    assert os.environ["GIT_DIR"] == str(tmp_path / "elsewhere")


def test_a_repository_of_long_hashes_has_a_history_too(tmp_path: Path) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", "--object-format=sha256")
    hashes = []
    for number in range(3):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"change {number}")
        hashes.append(git(folder, "rev-parse", "HEAD"))
    [repo] = parse_repos(f"{folder};main;{hashes[2]}")  # a hash says which kind it is
    found = commits_between(tmp_path / "ws", repo, hashes[0], hashes[2], lambda _: None)
    assert [one.git_hash for one in found] == hashes
    assert [one.subject for one in found] == ["change 0", "change 1", "change 2"]


def test_a_commit_without_a_subject_is_in_the_log_too() -> None:
    log = b"a\0A <a>\x002026\0subject\x001767225600\0p q\0subject\n\nSee merge request !7\n\0"
    log += b"b\0B <b>\x002026\0\x00-1\0\0\0"
    assert [(one.git_hash, one.subject) for one in parse_log(log)] == [("a", "subject"), ("b", "")]
    assert [(one.committed, one.parents) for one in parse_log(log)] == [
        (1767225600.0, ("p", "q")),
        (0.0, ()),
    ]
    assert parse_log(log)[0].pull_request == "!7"
    assert parse_log(b"") == ()

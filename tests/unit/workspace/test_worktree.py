"""The state of a checkout, compared with GitPython's, which asks git in other ways."""

from __future__ import annotations

from pathlib import Path

import git as gitpython
import pytest

from perfrun.workspace.worktree import commit_info, read_state
from tests.gitrepos import git, make_repository

FILES = {"kept": "1", "edited": "1", "removed": "1", "a folder/é": "1", ".gitignore": "ignored\n"}


@pytest.mark.parametrize("detached", [False, True])
def test_commit_branch_remote_and_edits_are_gitpythons(tmp_path: Path, detached: bool) -> None:
    folder = tmp_path / "a repo"
    make_repository(folder, [FILES, {"kept": "2"}])
    git(folder, "remote", "add", "origin", "https://host/repo.git")
    if detached:
        git(folder, "checkout", "-q", "--detach", "HEAD~1")
    (folder / "edited").write_text("2", encoding="utf-8")
    (folder / "removed").unlink()
    (folder / "new").write_text("new", encoding="utf-8")
    (folder / "ignored").write_text("nobody asks", encoding="utf-8")
    (folder / "a folder/é").write_text("staged", encoding="utf-8")
    git(folder, "add", "a folder")
    found, info = read_state(folder), commit_info(folder)
    with gitpython.Repo(folder) as theirs:
        assert found.git_hash == info["hash"] == theirs.head.commit.hexsha
        branch = "HEAD" if theirs.head.is_detached else theirs.active_branch.name
        assert found.branch == info["branch"] == branch
        assert info["url"] == theirs.remotes.origin.url
        edited = {str(diff.a_path) for diff in theirs.head.commit.diff(None)}
        assert {c.path for c in found.changes} == edited | set(theirs.untracked_files)
        assert theirs.is_dirty()
    assert {c.path for c in found.changes} == {"edited", "removed", "new", "a folder/é"}

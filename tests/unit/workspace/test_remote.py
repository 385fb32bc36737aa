"""The commit that a branch or tag of a remote has, without fetching anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.errors import WorkspaceError
from perfrun.options.plan import parse_repos
from perfrun.workspace.remote import tip_of
from tests.gitrepos import git, make_repository


def test_the_tip_of_a_branch_a_tag_and_the_default(tmp_path: Path) -> None:
    first, second = make_repository(tmp_path / "bench", [{"a": "1"}, {"a": "2"}])
    git(tmp_path / "bench", "tag", "-a", "-m", "note", "v1", first)  # an object of its own
    git(tmp_path / "bench", "tag", "light", first)
    url = (tmp_path / "bench").as_uri()
    wanted = {"": second, ";main": second, ";v1": first, ";light": first, ";refs/tags/v1": first}
    for more, commit in wanted.items():
        (repo,) = parse_repos(url + more)
        assert tip_of(repo) == commit, more
    for item in (f"{url};other", (tmp_path / "nothing").as_uri()):
        (repo,) = parse_repos(item)
        with pytest.raises(WorkspaceError, match=r"is not there|not"):
            tip_of(repo)

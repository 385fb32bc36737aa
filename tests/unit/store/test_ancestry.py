"""Histories in the order of their commits, asked of real repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gitrepos import git, make_repository
from trial_documents import perfrun_summary
from trial_documents import write_summary as put

from perfrun.options.plan import parse_repos
from perfrun.options.store_address import parse_address
from perfrun.store.ancestry import positions
from perfrun.store.index import open_store
from perfrun.workspace.cache import GitCache
from perfrun.workspace.checkouts import checked_out


def repository(folder: Path) -> list[str]:
    return make_repository(folder, [{"a.py": str(number)} for number in range(4)])


def nights(workspace: Path, *commits: dict[str, str], url: str = "https://host/models.git") -> None:
    """A trial a night, each at the commits that are given by the checkout's folder."""
    for number, pinned in enumerate(commits, 1):
        checkouts = [
            {"directory": name, "git_hash": commit, "url": url} for name, commit in pinned.items()
        ]
        document = perfrun_summary(number, wall_time=float(number), own={"git": checkouts})
        document["benchmark_info"]["site_package_info"] = {}
        put(workspace / "output", document)


def order(workspace: Path, **clones: Path) -> list[float]:
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
        (series,) = store.series(metric="wall_time", clones=clones)
    return [point.value for point in series.points]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work space"
    folder.mkdir()
    return folder


def replayed(hashes: list[str]) -> list[dict[str, str]]:
    return [{"models": hashes[i]} for i in (3, 0, 2, 1)]


def test_nights_replayed_later_stand_where_their_commits_do(
    workspace: Path, tmp_path: Path
) -> None:
    hashes = repository(tmp_path / "models")
    nights(workspace, *replayed(hashes))
    assert order(workspace) == [1, 2, 3, 4]  # nobody knows the history
    assert order(workspace, models=tmp_path / "models") == [2, 4, 3, 1]


def fetched(workspace: Path, url: str) -> None:
    """Let perfrun itself fetch what the url names today, as a run does."""
    with checked_out(parse_repos(url), workspace=workspace, use_cached=False):
        pass


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_repository_of_this_machine_that_was_fetched_here_is_asked_itself(
    workspace: Path, tmp_path: Path, form: str
) -> None:
    hashes = repository(tmp_path / "models")
    git(tmp_path, "clone", "-q", "--bare", "models", "models.git")
    url = form.format(tmp_path / "models.git")
    nights(workspace, *replayed(hashes), url=url)
    assert order(workspace) == [1, 2, 3, 4]  # a summary alone leads git nowhere
    fetched(workspace, url)  # its newest commit alone: the cache cannot tell
    assert order(workspace) == [2, 4, 3, 1]


def test_the_cache_that_perfrun_has_of_a_url_is_asked(workspace: Path, tmp_path: Path) -> None:
    hashes = repository(tmp_path / "models")
    url = f"file://{tmp_path / 'models'}"
    (repo,) = parse_repos(url)
    GitCache(workspace, repo, print).fetch_history()
    (tmp_path / "models").rename(tmp_path / "moved away")
    nights(workspace, *replayed(hashes), url=url)
    assert order(workspace) == [2, 4, 3, 1]


def test_a_shallow_clone_or_one_that_lacks_a_commit_cannot_tell(
    workspace: Path, tmp_path: Path
) -> None:
    hashes = repository(tmp_path / "models")
    url = f"file://{tmp_path / 'models'}"
    git(tmp_path, "clone", "-q", "--depth=1", url, "shallow")
    assert positions(tmp_path / "shallow", hashes[3:]) == {}
    assert positions(tmp_path / "models", [*hashes, "f" * 40]) == {}
    assert positions(tmp_path / "models", ["--all", "-n1"]) == {}
    assert positions(tmp_path / "nowhere", hashes) == {}
    assert positions(tmp_path, hashes) == {}
    nights(workspace, *replayed(hashes))
    assert order(workspace, models=tmp_path / "shallow") == [1, 2, 3, 4]


def test_with_two_repositories_who_is_ahead_in_one_and_behind_in_none_comes_later(
    workspace: Path, tmp_path: Path
) -> None:
    one, two = (
        repository(tmp_path / "models"),
        make_repository(tmp_path / "lib", [{"b.py": str(number)} for number in range(9)]),
    )
    pairs = [(1, 8), (0, 0), (1, 0), (1, 3)]
    nights(workspace, *({"models": one[i], "lib": two[j]} for i, j in pairs))
    clones: Any = {"models": tmp_path / "models", "lib": tmp_path / "lib"}
    assert order(workspace, **clones) == [2, 3, 4, 1]


def test_trials_at_the_same_commit_stay_in_the_order_of_time(
    workspace: Path, tmp_path: Path
) -> None:
    hashes = repository(tmp_path / "models")
    pinned = [{"models": hashes[i]} for i in (1, 0, 1, 0)]
    nights(workspace, *pinned)
    assert order(workspace, models=tmp_path / "models") == [2, 4, 1, 3]


def test_a_merge_comes_after_both_of_its_sides(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    first, *_ = repository(folder)
    git(folder, "checkout", "-q", "-b", "side", first)
    (folder / "side.py").touch()
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "side")
    side = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge", "side")
    merge = git(folder, "rev-parse", "HEAD")
    tip = git(folder, "rev-parse", "HEAD^1")
    found = positions(folder, [merge, side, tip, first])
    assert found[first] < found[side] < found[merge]
    assert found[first] < found[tip] < found[merge]

"""Checkouts over file://, one process: what is asked, what is got, what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gitrepos import git, make_repository

from perfrun.errors import WorkspaceError
from perfrun.options.plan import RepoSpec, parse_repos
from perfrun.workspace import worktree
from perfrun.workspace.checkouts import Checkout, checked_out
from perfrun.workspace.git import cause_line
from perfrun.workspace.worktree import harness_git_info

Get = Callable[..., Checkout]


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A repository of three commits on main, a branch `dev` with one more, and two tags."""
    folder = tmp_path / "remotes" / "models.git"
    hashes = make_repository(
        folder,
        [
            {"a.py": "one\n", ".gitignore": "*.so\n"},
            {"a.py": "two\n", "sub/b.py": "b\n"},
            {"a.py": "three\n"},
        ],
    )
    git(folder, "tag", "light", hashes[0])
    git(folder, "tag", "-a", "-m", "annotated", "v1.0", hashes[1])
    git(folder, "checkout", "-q", "-b", "dev", hashes[1])
    (folder / "dev.py").write_text("dev\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "dev")
    git(folder, "update-ref", "refs/pull/1/head", "HEAD")
    git(folder, "checkout", "-q", "main")
    return folder


@pytest.fixture
def hashes(remote: Path) -> list[str]:
    return git(remote, "rev-list", "--reverse", "main").split()


@pytest.fixture
def get(tmp_path: Path, remote: Path) -> Get:
    def get(
        rest: str = "", *, url: str = f"file://{remote}", use_cached: bool = False, **more: Any
    ) -> Checkout:
        repos = parse_repos(url + rest)
        with checked_out(
            repos, workspace=tmp_path / "ws", use_cached=use_cached, **more
        ) as checkouts:
            return checkouts[0]

    return get


def at(checkout: Checkout) -> tuple[str, str]:
    """Return what git itself says is checked out, after comparing it with what is reported."""
    branch = git(checkout.path, "rev-parse", "--abbrev-ref", "HEAD")
    git_hash = git(checkout.path, "rev-parse", "HEAD")
    assert (checkout.branch, checkout.git_hash) == (branch, git_hash)
    assert git(checkout.path, "status", "--porcelain") == ""
    return branch, git_hash


# What is asked


def test_a_full_hash_is_fetched_alone_and_is_on_the_default_branch(
    get: Get, hashes: list[str]
) -> None:
    checkout = get(f";;{hashes[1]}")
    assert at(checkout) == ("main", hashes[1])
    assert git(checkout.path, "rev-list", "--count", "HEAD") == "1"
    assert (checkout.path / "a.py").read_text() == "two\n"
    assert checkout.fetched
    assert not checkout.dirty
    assert checkout.diff_sha256 is None
    assert (checkout.asked_ref, checkout.asked_hash) == (None, hashes[1])


def test_branch_and_hash_are_on_that_local_branch(get: Get, hashes: list[str]) -> None:
    assert at(get(f";main;{hashes[0]}")) == ("main", hashes[0])
    assert at(get(f";dev;{hashes[1]}")) == ("dev", hashes[1])
    assert at(get(f";refs/heads/dev;{hashes[0]}")) == ("dev", hashes[0])


def test_a_branch_is_its_newest_commit(get: Get, remote: Path) -> None:
    assert at(get(";dev")) == ("dev", git(remote, "rev-parse", "dev"))


def test_what_was_compiled_from_one_commit_is_not_run_in_another(get: Get, tmp_path: Path) -> None:
    """Same size, same second: all that Python compares. A compiled file in a commit stays."""
    remote = tmp_path / "remotes" / "timed.git"
    kept = {"kept/__pycache__/kept.pyc": "bytes\n"}
    texts = [{"timed.py": "wall_time = 0.25\n", **kept}, {"timed.py": "wall_time = 0.75\n"}]
    hashes = make_repository(remote, texts)
    asks = (sys.executable, "-c", "import timed; print(timed.wall_time)")
    for commit, expected in zip(hashes, ("0.25", "0.75"), strict=True):
        folder = get(f";;{commit}", url=f"file://{remote}").path
        os.utime(folder / "timed.py", (1e9, 1e9))
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            asks, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == expected + "\n"
        assert list(folder.glob("__pycache__/timed.*.pyc"))
        assert (folder / "kept/__pycache__/kept.pyc").exists()


def test_nothing_is_the_default_branch_whatever_its_name(get: Get, remote: Path) -> None:
    git(remote, "branch", "-q", "-m", "main", "trunk/über")
    assert at(get()) == ("trunk/über", git(remote, "rev-parse", "HEAD"))


def test_a_branch_that_moved_is_followed_and_one_that_was_rewritten_too(
    get: Get, remote: Path, hashes: list[str]
) -> None:
    assert at(get(";main")) == ("main", hashes[2])
    git(remote, "commit", "-q", "--allow-empty", "-m", "four")
    assert at(get(";main")) == ("main", git(remote, "rev-parse", "main"))
    git(remote, "reset", "-q", "--hard", hashes[0])
    assert at(get(";main")) == ("main", hashes[0])


@pytest.mark.parametrize("ref", ["light", "v1.0", "refs/tags/v1.0", "refs/pull/1/head"])
def test_a_tag_or_full_ref_is_detached_at_its_commit(get: Get, remote: Path, ref: str) -> None:
    assert at(get(f";{ref}")) == ("HEAD", git(remote, "rev-parse", f"{ref}^{{commit}}"))


def test_the_hash_of_an_annotated_tag_stands_for_its_commit(
    get: Get, remote: Path, hashes: list[str]
) -> None:
    tag = git(remote, "rev-parse", "v1.0")
    assert tag != hashes[1]
    checkout = get(f";;{tag}")
    assert at(checkout) == ("main", hashes[1])
    remote.rename(remote.with_name("gone"))
    assert not get(f";;{tag}").fetched
    shutil.rmtree(checkout.path)
    assert at(get(f";;{tag}")) == ("main", hashes[1])
    assert get(f";;{tag}", use_cached=True).git_hash == hashes[1]


def test_a_branch_wins_over_a_tag_of_its_name(get: Get, remote: Path, hashes: list[str]) -> None:
    git(remote, "tag", "dev", hashes[0])
    checkout = get(";dev")
    assert checkout.git_hash == git(remote, "rev-parse", "refs/heads/dev")
    assert checkout.branch == "dev"


def test_a_short_hash_is_resolved_and_remembered(get: Get, remote: Path, hashes: list[str]) -> None:
    assert at(get(f";;{hashes[1][:7]}")) == ("main", hashes[1])
    assert at(get(f";;{hashes[0]}")) == ("main", hashes[0])
    remote.rename(remote.with_name("gone"))
    again = get(f";;{hashes[1][:7]}")
    assert at(again) == ("main", hashes[1])
    assert not again.fetched


def test_a_short_hash_of_two_commits_is_refused(get: Get, remote: Path) -> None:
    seen: dict[str, str] = {}
    stream = "".join(
        f"commit refs/heads/many\ncommitter A <a@b> {n} +0000\ndata 1\nx\n" for n in range(600)
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=remote, input=stream.encode(), check=True)
    for git_hash in git(remote, "rev-list", "many").split():
        if git_hash[:4] in seen:
            break
        seen[git_hash[:4]] = git_hash
    else:
        pytest.fail("no two commits begin alike; make more")
    with pytest.raises(WorkspaceError, match="more than one commit"):
        get(f";;{git_hash[:4]}")


def test_a_pin_overrides_the_branch(get: Get, hashes: list[str]) -> None:
    checkout = get(";main", pinned={"models": hashes[0]})
    assert at(checkout) == ("main", hashes[0])
    assert (checkout.asked_ref, checkout.asked_hash) == ("main", None)


def test_several_repositories_come_back_in_the_order_given(tmp_path: Path, remote: Path) -> None:
    other = tmp_path / "aaa"
    make_repository(other, [{"x": "x"}])
    repos = parse_repos(f"file://{remote},file://{other}")
    with checked_out(repos, workspace=tmp_path / "ws", use_cached=False) as checkouts:
        assert [checkout.directory for checkout in checkouts] == ["models", "aaa"]
        assert [at(checkout)[0] for checkout in checkouts] == ["main", "main"]


def test_no_repository_makes_no_folder(tmp_path: Path) -> None:
    with checked_out([], workspace=tmp_path / "ws", use_cached=False) as checkouts:
        assert checkouts == ()
    assert not (tmp_path / "ws").exists()


@pytest.mark.parametrize("name", ["a b", "it's", 'say "x"', "new\nline", "ä€", "-dash", "$(id)"])
def test_hostile_workspace_names_work(
    tmp_path: Path, remote: Path, hashes: list[str], name: str
) -> None:
    for git_hash in (hashes[0], hashes[1]):
        repos = parse_repos(f"file://{remote};;{git_hash}")
        with checked_out(repos, workspace=tmp_path / name, use_cached=False) as (checkout,):
            assert at(checkout) == ("main", git_hash)
            assert checkout.path == tmp_path / name / "site-packages" / "models"


def test_a_relative_workspace_gives_absolute_paths(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with checked_out(parse_repos(f"file://{remote}"), workspace=Path("ws"), use_cached=False) as (
        checkout,
    ):
        assert checkout.path == tmp_path / "ws" / "site-packages" / "models"


# No network


def test_a_second_run_of_a_pin_needs_no_remote(get: Get, remote: Path, hashes: list[str]) -> None:
    get(f";main;{hashes[0]}")
    get(f";main;{hashes[1]}")
    remote.rename(remote.with_name("gone"))
    for rest in (f";main;{hashes[1]}", f";main;{hashes[0]}", f";;{hashes[1]}"):
        checkout = get(rest)
        assert at(checkout)[1] == rest[-40:]
        assert not checkout.fetched


def test_a_second_run_of_a_pin_changes_no_file(get: Get, tmp_path: Path, hashes: list[str]) -> None:
    def listing() -> dict[str, tuple[int, int]]:
        paths = (tmp_path / "ws").rglob("*")
        return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in paths}

    get(f";;{hashes[1]}")
    before = listing()
    get(f";;{hashes[1]}")
    assert listing() == before


def test_a_removed_cache_is_fetched_again(get: Get, tmp_path: Path, hashes: list[str]) -> None:
    get(f";;{hashes[1]}")
    shutil.rmtree(tmp_path / "ws" / "git-cache")
    assert at(get(f";;{hashes[1]}")) == ("main", hashes[1])
    shutil.rmtree(tmp_path / "ws" / "git-cache")
    assert at(get(f";;{hashes[0]}")) == ("main", hashes[0])


# Local work is never thrown away


def test_edits_stop_the_run_and_stay(get: Get, hashes: list[str]) -> None:
    path = get(f";;{hashes[1]}").path
    (path / "a.py").write_text("edited\n")
    for name in ("new 1.py", "new2.py", "new3.py"):
        (path / name).write_text("new\n")
    for rest in (f";;{hashes[1]}", f";;{hashes[0]}", ";dev", ""):
        with pytest.raises(WorkspaceError) as told:
            get(rest)
        assert str(told.value) == (
            "site-packages/models has local edits ('a.py', 'new 1.py', 'new2.py' and 1 more); "
            "commit and push them, move them away, or use them as they are with "
            "--use_cached_site_packages"
        )
    assert (path / "a.py").read_text() == "edited\n"


def test_edits_are_used_and_recorded_with_use_cached(get: Get, hashes: list[str]) -> None:
    path = get(f";;{hashes[1]}").path
    (path / "a.py").write_text("edited\n")
    for rest in (f";;{hashes[1]}", f";;{hashes[1][:6]}", ";main", ""):
        checkout = get(rest, use_cached=True)
        assert (checkout.git_hash, checkout.dirty, checkout.fetched) == (hashes[1], True, False)
        assert checkout.diff_sha256 is not None
    with pytest.raises(WorkspaceError, match=rf"leave the hash out, for it is at {hashes[1][:12]}"):
        get(f";;{hashes[0]}", use_cached=True)
    assert (path / "a.py").read_text() == "edited\n"


def test_the_diff_hash_tells_edits_apart_and_nothing_else(get: Get, hashes: list[str]) -> None:
    path = get(f";;{hashes[1]}").path

    def digest() -> str | None:
        return get(use_cached=True).diff_sha256

    seen = {digest()}
    assert seen == {None}

    def is_new() -> None:
        found = digest()
        assert found not in seen
        assert digest() == found
        seen.add(found)

    (path / "a.py").write_text("edited\n")
    is_new()
    git(path, "add", "a.py")
    assert digest() in seen  # staged or not: the same files
    (path / "a.py").chmod(0o755)
    is_new()
    (path / "a.py").unlink()
    is_new()
    (path / "a.py").symlink_to("sub/b.py")
    is_new()
    (path / "new\nline ä.py").write_bytes(b"\xff\x00")
    is_new()
    (path / "nested").mkdir()
    make_repository(path / "nested" / "repo", [{"x": "1"}])
    is_new()
    (path / "nested" / "repo" / "x").write_text("2")
    is_new()


def test_bytecode_and_ignored_files_are_no_edits(get: Get, remote: Path, hashes: list[str]) -> None:
    cache = remote / "sub" / "__pycache__"
    cache.mkdir()
    (cache / "b.cpython-311.pyc").write_bytes(b"old")
    git(remote, "add", "-A")
    git(remote, "commit", "-q", "-m", "somebody committed bytecode")
    tracked = git(remote, "rev-parse", "HEAD")
    path = get(f";;{tracked}").path
    (path / "sub" / "__pycache__" / "b.cpython-311.pyc").write_bytes(b"newer")
    (path / "__pycache__").mkdir()
    (path / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    (path / "built.so").write_bytes(b"x")
    checkout = get(f";;{tracked}")
    assert (checkout.dirty, checkout.diff_sha256) == (False, None)
    assert get(f";;{hashes[1]}").git_hash == hashes[1]
    assert (path / "built.so").read_bytes() == b"x"


def test_line_ends_that_attributes_forbid_are_no_edits_in_a_fresh_checkout(
    get: Get, tmp_path: Path
) -> None:
    remote = tmp_path / "remotes" / "windows"
    made = make_repository(remote, [{"a.txt": "one\r\n"}])
    (remote / ".gitattributes").write_text("*.txt text\n")
    git(remote, "add", ".gitattributes")
    git(remote, "commit", "-q", "-m", "attributes")
    made.append(git(remote, "rev-parse", "HEAD"))
    git(remote, "rm", "-q", "-f", ".gitattributes")
    (remote / "a.txt").write_bytes(b"two\r\n")
    git(remote, "add", "a.txt")
    git(remote, "commit", "-q", "-m", "two")
    made.append(git(remote, "rev-parse", "HEAD"))
    url = f"file://{remote}"
    file = get(f";;{made[1]}", url=url).path / "a.txt"
    file.touch()  # so that git reads it again, as it may by chance in any fresh checkout
    assert git(file.parent, "status", "--porcelain") == "M a.txt"
    assert not get(f";;{made[1]}", url=url).dirty
    assert file.read_bytes() == b"one\r\n"
    assert get(f";;{made[2]}", url=url).git_hash == made[2]
    assert file.read_bytes() == b"two\r\n"
    get(f";;{made[1]}", url=url)
    file.write_bytes(b"ONE\r\n")
    with pytest.raises(WorkspaceError, match=r"local edits \('a.txt'\)"):
        get(f";;{made[2]}", url=url)


def test_local_commits_stop_the_run_and_stay(get: Get, hashes: list[str]) -> None:
    path = get(f";main;{hashes[1]}").path
    (path / "a.py").write_text("mine\n")
    git(path, "commit", "-q", "-a", "-m", "mine")
    mine = git(path, "rev-parse", "HEAD")
    for rest in (f";main;{hashes[1]}", f";dev;{hashes[0]}", ""):
        with pytest.raises(WorkspaceError, match="has commits that are only there"):
            get(rest)
    git(path, "checkout", "-q", "--detach", hashes[1])
    with pytest.raises(WorkspaceError, match="has commits that are only there"):
        get(f";main;{hashes[0]}")
    assert git(path, "rev-parse", "main") == mine
    assert at(get(f";dev;{hashes[0]}")) == ("dev", hashes[0])
    assert git(path, "rev-parse", "main") == mine


def test_another_url_in_the_folder_is_refused_with_both_named(
    get: Get, tmp_path: Path, remote: Path
) -> None:
    get()
    other = tmp_path / "fork" / "models.git"
    shutil.copytree(remote, other)
    for use_cached in (False, True):
        with pytest.raises(WorkspaceError) as told:
            get(url=f"file://{other}", use_cached=use_cached)
        assert str(told.value) == (
            f"site-packages/models is a checkout of file://{remote}, not of file://{other}; "
            "move it away"
        )


def test_a_folder_that_is_no_checkout_is_used_only_with_use_cached(
    get: Get, tmp_path: Path, hashes: list[str]
) -> None:
    folder = tmp_path / "ws" / "site-packages" / "models"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("mine\n")
    with pytest.raises(WorkspaceError, match="is not a git checkout; move it away, or use it"):
        get()
    with pytest.raises(WorkspaceError, match=f"cannot be at {hashes[0]}"):
        get(f";;{hashes[0]}", use_cached=True)
    checkout = get(use_cached=True)
    assert (checkout.url, checkout.branch, checkout.git_hash) == ("", "", "")
    assert checkout.dirty
    first = checkout.diff_sha256
    (folder / "mine.py").write_text("changed\n")
    assert first != get(use_cached=True).diff_sha256 is not None


def test_an_empty_folder_is_filled(get: Get, tmp_path: Path, hashes: list[str]) -> None:
    (tmp_path / "ws" / "site-packages" / "models").mkdir(parents=True)
    assert at(get(f";;{hashes[0]}")) == ("main", hashes[0])


def test_a_clean_clone_by_hand_is_moved_to_the_pin_and_keeps_its_history(
    get: Get, tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    folder = tmp_path / "ws" / "site-packages" / "models"
    folder.parent.mkdir(parents=True)
    git(folder.parent, "clone", "-q", f"file://{remote}", "models")
    assert at(get(f";main;{hashes[0]}")) == ("main", hashes[0])
    assert git(folder, "rev-list", "--count", "origin/main") == "3"


def test_a_clone_with_unpushed_commits_is_left_alone(
    get: Get, tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    folder = tmp_path / "ws" / "site-packages" / "models"
    folder.parent.mkdir(parents=True)
    git(folder.parent, "clone", "-q", f"file://{remote}", "models")
    git(folder, "commit", "-q", "--allow-empty", "-m", "mine")
    mine = git(folder, "rev-parse", "HEAD")
    with pytest.raises(WorkspaceError, match="only there"):
        get(f";;{hashes[0]}")
    assert git(folder, "rev-parse", "main") == mine
    assert get(use_cached=True).git_hash == mine


def test_a_link_and_a_linked_work_tree_are_read_but_not_changed(
    get: Get, tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    folder = tmp_path / "ws" / "site-packages" / "models"
    folder.parent.mkdir(parents=True)
    clone = tmp_path / "mine"
    git(tmp_path, "clone", "-q", f"file://{remote}", str(clone))
    folder.symlink_to(clone)
    with pytest.raises(WorkspaceError, match="is a link"):
        get(f";;{hashes[0]}")
    assert get(use_cached=True).git_hash == hashes[2]
    folder.unlink()
    git(clone, "worktree", "add", "-q", "-b", "side", str(folder), hashes[1])
    with pytest.raises(WorkspaceError, match="linked work tree"):
        get(f";;{hashes[0]}")
    checkout = get(use_cached=True)
    assert (checkout.branch, checkout.git_hash) == ("side", hashes[1])


# What cannot be had


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (";nowhere", "branch or tag 'nowhere' is not there"),
        (";refs/heads/nowhere", "branch or tag 'refs/heads/nowhere' is not there"),
        (";0123456789abcdef", "is not there; a commit hash goes into the third field"),
        (f";;{'1' * 40}", rf"commit {'1' * 40} is not there \(tried the commit alone, then all"),
        (f";main;{'1' * 40}", "then 64 commits of main, then all of main, then all branches"),
        (";;123456", "no commit on any branch or tag begins with 123456"),
    ],
)
def test_what_is_not_there_is_named(get: Get, remote: Path, rest: str, says: str) -> None:
    with pytest.raises(WorkspaceError, match=says) as told:
        get(rest)
    assert f"file://{remote}" in str(told.value)
    assert "\n" not in str(told.value)


def test_a_tag_of_a_file_is_not_a_commit(get: Get, remote: Path) -> None:
    git(remote, "tag", "blob", git(remote, "rev-parse", "HEAD:a.py"))
    with pytest.raises(WorkspaceError, match="refs/tags/blob is not a commit"):
        get(";blob")


def test_a_missing_remote_is_one_line_after_one_try(get: Get, tmp_path: Path) -> None:
    notes: list[str] = []
    with pytest.raises(WorkspaceError) as told:
        get(f";;{'1' * 40}", url=f"file://{tmp_path}/no/models", notify=notes.append)
    assert "does not appear to be a git repository" in str(told.value)
    assert "\n" not in str(told.value)
    assert len(notes) == 1


def test_an_empty_remote_is_named(get: Get, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    git(folder, "init", "-q")
    with pytest.raises(WorkspaceError, match="it has no commit"):
        get(url=f"file://{folder}")


def test_without_git_there_is_one_clear_line(
    get: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkspaceError, match=r"^git is not installed, or not on PATH"):
        get()


def test_a_workspace_that_cannot_be_made_is_one_clear_line(tmp_path: Path, remote: Path) -> None:
    (tmp_path / "file").touch()
    repos = parse_repos(f"file://{remote}")
    with (
        pytest.raises(WorkspaceError, match=r"cannot make the lock file .*Not a directory"),
        checked_out(repos, workspace=tmp_path / "file", use_cached=False),
    ):
        pass


def test_a_forbidden_protocol_is_refused_by_git_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GIT_ALLOW_PROTOCOL")
    owned = tmp_path / "owned"
    spec = RepoSpec(url=f"ext::sh -c touch% {owned}", directory="models")
    with (
        pytest.raises(WorkspaceError, match="transport 'ext' not allowed"),
        checked_out([spec], workspace=tmp_path / "ws", use_cached=False),
    ):
        pass
    assert not owned.exists()


# Nothing of the surroundings gets in


def test_git_variables_of_the_caller_do_not_lead_astray(
    get: Get, tmp_path: Path, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(tmp_path / "trap", [{"x": "1"}])
    trap = tmp_path / "trap" / ".git"
    before = sorted((p, p.lstat().st_mtime_ns) for p in trap.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setenv("GIT_DIR", str(trap))
        patch.setenv("GIT_WORK_TREE", str(tmp_path / "trap"))
        patch.setenv("GIT_INDEX_FILE", str(trap / "index"))
        patch.setenv("GIT_OBJECT_DIRECTORY", str(trap / "objects"))
        patch.setenv("GIT_COMMON_DIR", str(trap))
        patch.setenv("GIT_NAMESPACE", "trap")
        checkouts = [get(f";;{hashes[0]}"), get(";dev"), get(f";;{hashes[1]}")]
    assert at(checkouts[-1]) == ("main", hashes[1])
    assert sorted((p, p.lstat().st_mtime_ns) for p in trap.rglob("*")) == before


def test_hooks_and_line_ends_of_the_users_configuration_have_no_effect(
    get: Get, tmp_path: Path, remote: Path, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (remote / ".gitattributes").write_text("*.py text\n")
    git(remote, "add", "-A")
    git(remote, "commit", "-q", "-m", "attributes")
    hashes.append(git(remote, "rev-parse", "HEAD"))
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran-{name}'\n")
        (hooks / name).chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[core]\nhooksPath = {hooks}\nautocrlf = true\neol = crlf\n"
        "[fetch]\nprune = true\npruneTags = true\n"
        "[status]\nshowUntrackedFiles = no\n[checkout]\ndefaultRemote = x\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    path = get(f";;{hashes[0]}").path
    assert (path / "a.py").read_bytes() == b"one\n"
    assert (get(f";;{hashes[-1]}").path / "a.py").read_bytes() == b"three\n"
    get(";dev")
    assert not list(tmp_path.glob("ran-*"))
    (path / "new.py").touch()
    with pytest.raises(WorkspaceError, match=r"new\.py"):
        get(";dev")


def test_secrets_of_a_url_are_in_no_file_and_no_message(
    tmp_path: Path, remote: Path, hashes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # git is told by the user's own configuration where this host really is.
    url = "https://joe:s3cr3tpass@host.invalid/models.git?token=t0ps3cret"
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "file://{remote}"]\n\tinsteadOf = {url}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    spec = RepoSpec(url=url, directory="models", branch="main", git_hash=hashes[0])
    notes: list[str] = []
    workspace = tmp_path / "ws"
    for repo in (spec, replace(spec, git_hash=hashes[1][:8]), replace(spec, git_hash=None)):
        with checked_out([repo], workspace=workspace, use_cached=False, notify=notes.append) as (
            checkout,
        ):
            assert checkout.url == "https://***@host.invalid/models.git?token=***"
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    with (
        pytest.raises(WorkspaceError) as told,
        checked_out(
            [replace(spec, branch="x", git_hash=None)], workspace=workspace, use_cached=False
        ),
    ):
        pass
    everything = [str(told.value), *notes]
    for path in workspace.rglob("*"):
        everything.append(str(path))
        if path.is_file():
            everything.append(path.read_bytes().decode("latin-1"))
    assert len(everything) > 40
    for text in everything:
        assert "s3cr3tpass" not in text
        assert "t0ps3cret" not in text


# After a kill


def test_what_a_killed_fetch_left_is_cleared(get: Get, tmp_path: Path, hashes: list[str]) -> None:
    get(f";;{hashes[0]}")
    (cache,) = (tmp_path / "ws" / "git-cache").iterdir()
    (cache / "shallow.lock").touch()
    (cache / "refs" / "perfrun" / "tip.lock").touch()
    (cache / "objects" / "pack" / "tmp_pack_abc").write_bytes(b"half")
    assert at(get(f";;{hashes[1]}")) == ("main", hashes[1])
    assert not list(cache.rglob("*.lock"))
    assert not list(cache.rglob("tmp_pack*"))


def test_a_half_made_cache_and_checkout_are_made_again(
    get: Get, tmp_path: Path, hashes: list[str]
) -> None:
    get(f";;{hashes[0]}")
    (cache,) = (tmp_path / "ws" / "git-cache").iterdir()
    (cache / "HEAD").unlink()
    folder = tmp_path / "ws" / "site-packages" / "models"
    folder.rename(folder.with_name(".models.new"))
    assert at(get(f";;{hashes[1]}")) == ("main", hashes[1])
    assert [p.name for p in folder.parent.iterdir()] == ["models"]


def test_stale_locks_in_a_checkout_are_removed_unless_git_is_at_work_there(
    get: Get, hashes: list[str]
) -> None:
    path = get(f";;{hashes[0]}").path
    (path / ".git" / "index.lock").touch()
    (path / ".git" / "refs" / "heads" / "main.lock").touch()
    at_work = subprocess.Popen(
        ["git", "cat-file", "--batch"],
        cwd=path,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 10
    while Path(f"/proc/{at_work.pid}/comm").read_text() != "git\n":
        assert time.monotonic() < deadline
    try:
        with pytest.raises(WorkspaceError, match=rf"another git process \({at_work.pid}\) is at"):
            get(f";;{hashes[1]}")
        assert (path / ".git" / "index.lock").exists()
    finally:
        at_work.kill()
        at_work.communicate()
    assert at(get(f";;{hashes[1]}")) == ("main", hashes[1])
    assert not list((path / ".git").rglob("*.lock"))


def interrupt_update(path: Path, old: str, new: str) -> None:
    """Leave a checkout as a kill between its files and its index leaves it."""
    note = worktree.read_note(path)
    assert note is not None
    assert note.git_hash == old
    worktree.write_note(path, replace(note, updating_to=new))
    (path / ".git" / "index.lock").write_bytes(b"half")


def test_an_interrupted_update_is_completed(get: Get, hashes: list[str]) -> None:
    get(f";;{hashes[1]}")
    path = get(f";;{hashes[0]}").path
    interrupt_update(path, hashes[0], hashes[1])
    (path / "a.py").write_text("tw")  # half written
    (path / "sub").mkdir()
    (path / "sub" / "b.py").write_text("b\n")
    assert at(get(f";;{hashes[1]}")) == ("main", hashes[1])
    assert (path / "a.py").read_text() == "two\n"


def test_an_interrupted_update_to_a_commit_nobody_wants_any_more_is_no_obstacle(
    get: Get, hashes: list[str]
) -> None:
    get(f";;{hashes[1]}")
    path = get(f";;{hashes[0]}").path
    interrupt_update(path, hashes[0], hashes[1])
    (path / "a.py").write_text("two\n")
    assert at(get(f";;{hashes[2]}")) == ("main", hashes[2])


def test_an_edit_after_an_interrupted_update_is_not_thrown_away(
    get: Get, hashes: list[str]
) -> None:
    get(f";;{hashes[1]}")
    path = get(f";;{hashes[0]}").path
    interrupt_update(path, hashes[0], hashes[1])
    (path / "a.py").write_text("mine\n")
    with pytest.raises(WorkspaceError, match=r"edited since: 'a\.py'"):
        get(f";;{hashes[1]}")
    assert (path / "a.py").read_text() == "mine\n"


def test_a_damaged_checkout_is_named(get: Get, hashes: list[str]) -> None:
    path = get(f";;{hashes[0]}").path
    (path / ".git" / "index").write_bytes(b"rubbish")
    with pytest.raises(WorkspaceError, match=r"site-packages/models is damaged .*move it away"):
        get(f";;{hashes[0]}")


# The harness itself


def test_harness_info_is_perfzeros_three_facts(remote: Path, hashes: list[str]) -> None:
    git(remote, "remote", "add", "origin", "https://joe:pw@host.invalid/x.git")
    expected = {
        "url": "https://***@host.invalid/x.git",
        "branch": "main",
        "hash": hashes[2],
    }
    assert harness_git_info(remote) == expected
    assert list(harness_git_info(remote)) == ["url", "branch", "hash"]
    assert harness_git_info(remote / "sub") == expected
    git(remote, "checkout", "-q", "--detach", hashes[1])
    assert harness_git_info(remote)["branch"] == "HEAD"


def test_harness_info_is_empty_where_there_is_no_checkout(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = remote / "venv" / "lib" / "site-packages" / "perfrun"
    deep.mkdir(parents=True)
    (tmp_path / "broken" / ".git").mkdir(parents=True)
    assert harness_git_info(deep) == {}
    assert harness_git_info(tmp_path / "absent") == {}
    assert harness_git_info(tmp_path / "broken") == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert harness_git_info(remote) == {}


# Messages


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        ("warning: x\nfatal: no good\nhint: y\n", "no good"),
        (
            (
                "ssh: connect to host h port 22: Connection refused\n"
                "fatal: Could not read from remote repository.\n\n"
                "Please make sure you have the correct access rights\n"
                "and the repository exists.\n"
            ),
            "ssh: connect to host h port 22: Connection refused",
        ),
        (
            "fatal: unable to access 'https://joe:pw@h.invalid/': Could not resolve host\n",
            "unable to access 'https://***@h.invalid/': Could not resolve host",
        ),
        ("something else\n", "something else"),
        ("", ""),
    ],
)
def test_the_cause_line_of_gits_complaint(stderr: str, line: str) -> None:
    assert cause_line(stderr) == line


def test_the_note_in_a_checkout_is_plain_json(get: Get, remote: Path, hashes: list[str]) -> None:
    path = get(f";main;{hashes[0]}").path
    assert json.loads((path / ".git" / "perfrun.json").read_text()) == {
        "url": f"file://{remote}",
        "asked_ref": "main",
        "asked_hash": hashes[0],
        "git_hash": hashes[0],
        "branch": "main",
        "updating_to": None,
    }

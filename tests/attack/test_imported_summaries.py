"""A summary, or a folder of them, comes from a stranger: no command lets it run anything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gitrepos import git, make_repository
from trial_documents import perfrun_summary
from trial_documents import write_summary as put

from perfrun.changes.history import history_command
from perfrun.errors import PerfrunError
from perfrun.options.plan import parse_repos
from perfrun.options.store_address import parse_address
from perfrun.store.ancestry import positions
from perfrun.store.index import open_store
from perfrun.workspace.cache import GitCache
from perfrun.workspace.checkouts import checked_out
from perfrun.workspace.git import GitFailed, ask, checkout_at, command

MISSING = "ab" * 20


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work space"
    (folder / "runs").mkdir(parents=True)
    (folder / "site-packages").mkdir()
    return folder


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What a program of the stranger's makes when it runs."""
    return tmp_path / "pwned"


def hostile(folder: Path, marker: Path) -> str:
    """Make a repository whose configuration names programs for all that git may do; its commit."""
    (commit,) = make_repository(folder, [{"a.py": "1", ".gitattributes": "* diff=x filter=x"}])
    program = marker.with_name("program.sh")
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\nexit 1\n")
    program.chmod(0o755)
    (folder / ".git" / "config").write_text(
        "[core]\n\trepositoryformatversion = 1\n\tbare = false\n"
        f"\tfsmonitor = {program}\n\thooksPath = {folder}/hooks\n\tsshCommand = {program}\n"
        f"\tpager = {program}\n\teditor = {program}\n\taskPass = {program}\n"
        f"\talternateRefsCommand = {program}\n\tgitProxy = {program}\n"
        "[extensions]\n\tpartialClone = origin\n"
        '[remote "origin"]\n\turl = .\n\tpromisor = true\n'
        f"\tuploadpack = {program}\n\tpartialclonefilter = blob:none\n"
        f'[diff]\n\texternal = {program}\n[diff "x"]\n\ttextconv = {program}\n'
        f'\tcommand = {program}\n[filter "x"]\n\tclean = {program}\n\tsmudge = {program}\n'
        f"[credential]\n\thelper = !{program}\n[gpg]\n\tprogram = {program}\n"
        "[log]\n\tshowSignature = true\n[pager]\n\trev-list = true\n"
    )
    return commit


def plant(workspace: Path, commit: str, name: str, url: str) -> None:
    """Put a history into the workspace whose commits are one that is there and one that is not."""
    for number, git_hash in enumerate((commit, MISSING), 1):
        own = {"git": [{"directory": name, "git_hash": git_hash, "url": url}]}
        document = perfrun_summary(number, wall_time=float(number), own=own)
        document["benchmark_info"]["site_package_info"] = {}
        put(workspace / "output", document)


# How a summary may name a repository: its directory and its url.
PLACES: dict[str, Callable[[Path, Path], tuple[Path, str, str]]] = {
    "url is a path": lambda ws, tmp: (tmp / "evil", "evil", f"{tmp}/evil"),
    "url is a file url": lambda ws, tmp: (tmp / "evil", "evil", f"file://{tmp}/evil"),
    "url is escaped": lambda ws, tmp: (tmp / "evil", "evil", f"file://{tmp}/%65vil"),
    "url is in its own folder": lambda ws, tmp: (
        ws / "output" / "x" / "evil",
        "evil",
        f"file://{ws}/output/x/evil",
    ),
    "directory in site-packages": lambda ws, tmp: (
        ws / "site-packages" / "evil",
        "evil",
        "https://host/evil.git",
    ),
    "directory leads out": lambda ws, tmp: (tmp / "evil", "../../evil", "https://host/evil.git"),
    "directory is absolute": lambda ws, tmp: (tmp / "evil", f"{tmp}/evil", "https://h/evil.git"),
    "directory and no url": lambda ws, tmp: (ws / "site-packages" / "evil", "evil", ""),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_history_leads_git_to_no_folder(
    place: str, workspace: Path, tmp_path: Path, marker: Path
) -> None:
    """An imported summary names a repository of the stranger's, in each way there is."""
    folder, name, url = PLACES[place](workspace, tmp_path)
    plant(workspace, hostile(folder, marker), name, url)
    assert history_command(["*", f"--workspace={workspace}"]) == 0
    assert not marker.exists()


def test_a_url_that_was_fetched_here_shows_nothing_but_its_objects(
    workspace: Path, tmp_path: Path, marker: Path
) -> None:
    """A repository turns hostile after perfrun has fetched from it."""
    folder = tmp_path / "models"
    make_repository(folder, [{"a.py": "0"}])
    (repo,) = parse_repos(str(folder))
    GitCache(workspace, repo, print).find(None, None)
    folder.rename(tmp_path / "before")
    plant(workspace, hostile(folder, marker), "models", str(folder))
    assert history_command(["*", f"--workspace={workspace}"]) == 0
    assert not marker.exists()


def test_a_clone_of_the_command_line_runs_none_of_its_programs(
    tmp_path: Path, marker: Path
) -> None:
    """A user names the clone that a stranger gave them."""
    commit = hostile(tmp_path / "evil", marker)
    assert positions(tmp_path / "evil", [commit]) == {commit: 0}
    assert positions(tmp_path / "evil", [commit, MISSING]) == {}
    assert not marker.exists()


def test_borrowed_objects_may_be_anything(tmp_path: Path) -> None:
    """`alternates` of a clone name a pipe, a device and the clone itself."""
    (commit,) = make_repository(tmp_path / "evil", [{"a.py": "1"}])
    os.mkfifo(tmp_path / "pipe")
    lines = f"{tmp_path}/pipe\n/dev/zero\n{tmp_path}/evil/.git/objects\n/proc/self/fd\n"
    (tmp_path / "evil" / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (tmp_path / "evil" / ".git" / "objects" / "info" / "alternates").write_text(lines)
    assert positions(tmp_path / "evil", [commit, MISSING]) == {}


@pytest.mark.parametrize(
    "words",
    [
        ("rev-list", MISSING),
        ("cat-file", "-p", MISSING),
        ("log", "-1", MISSING),
        ("rev-parse", "--verify", f"{MISSING}^{{commit}}"),
        ("status", "--porcelain"),
        ("checkout", "--quiet", "--force", MISSING),
    ],
    ids=lambda words: words[0],
)
def test_no_command_but_a_fetch_fetches(
    words: tuple[str, ...], tmp_path: Path, marker: Path
) -> None:
    """A checkout in the workspace has become a partial clone with an `uploadpack` of its own."""
    hostile(tmp_path / "evil", marker)
    config = tmp_path / "evil" / ".git" / "config"
    # Filters run on the files of a checkout: those are the user's own configuration.
    config.write_text("".join(config.read_text().partition('[filter "x"]')[:1]))
    (tmp_path / "evil" / ".gitattributes").unlink()
    for run in (ask, command):
        with contextlib.suppress(GitFailed):
            run(checkout_at(tmp_path / "evil"), *words)
    assert not marker.exists()


URLS = (
    "ext::sh -c 'touch /tmp/x' .git",
    "fd::7",
    "-u/tmp/x",
    "--upload-pack=touch /tmp/x",
    "ssh://-oProxyCommand=touch /x",
    "ssh://u@-oProxyCommand=x/r",
    "-oProxyCommand=x:r",
    "git@-oProxyCommand=x:r",
    "file::/r",
    "transport::address",
    "https://h/r\n--upload-pack=x",
    "gopher://h/r",
    "ftp://h/r",
    "relative/path",
    "/r.git;--upload-pack=x",
    "/r.git;main;--all",
    "/r.git;refs/heads/../../x",
)


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_is_no_address_is_refused_in_one_line(url: str, workspace: Path) -> None:
    """A summary or a suite brings what git would take for an option or a program."""
    with pytest.raises(PerfrunError) as refused:
        parse_repos(url)
    assert len(str(refused.value).splitlines()) == 1


def test_another_users_folder_is_refused_in_one_line(workspace: Path, tmp_path: Path) -> None:
    """A url is a folder of another user, whose configuration an older git obeys."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    make_repository(tmp_path / "models", [{"a.py": "0"}])
    for path in (tmp_path / "models", *(tmp_path / "models").rglob("*")):
        os.chown(path, 12345, 12345)
    (repo,) = parse_repos(f"file://{tmp_path}/models")
    with pytest.raises(PerfrunError, match="belongs to another user") as refused:
        GitCache(workspace, repo, print).find(None, None)
    assert len(str(refused.value).splitlines()) == 1


def test_submodules_are_never_followed(workspace: Path, tmp_path: Path, marker: Path) -> None:
    """A repository has a submodule whose url is a program."""
    folder = tmp_path / "models"
    (first,) = make_repository(folder, [{"a.py": "0"}])
    (folder / ".gitmodules").write_text(
        f'[submodule "x"]\n\tpath = x\n\turl = ext::touch {marker}\n'
    )
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{first},x")
    git(folder, "add", ".gitmodules")
    git(folder, "commit", "-q", "-m", "a submodule")
    (repo,) = parse_repos(str(folder))
    with checked_out((repo,), workspace=workspace, use_cached=False) as (there,):
        assert (there.path / ".gitmodules").exists()
    assert not marker.exists()


def test_the_index_is_asked_by_hashes_only(workspace: Path, tmp_path: Path) -> None:
    """A summary's commits are options of git, refs, or ranges."""
    (commit,) = make_repository(tmp_path / "models", [{"a.py": "0"}])
    for word in ("--all", "HEAD", "main", f"{commit}^@", f"--output={tmp_path}/x", "-n1", ""):
        assert positions(tmp_path / "models", [commit, word]) == {}
    assert not (tmp_path / "x").exists()
    plant(workspace, commit, "models", str(tmp_path / "models"))
    with open_store(parse_address(None, workspace)) as store:
        store.refresh()
        assert len(list(store.series(clones={"models": tmp_path / "models"}))) >= 1

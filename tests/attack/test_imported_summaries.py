"""A summary, or a folder of them, comes from a stranger: no command lets it run anything."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gitrepos import git, make_repository
from trial_documents import perfrun_summary
from trial_documents import write_summary as put

from perfrun.changes.budget import Budget
from perfrun.changes.confirm import Confirmation, Suspect, confirm, confirm_rows
from perfrun.changes.detect import detect_command
from perfrun.changes.history import history_command
from perfrun.changes.search_log import has_ended, unfinished_search
from perfrun.errors import PerfrunError, UsageError
from perfrun.exchange.foreign import ForeignError, read_source
from perfrun.image.lock import read_lock
from perfrun.options.command_line import parse
from perfrun.options.plan import parse_repos
from perfrun.options.store_address import parse_address
from perfrun.reports.terminal import Terminal
from perfrun.run.journal import Journal, unfinished
from perfrun.run.own_results import OwnResults
from perfrun.store.ancestry import positions
from perfrun.store.index import open_store
from perfrun.store.places import Places
from perfrun.summary.record import BadSummary, read_record
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


# --confirm: what a summary says about how it was run


def trial(number: int, **own: Any) -> dict[str, Any]:
    """A summary that could be run again: code and interpreter are on record."""
    python = {"version": "3.11.7", "executable": sys.executable}
    facts = {"environment": {"python": python}, "env": {"N": str(number)}, **own}
    document = perfrun_summary(number, wall_time=float(number), own=facts)
    document["perfrun"]["run_id"] = "20261122-101010-000000-abcdef"
    return document


def confirmed(workspace: Path, before: Path, after: Path, *, trust: bool = False) -> Confirmation:
    suspect = Suspect(
        method="m.C.x", metric="wall_time", direction="worse", before=before, after=after
    )
    screen = Terminal(sys.stderr, sys.stderr, quiet=True)
    more: dict[str, Any] = {"trusts_imported": True} if trust else {}
    return confirm(suspect, workspace, Budget(max_pairs=8), screen, **more)


def evil_python(marker: Path) -> str:
    program = marker.with_name("python3")
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\nexit 1\n")
    program.chmod(0o755)
    return str(program)


def evil_module(marker: Path) -> str:
    folder = marker.with_name("code")
    folder.mkdir()
    (folder / "m.py").write_text(f"open({str(marker)!r}, 'w')\n")
    return str(folder)


# How an imported summary tries to run something: what it records, given the marker of success.
WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "interpreter": lambda m: {"environment": {"python": {"executable": evil_python(m)}}},
    "flag of the interpreter": lambda m: {"flags": {"python": evil_python(m)}},
    "import path": lambda m: {"flags": {"python_path": evil_module(m)}},
    "variable": lambda m: {"env": {"PYTHONPATH": evil_module(m), "PYTHONSTARTUP": "x"}},
    "loader": lambda m: {"env": {"LD_PRELOAD": "/tmp/x.so"}},
    "repository": lambda m: {
        "git": [{"directory": "r", "url": f"file://{m.parent}/r", "git_hash": "ab" * 20}]
    },
    "second repository": lambda m: {
        "git": [
            {"directory": "r", "url": f"https://h/a,file://{m.parent}/r", "git_hash": "ab" * 20}
        ]
    },
    "image": lambda m: {"container": {"image": "evil", "image_id": "sha256:" + "1" * 64}},
    "download": lambda m: {"flags": {"data_downloads": f"file://{m.parent}/secret"}},
    "data folder": lambda m: {"flags": {"root_data_dir": "/etc"}},
}


def forged(workspace: Path, marker: Path, way: str) -> list[Path]:
    paths = []
    for number in (1, 2):
        facts = WAYS[way](marker) if number == 2 else {}
        flags = facts.pop("flags", {})
        document = trial(number, **facts)
        document["benchmark_info"]["flags"] |= flags
        paths.append(put(workspace / "output", document))
    return paths


@pytest.mark.parametrize("way", WAYS)
def test_an_imported_summary_starts_nothing_without_consent(
    way: str, workspace: Path, marker: Path
) -> None:
    """`--confirm` on summaries that no run of this workspace wrote."""
    found = confirmed(workspace, *forged(workspace, marker, way))
    assert not marker.exists()
    assert "was imported, not run in this workspace: before and after" in str(found.reason)
    assert not (workspace / "ab").exists()


@pytest.mark.parametrize("way", WAYS)
def test_consent_extends_to_nothing_that_no_run_here_has_used(
    way: str, workspace: Path, marker: Path
) -> None:
    """`--confirm --trust=imported`, where the runs of this workspace used another interpreter."""
    plan = parse([f"--workspace={workspace}", "--benchmark_methods=m.C.x", "--env=N=1"])
    Journal(workspace / "runs" / "own.jsonl").begin(plan, {}, 1)
    found = confirmed(workspace, *forged(workspace, marker, way), trust=True)
    assert not marker.exists()
    assert "no run of this workspace has used" in str(found.reason)
    assert not (workspace / "ab").exists()


def own_journal(workspace: Path, run_id: str, *texts: str) -> Journal:
    journal = Journal(workspace / "runs" / f"{run_id}.jsonl")
    for text in texts:
        journal.written(("m.C.x", 1), text)
    return journal


def test_a_summary_of_a_run_here_is_known_by_its_bytes(workspace: Path, marker: Path) -> None:
    """A real summary is edited, or another one names its run."""
    before, after = forged(workspace, marker, "interpreter")
    own_journal(workspace, "20261122-101010-000000-abcdef", before.read_text())
    assert str(confirmed(workspace, before, after).reason).endswith("workspace: after")
    before.write_text(before.read_text() + " ")
    assert str(confirmed(workspace, before, after).reason).endswith("before and after")
    assert not marker.exists()


@pytest.mark.parametrize(
    "name", ["../output/x/own", "/{}/output/x/own", "..", "", "a\0b", "x" * 999]
)
def test_a_summary_brings_no_journal_of_its_own(name: str, workspace: Path, marker: Path) -> None:
    """A run id leads to a journal that lies where a trial can write."""
    name = name.format(workspace)
    document = trial(1)
    document["perfrun"]["run_id"] = name
    text = json.dumps(document)
    (workspace / "output" / "x").mkdir(parents=True)
    journal = Journal(workspace / "output" / "x" / "own.jsonl")
    journal.written(("m.C.x", 1), text)
    path = workspace / "output" / "x" / "perfzero_summary.json"
    assert not OwnResults(workspace).has(name, path, text.encode())


def test_the_journal_of_an_older_perfrun_knows_places_of_this_workspace_only(
    workspace: Path, tmp_path: Path
) -> None:
    """A stranger's folder has the name of a trial that was finished before digests were kept."""
    line = {"event": "begin", "fingerprint": "f", "pinned": {}, "seed": 1}
    summary = f"{tmp_path}/moved/output/night/perfzero_summary.json"
    done = {"event": "finished", "method": "m.C.x", "trial_id": 1, "summary": summary}
    journal = workspace / "runs" / "run-1.jsonl"
    journal.write_text(f"{json.dumps(line)}\n{json.dumps(done)}\n")
    (tmp_path / "output" / "night").mkdir(parents=True)
    (workspace / "output").mkdir()
    (workspace / "output" / "linked").symlink_to(tmp_path / "output" / "night")
    ours = workspace / "output" / "night" / "perfzero_summary.json"
    own = OwnResults(workspace)
    assert own.has("run-1", ours, b"{}")
    for path in (
        tmp_path / "output" / "night" / ours.name,
        workspace / "output" / "other" / ours.name,
        workspace / "output" / "linked" / ours.name,
        workspace / "output" / "night" / ".." / "x" / ours.name,
    ):
        assert not own.has("run-1", path, b"{}")
    assert not own.has("run-2", ours, b"{}")
    digest = {"event": "written", "method": "m", "trial_id": 1, "sha256": "0" * 64}
    journal.write_text(f"{json.dumps({**line, 'used': []})}\n{json.dumps(digest)}\n")
    assert not OwnResults(workspace).has("run-1", ours, b"{}")


@pytest.mark.parametrize(
    "own",
    [
        {"env": {"X": 1, "Y": None, "Z": ["***"]}},
        {"git": [{"directory": 1, "url": 2, "git_hash": [3]}, {}]},
        {"environment": {"python": [1]}},
        {"container": {"image": 1, "image_id": {"a": 1}}},
        {"benchmark_flags": [1, None, {"a": "--"}]},
        {"environment": {"python": {"executable": "/bin/sh\0x"}}},
        {"environment": {"python": {"executable": "\ud800"}}},
    ],
    ids=str,
)
def test_facts_of_a_wrong_type_are_a_reason_and_no_error(
    own: dict[str, Any], workspace: Path
) -> None:
    """A summary's facts have types that perfrun never writes."""
    plan = parse([f"--workspace={workspace}", "--benchmark_methods=m.C.x", "--env=N=1"])
    Journal(workspace / "runs" / "own.jsonl").begin(plan, {}, 1)
    paths = [put(workspace / "output", trial(1)), put(workspace / "output", trial(2, **own))]
    assert confirmed(workspace, *paths, trust=True).status == "candidate"


def test_consent_is_only_asked_for_what_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that would do nothing is an error, as every other one."""
    with pytest.raises(UsageError, match="--trust=imported is about what --confirm runs"):
        detect_command(["--trust=imported"])
    with pytest.raises(UsageError, match="--trust=all: must be one of imported"):
        detect_command(["--confirm", "--trust=all"])


# Reading: an index of a folder that a stranger made


def spoil_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def spoil_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def spoil_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 * 2**40)


def spoil_proc(path: Path) -> None:
    path.symlink_to("/proc/self/mem")


SPOILS = (spoil_link, spoil_device, spoil_sparse, spoil_proc, os.mkfifo, Path.mkdir)


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_a_folder_of_summaries_leads_to_no_other_file(
    spoil: Callable[[Path], None], workspace: Path, tmp_path: Path
) -> None:
    """`perfrun index DIR` where a summary is a link, a device, a pipe, or endless."""
    good = put(tmp_path / "theirs", perfrun_summary(1))
    (tmp_path / "theirs" / "bad").mkdir()
    spoil(tmp_path / "theirs" / "bad" / good.name)
    with open_store(parse_address(None, workspace)) as store:
        done = store.refresh([tmp_path / "theirs"])
        assert (done.found, done.bad) == (2, 1)
        (bad,) = store.bad_files()
        assert bad.reason.startswith(("is a link", "is no file", "is larger than"))
        assert len(list(store.trials())) == 1


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_every_reader_of_a_summary_refuses_the_same(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    """Between the listing and the reading, the file becomes something else."""
    path = tmp_path / "perfzero_summary.json"
    spoil(path)
    with pytest.raises(BadSummary, match=r"is a link|is no file|is larger than"):
        read_record(path)
    if not path.is_dir():
        with pytest.raises(ForeignError):
            read_source(path, follow=False)


def test_the_id_of_a_workspace_is_no_link(workspace: Path, tmp_path: Path) -> None:
    """A workspace of a stranger's has a pipe or a secret as its id."""
    (tmp_path / "secret").write_text("0" * 32)
    place = workspace / ".workspace-id"
    for spoil in (lambda: place.symlink_to(tmp_path / "secret"), lambda: os.mkfifo(place)):
        spoil()
        key = Places(None).key(f"{workspace}/output/x/perfzero_summary.json")
        assert not key.place.endswith("0" * 32)
        place.unlink()


@pytest.mark.parametrize("word", ["1\n--index-url=http://evil", "1 @ file:///evil", "-r/x y", ""])
@pytest.mark.parametrize("is_name", [True, False], ids=["name", "version"])
def test_a_lock_adds_no_line_to_what_pip_reads(word: str, is_name: bool, tmp_path: Path) -> None:
    """`setup.py --lock=FILE`, where FILE is somebody's summary."""
    pinned = {word: "1"} if is_name else {"torch": word}
    path = tmp_path / "perfzero_summary.json"
    info = {"distributions": {"framework": pinned, "perfrun": {}}}
    path.write_text(json.dumps({"setup_info": info}))
    with pytest.raises(UsageError, match="is no distribution and version"):
        read_lock(path)


@pytest.mark.parametrize("plant", [os.mkfifo, spoil_link, spoil_sparse, Path.mkdir])
def test_a_workspace_of_a_strangers_holds_no_reader(
    plant: Callable[[Path], None], workspace: Path, tmp_path: Path
) -> None:
    """Its journals, searches and decisions are pipes, links, or endless."""
    for name in ("runs/run-1.jsonl", "bisect/x/search.jsonl", "confirming.json"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        plant(workspace / name)
    assert not OwnResults(workspace).has("run-1", tmp_path / "x" / "y", b"{}")
    assert unfinished(workspace / "runs", parse(["--benchmark_methods=m.C.x"])) is None
    assert not has_ended(workspace / "bisect" / "x" / "search.jsonl")
    assert unfinished_search(workspace / "bisect", "f") is None
    screen = Terminal(sys.stderr, sys.stderr, quiet=True)
    assert confirm_rows((), workspace, Budget(max_pairs=8), screen) == ()

"""Checkouts in harsh conditions: several processes, kills, servers that refuse, moved folders."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gitrepos import git, make_repository
from worlds import wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from perfrun.errors import WorkspaceError
from perfrun.options.plan import parse_repos
from perfrun.workspace.checkouts import checked_out
workspace, repos, hold_s = Path(sys.argv[1]), parse_repos(sys.argv[2]), float(sys.argv[3])
let_go = Path(*sys.argv[4:])
try:
    with checked_out(
        repos,
        workspace=workspace,
        use_cached=False,
        notify=lambda line: print("NOTE", line, flush=True),
    ) as checkouts:
        for c in checkouts:
            version = (c.path / "version").read_text()
            print("GOT", c.git_hash, c.branch, c.fetched, version, flush=True)
        end = time.monotonic() + hold_s
        while time.monotonic() < end and not let_go.is_file():
            for c in checkouts:
                found = {p.read_text() for p in c.path.glob("f*") if p.is_file()}
                assert found == {(c.path / "version").read_text()}, found
            time.sleep(0.01)
    print("DONE", flush=True)
except WorkspaceError as error:
    print("ERROR", error, flush=True)
"""


FOR_LONG_S = 600.0  # until it is killed, or let go


def start(
    workspace: Path,
    repos: str,
    hold_s: float = 0.0,
    let_go: Path | None = None,
    cwd: Path | None = None,
    **env: str,
) -> subprocess.Popen[str]:
    """Check out and hold that for so long, or until the file `let_go` is there."""
    last = [str(let_go)] if let_go else []
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(workspace), repos, str(hold_s), *last],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        start_new_session=True,
    )


def run(workspace: Path, repos: str, hold_s: float = 0.0, **env: str) -> list[str]:
    process = start(workspace, repos, hold_s, **env)
    output, _ = process.communicate(timeout=300)
    return output.splitlines()


def got(lines: list[str]) -> list[list[str]]:
    """Return hash, branch, fetched and version of each checkout; fail unless all went well."""
    assert lines[-1:] == ["DONE"], lines
    return [line.split()[1:] for line in lines if line.startswith("GOT ")]


def wait_for(process: subprocess.Popen[str], beginning: str) -> list[str]:
    """Read a process's output until a line begins so."""
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if line.startswith(beginning):
            return lines
    raise AssertionError(f"no {beginning!r} in {lines}")


def has_said(process: subprocess.Popen[str], words: bytes) -> bool:
    """Whether that is in a process's output so far, which is read without waiting."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    with contextlib.suppress(BlockingIOError):
        return words in os.read(process.stdout.fileno(), 1 << 16)
    return False


def end_holding(process: subprocess.Popen[str]) -> None:
    """End a run that is to hold its checkouts still, with their files unchanged."""
    assert process.poll() is None
    kill(process, whole_group=True)


def kill(process: subprocess.Popen[str], *, whole_group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remotes" / "big.git"
    make_repository(folder, [_version(name) for name in "abc"])
    return folder


def _version(name: str) -> dict[str, str]:
    """Every file has another content in every version, and each version files of its own."""
    text = f"version-{name} " * 200
    return (
        {"version": text.split()[0]}
        | {f"f{n}": text.split()[0] for n in range(400)}
        | {f"only_{name}/g{n}": text for n in range(50)}
    )


@pytest.fixture
def hashes(remote: Path) -> list[str]:
    return git(remote, "rev-list", "--reverse", "main").split()


# Two runs at once


def test_two_runs_with_one_pin_share_the_checkout(
    tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    spec = f"file://{remote};;{hashes[0]}"
    first = start(tmp_path / "ws", spec, hold_s=FOR_LONG_S)
    wait_for(first, "GOT ")
    second = run(tmp_path / "ws", spec)
    assert got(second) == [[hashes[0], "main", "False", "version-a"]]
    end_holding(first)


def test_the_same_commit_asked_for_in_another_way_is_shared_too(
    tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    first = start(tmp_path / "ws", f"file://{remote};main;{hashes[2]}", hold_s=FOR_LONG_S)
    wait_for(first, "GOT ")
    for spec in (f"file://{remote};main", f"file://{remote};;{hashes[2]}"):
        assert got(run(tmp_path / "ws", spec))[0][0] == hashes[2]
    end_holding(first)


def test_a_run_with_another_pin_waits_and_both_get_their_commit(
    tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    spec, let_go = f"file://{remote};;{hashes[0]}", tmp_path / "let go"
    first = start(tmp_path / "ws", spec, FOR_LONG_S, let_go)
    wait_for(first, "GOT ")
    second = start(tmp_path / "ws", f"file://{remote};;{hashes[1]}", hold_s=0.2)
    wait_for(second, "NOTE waiting for another run that uses site-packages/big")
    time.sleep(0.3)  # were it not waiting, it would change the first one's files now
    assert first.poll() is None
    let_go.touch()
    lines = second.communicate(timeout=300)[0].splitlines()
    assert got(lines) == [[hashes[1], "main", "True", "version-b"]]
    assert first.communicate(timeout=60)[0].endswith("DONE\n"), "its files changed under it"


def test_many_runs_with_different_pins_all_get_theirs(
    tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    other = tmp_path / "remotes" / "alpha.git"
    shutil.copytree(remote, other)
    runs = []
    for n in range(9):
        urls = [f"file://{remote};;{hashes[n % 3]}", f"file://{other};;{hashes[(n + 1) % 3]}"]
        # Named in both orders, which must not lead into a deadlock.
        runs.append(start(tmp_path / "ws", ",".join(urls[:: 1 if n % 2 else -1]), hold_s=0.1))
    for n, process in enumerate(runs):
        output, _ = process.communicate(timeout=300)
        found = {entry[0] for entry in got(output.splitlines())}
        assert found == {hashes[n % 3], hashes[(n + 1) % 3]}


# Kills


@pytest.mark.parametrize("whole_group", [True, False], ids=["with its git", "and git lives on"])
def test_a_kill_at_any_moment_is_repaired_by_the_next_run(
    tmp_path: Path, remote: Path, hashes: list[str], whole_group: bool
) -> None:
    chance = random.Random(7)
    workspace = tmp_path / "ws"
    begun = time.monotonic()
    run(workspace, f"file://{remote};;{hashes[1]}", hold_s=0.02)
    whole_s = time.monotonic() - begun  # what a run takes here and now
    interrupted = turn = 0
    while turn < 14 or interrupted < 5:
        assert turn < 60, "the kills came too late to show anything"
        if turn % 7 == 0:
            shutil.rmtree(workspace, ignore_errors=True)
        process = start(workspace, f"file://{remote};;{hashes[turn % 3]}", hold_s=FOR_LONG_S)
        # From before the first git process to after the last one.
        time.sleep(whole_s * chance.uniform(0.2, 1.2))
        interrupted += not has_said(process, b"GOT ")
        kill(process, whole_group=whole_group)
        if turn % 2:
            wanted = hashes[(turn + 1) % 3]
            begun = time.monotonic()
            found = got(run(workspace, f"file://{remote};;{wanted}", hold_s=0.02))
            whole_s = time.monotonic() - begun
            assert found[0][0] == wanted
            assert git(workspace / "site-packages" / "big", "status", "--porcelain") == ""
        turn += 1


def stopping_at(count: int, folder: Path) -> dict[str, str]:
    """Let git wait, until it is killed, before the file of that number; `there` says so.

    A filter is what git itself offers to come in between.
    """
    seen, there = folder / "seen", folder / "there"
    seen.unlink(missing_ok=True)
    there.unlink(missing_ok=True)
    wait = f": > '{there}'; while kill -0 $PPID; do sleep 0.05; done"
    stop = f"echo >> '{seen}'; test $(wc -l < '{seen}') -lt {count} || {{ {wait}; }}"
    return {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "filter.slow.smudge",
        "GIT_CONFIG_VALUE_0": f"{stop}; cat",
        "GIT_CONFIG_KEY_1": "filter.slow.clean",
        "GIT_CONFIG_VALUE_1": "cat",
    }


def test_a_kill_in_the_middle_of_an_update_is_repaired(tmp_path: Path) -> None:
    attributes = {".gitattributes": "f1* filter=slow\n"}
    remote = tmp_path / "big"
    hashes = make_repository(remote, [_version(name) | attributes for name in "abc"])
    workspace = tmp_path / "ws"
    run(workspace, f"file://{remote};;{hashes[0]}")
    lock = workspace / "site-packages" / "big" / ".git" / "index.lock"
    now = 0
    for turn in range(1, 5):
        target = (now + 1) % 3
        slow = stopping_at(20 * turn, tmp_path)
        process = start(workspace, f"file://{remote};;{hashes[target]}", **slow)
        wait_until((tmp_path / "there").exists)
        kill(process, whole_group=True)
        assert lock.exists(), f"turn {turn}: git was not in the middle of writing files"
        now = (target + turn % 2) % 3  # the interrupted commit, or the one after it
        found = got(run(workspace, f"file://{remote};;{hashes[now]}", hold_s=0.02))
        assert found[0][0] == hashes[now]
        assert git(lock.parent.parent, "status", "--porcelain") == ""


# Other places and other users


def test_a_moved_workspace_still_works_without_the_remote(
    tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    for pin in hashes[:2]:
        run(tmp_path / "ws", f"file://{remote};;{pin}")
    moved = tmp_path / "another place" / "ws 2"
    moved.parent.mkdir()
    (tmp_path / "ws").rename(moved)
    copied = tmp_path / "copy"
    shutil.copytree(moved, copied, symlinks=True)
    remote.rename(remote.with_name("gone"))
    for workspace in (moved, copied):
        for pin in hashes[:2]:
            found = got(run(workspace, f"file://{remote};;{pin}"))
            assert (found[0][0], found[0][2]) == (pin, "False")
    assert git(moved / "site-packages" / "big", "fsck", "--no-dangling") == ""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_workspace_of_another_user_works(tmp_path: Path, remote: Path, hashes: list[str]) -> None:
    workspace = tmp_path / "ws"
    for pin in hashes[:2]:
        run(workspace, f"file://{remote};;{pin}")
    for path in [workspace, *workspace.rglob("*")]:
        os.chown(path, 12345, 12345, follow_symlinks=False)
    assert got(run(workspace, f"file://{remote};;{hashes[1]}"))[0][0] == hashes[1]
    assert got(run(workspace, f"file://{remote};;{hashes[0]}"))[0][0] == hashes[0]
    assert got(run(workspace, f"file://{remote};;{hashes[2]}"))[0][0] == hashes[2]


# Servers


@pytest.fixture
def daemon(tmp_path: Path, remote: Path) -> Iterator[str]:
    """A git server on this machine; gives the url of the repository."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            *("git", "daemon", "--listen=127.0.0.1", f"--port={port}", "--export-all"),
            *("--reuseaddr", f"--base-path={remote.parent}", str(remote.parent)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.02)
    yield f"git://127.0.0.1:{port}/big.git"
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


OLD_PROTOCOL = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.version",
    "GIT_CONFIG_VALUE_0": "0",
}


def history(workspace: Path) -> int:
    """Return how many commits of history the checkout's cache has."""
    return int(git(workspace / "site-packages" / "big", "rev-list", "--count", "HEAD"))


def test_a_server_gives_a_commit_alone(tmp_path: Path, daemon: str, hashes: list[str]) -> None:
    lines = run(tmp_path / "ws", f"{daemon};;{hashes[1]}")
    assert got(lines) == [[hashes[1], "main", "True", "version-b"]]
    assert sum(line.startswith("NOTE") for line in lines) == 1
    assert history(tmp_path / "ws") == 1


def test_the_older_protocol_really_refuses_a_hash(
    tmp_path: Path, daemon: str, hashes: list[str]
) -> None:
    """Without this, the next tests would show nothing."""
    git(tmp_path, "init", "-q", "--bare", "x")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        git(tmp_path / "x", "-c", "protocol.version=0", "fetch", "--depth=1", daemon, hashes[1])
    assert "unadvertised object" in refused.value.stderr


def test_a_server_that_refuses_a_hash_gives_its_branch(
    tmp_path: Path, daemon: str, hashes: list[str]
) -> None:
    lines = run(tmp_path / "ws", f"{daemon};main;{hashes[0]}", **OLD_PROTOCOL)
    assert got(lines) == [[hashes[0], "main", "True", "version-a"]]
    assert any("the commit alone did not help" in line for line in lines)
    assert not any("all branches" in line for line in lines)


def test_a_server_that_refuses_a_hash_gives_all_of_a_long_branch(
    tmp_path: Path, remote: Path, daemon: str, hashes: list[str]
) -> None:
    stream = "".join(
        f"commit refs/heads/long\ncommitter A <a@b> {n} +0000\ndata 1\nx\n"
        + (f"from {hashes[0]}\n" if n == 0 else "")
        for n in range(100)
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=remote, input=stream.encode(), check=True)
    wanted = git(remote, "rev-parse", "long~90")
    lines = run(tmp_path / "ws", f"{daemon};long;{wanted}", **OLD_PROTOCOL)
    assert got(lines)[0][:2] == [wanted, "long"]


@pytest.mark.parametrize("branch", ["", "other"])
def test_a_server_that_refuses_a_hash_gives_everything_when_the_branch_is_no_help(
    tmp_path: Path, remote: Path, daemon: str, hashes: list[str], branch: str
) -> None:
    git(remote, "checkout", "-q", "--orphan", "other")
    git(remote, "commit", "-q", "-m", "other")
    git(remote, "checkout", "-q", "main")
    lines = run(tmp_path / "ws", f"{daemon};{branch};{hashes[0]}", **OLD_PROTOCOL)
    assert got(lines)[0][:2] == [hashes[0], branch or "main"]


def test_a_commit_that_no_server_has_is_an_error_that_names_what_was_tried(
    tmp_path: Path, daemon: str
) -> None:
    for env in ({}, OLD_PROTOCOL):
        lines = run(tmp_path / "ws", f"{daemon};main;{'2' * 40}", **env)
        assert lines[-1].startswith(f"ERROR --git_repos: {daemon}: commit {'2' * 40} is not there")
        assert (
            "(tried the commit alone, then 64 commits of main, then all of main, then all"
            in (lines[-1])
        )


def test_a_server_that_is_away_is_not_asked_twice(tmp_path: Path, hashes: list[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # not listening
        url = f"git://127.0.0.1:{free.getsockname()[1]}/big.git"
        lines = run(tmp_path / "ws", f"{url};main;{hashes[0]}")
    assert len(lines) == 2, lines
    assert lines[-1].startswith(f"ERROR --git_repos: {url}: cannot be fetched: unable to connect")


def test_an_interrupt_ends_the_git_process_and_the_lock(
    tmp_path: Path, remote: Path, hashes: list[str]
) -> None:
    """A server that accepts and never answers, then SIGINT to perfrun alone."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"git://127.0.0.1:{silent.getsockname()[1]}/big.git"
        process = start(tmp_path / "ws", f"{url};;{hashes[0]}")
        wait_for(process, "NOTE fetching")
        silent.settimeout(120)
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        assert "KeyboardInterrupt" in output
        connection.settimeout(120)
        while connection.recv(4096):
            pass  # ends when git, too, is gone
        connection.close()

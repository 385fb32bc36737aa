"""In Compose a trial shares a container with perfrun and is another user: what it cannot do."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gitrepos
import pytest
from actors import Caller, give, read_summary, results
from engines import both_engines

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

CASES = '''"""A benchmark that tries to harm perfrun and the results of others."""
import ctypes, errno, fcntl, json, os, shutil, signal, subprocess, sys, time
from pathlib import Path

from perfrun import Benchmark

WORKSPACE = Path("/workspace")
PTRACE_ATTACH = 16


def wrote(path):
    with open(path, "a") as file:
        file.write("x")


def harness():
    """The process of perfrun: it has the guard for a child, and the guard this process."""
    return _parent(os.getppid())


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def traced(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")


def others(folder, name):
    return next(path for path in (WORKSPACE / folder).glob(name) if path.is_file())


def became(uid):
    """Take another user, by any of the ways that a capability would open."""
    os.setresuid(uid, uid, uid)


def asked_for_rights():
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*(255,) * 3)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


class Cases(Benchmark):
    def first(self):
        Path(self.output_dir, "mine").write_text("of the first trial")
        self.report_benchmark(wall_time=1.0)

    def attacks(self):
        own = Path(self.output_dir)
        victim = others("output", "*/mine").parent
        owner = WORKSPACE.stat().st_uid
        me, guard = os.getpid(), os.getppid()
        tries = {
            "write another trial's summary": lambda: wrote(victim / "perfzero_summary.json"),
            "replace another trial's summary": lambda: os.replace(
                own / "stdout.log", victim / "perfzero_summary.json"),
            "write into another trial's folder": lambda: wrote(victim / "more"),
            "remove another trial's file": lambda: os.unlink(victim / "mine"),
            "make a folder for a trial to come": lambda: os.mkdir(own.parent / "to come"),
            "move its own folder away": lambda: own.rename(own.parent / "away"),
            "open its own folder to all": lambda: own.chmod(0o777),
            "write the journal": lambda: wrote(others("runs", "*.jsonl")),
            "forge a journal": lambda: wrote(WORKSPACE / "runs" / "forged.jsonl"),
            "write the index": lambda: wrote(WORKSPACE / "perfrun.db"),
            "forge a store": lambda: wrote(WORKSPACE / "perfrun.db-journal"),
            "change a checkout": lambda: wrote(Path(__file__)),
            "make a link to another's file": lambda: os.link(victim / "mine", own / "linked"),
            "kill perfrun": lambda: os.kill(harness(), signal.SIGKILL),
            "stop perfrun": lambda: os.kill(harness(), signal.SIGSTOP),
            "kill the guard": lambda: os.kill(guard, signal.SIGKILL),
            "kill the first process": lambda: os.kill(1, signal.SIGTERM),
            "trace perfrun": lambda: traced(harness()),
            "trace the guard": lambda: traced(guard),
            "read perfrun's environment": lambda: Path(f"/proc/{harness()}/environ").read_bytes(),
            "read perfrun's memory": lambda: open(f"/proc/{harness()}/mem", "rb"),
            "use perfrun's files": lambda: os.listdir(f"/proc/{harness()}/fd"),
            "lower perfrun's priority": lambda: os.setpriority(os.PRIO_PROCESS, harness(), 10),
            "offer perfrun to the killer": lambda: Path(
                f"/proc/{harness()}/oom_score_adj").write_text("1000"),
            "become root": lambda: became(0),
            "become the owner": lambda: became(owner or 1),
            "have rights": asked_for_rights,
            "take a file for itself": lambda: os.chown(victim / "mine", os.getuid(), -1),
            "run a setuid program": lambda: subprocess.run(
                ["chfn", "-f", "x"], check=True, stdin=subprocess.DEVNULL),
            "change the environment under test": lambda: wrote(os.__file__),
        }
        did = {}
        for name, attempt in tries.items():
            try:
                attempt()
                did[name] = "done"
            except (OSError, StopIteration, subprocess.CalledProcessError) as error:
                did[name] = errno.errorcode.get(getattr(error, "errno", 0), type(error).__name__)
        deep = own / "deep" / "deeper"
        deep.mkdir(parents=True)
        shutil.copy("/bin/sh", deep / "setuid")
        (deep / "setuid").chmod(0o6755)
        deep.chmod(0)
        (own / "link").symlink_to("/workspace/runs")
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        (own / "did.json").write_text(json.dumps({
            "did": did, "uid": os.getuid(), "owner": owner, "groups": os.getgroups(),
            "capabilities": [
                status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
            "new_privileges": status["NoNewPrivs"].strip(),
            "home": os.access(os.environ["HOME"], os.W_OK),
            "shown": "PERFRUN_TRIAL_USER" in os.environ,
        }))
        # What stays behind looks for a moment in which it could change the results.
        perfrun = harness()
        if os.fork() == 0:
            os.setsid()
            while True:
                for action in (
                    lambda: os.kill(perfrun, signal.SIGKILL),
                    lambda: wrote(own / "perfzero_summary.json"),
                    lambda: wrote(victim / "perfzero_summary.json"),
                ):
                    try:
                        action()
                    except OSError:
                        pass
        print("all tried", file=open("/dev/stdout", "w"))
        block = bytearray(64 << 20)
        self.report_benchmark(wall_time=2.0, extras={"bytes": len(block)})

    def forked(self):
        held = bytearray(os.urandom(1 << 20)) * 150
        if os.fork() == 0:
            time.sleep(3)
            os._exit(len(held) % 1)
        time.sleep(2)
        os.wait()
        self.report_benchmark(wall_time=3.0)
'''
HERE = "pkg.cases.Cases"


@pytest.fixture
def repository(place: Path, user: Caller) -> Iterator[tuple[Path, str]]:
    """A repository with the benchmark that attacks; its folder and its commit."""
    folder = Path(tempfile.mkdtemp(prefix="attacks ", dir=place))
    (commit,) = gitrepos.make_repository(folder / "repo", [{"pkg/cases.py": CASES}])
    give(folder, user)
    folder.chmod(0o755)
    yield folder / "repo", commit
    shutil.rmtree(folder)


def compose(
    user: Caller, checkout: Path, repository: tuple[Path, str], *words: str, **settings: Any
) -> Any:
    return user.compose(
        checkout,
        *("run", "--rm", "-v", f"{repository[0]}:/repos/theirs:ro", "perfrun"),
        f"--git_repos=file:///repos/theirs;main;{repository[1]}",
        "--python_path=theirs",
        "--format=json",
        *words,
        **settings,
    )


@both_engines
def test_a_trial_in_compose_can_harm_neither_perfrun_nor_the_results_of_others(
    checkout: Path, workspace: Path, repository: tuple[Path, str], user: Caller, torch_image: str
) -> None:
    place = {"PERFRUN_WORKSPACE": str(workspace)}  # of mode 0700: nobody else may enter
    first = compose(user, checkout, repository, f"--benchmark_methods={HERE}.first", **place)
    assert first.returncode == 0, first.stderr
    index = user.compose(checkout, "run", "--rm", "perfrun", "index", **place)
    assert index.returncode == 0, index.stderr
    before = {
        path: path.read_bytes() for path in sorted(workspace.glob("output/*/*")) if path.is_file()
    }

    done = compose(
        user,
        checkout,
        repository,
        f"--benchmark_methods={HERE}.attacks,{HERE}.forked",
        "--profile=cprofile",
        **place,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    summaries = {
        each["name"].rpartition(".")[2]: read_summary(each, workspace)
        for each in results(done.stdout)
    }
    assert {name: one["perfrun"]["outcome"]["status"] for name, one in summaries.items()} == {
        "attacks": "passed",
        "forked": "passed",
    }
    assert [summaries[name]["benchmark_result"]["wall_time"] for name in ("attacks", "forked")] == [
        2.0,
        3.0,
    ]
    (said,) = (json.loads(path.read_text()) for path in workspace.glob("output/*/did.json"))
    assert "done" not in said["did"].values(), said["did"]
    assert said["uid"] not in (0, said["owner"])
    assert said["capabilities"] == ["0000000000000000"] * 4
    assert (said["new_privileges"], said["home"], said["shown"]) == ("1", True, False)
    assert {path: path.read_bytes() for path in before} == before
    # What was watched from outside is all there, though /proc shows it to its own user only.
    for one in summaries.values():
        assert one["perfrun"]["cpu"]["trial"]["written_bytes"] is not None, one["perfrun"]["cpu"]
    found = {str(path): path.lstat() for path in workspace.rglob("*")}
    owners = {name: (status.st_uid, status.st_gid) for name, status in found.items()}
    assert {n: who for n, who in owners.items() if who != (user.uid, user.gid)} == {}
    for path in workspace.rglob("*"):
        mode = path.lstat().st_mode
        assert path.is_symlink() or not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWGRP), path
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o700
    assert os.listxattr(workspace) == []


def test_what_only_its_owner_may_read_is_read_by_its_owner_and_a_line_says_so(
    checkout: Path, workspace: Path, repository: tuple[Path, str], user: Caller, torch_image: str
) -> None:
    data = workspace / "data"
    data.mkdir(mode=0o700)
    give(workspace, user)

    done = compose(
        user,
        checkout,
        repository,
        f"--benchmark_methods={HERE}.first",
        "--root_data_dir=/workspace/data",
        PERFRUN_WORKSPACE=str(workspace),
    )

    assert done.returncode == 0, done.stderr
    assert "another user cannot read /workspace/data: Permission denied; " in done.stderr
    (result,) = results(done.stdout)
    assert read_summary(result, workspace)["perfrun"]["cpu"]["trial"]["written_bytes"] is not None

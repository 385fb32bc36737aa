"""Who does things in the container tests, and with what: callers, checkouts, repositories."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

COMMAND_LIMIT_S = 900
REPOSITORY = Path(__file__).resolve().parents[2]
Completed = subprocess.CompletedProcess[str]
# For runs of PyTorch, as tests/conftest.py has it for those outside containers.
PASSIVE = "--env=OMP_WAIT_POLICY=PASSIVE"
BENCHMARKS = '''"""Benchmarks of somebody else's repository."""
import time

from perfrun import Benchmark


class Theirs(Benchmark):
    def quick(self):
        """Report and return."""
        self.report_benchmark(iters=1, wall_time=0.25)

    def endless(self):
        """Never return."""
        print("endless has begun", flush=True)
        time.sleep(3600)

    def broken(self):
        """Raise."""
        raise RuntimeError("broken on purpose")
'''


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A user of this machine who may use the engine; need not be in the password file."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path
    host: str = ""
    """Address of the engine (DOCKER_HOST); empty: whatever `docker` takes by itself."""
    harness_python: str = ""
    """An interpreter with perfrun's libraries that this user may run."""
    settings: dict[str, str] = field(default_factory=dict)
    """Environment variables besides PATH and HOME."""

    def environment(self, **settings: str) -> dict[str, str]:
        address = {"DOCKER_HOST": self.host} if self.host else {}
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), **address}
        return {**own, **self.settings, **settings}

    def identity(self) -> dict[str, Any]:
        """What subprocess needs to be this user."""
        if os.geteuid() != 0:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}

    def run(self, *argv: str | Path, cwd: Path, **settings: str) -> Completed:
        return subprocess.run(
            [str(word) for word in argv],
            cwd=cwd,
            env=self.environment(**settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
            **self.identity(),
        )

    def try_run(self, *argv: str | Path, cwd: Path) -> Completed | None:
        """The same, or None when this user cannot run such a program."""
        try:
            return self.run(*argv, cwd=cwd)
        except OSError:
            return None

    def docker(self, *arguments: str) -> str:
        """Asks this user's engine something; fails the test if it says no."""
        done = self.run("docker", *arguments, cwd=self.home)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def perfrun(self, checkout: Path, *words: str, cwd: Path, **settings: str) -> Completed:
        """Runs a checkout's perfrun on the host, not in a container."""
        entry = checkout / "perfrun" / "benchmark.py"
        return self.run(self.harness_python, entry, *words, cwd=cwd, **settings)

    def setup_py(self, checkout: Path, *flags: str, **settings: str) -> Completed:
        return self.run(self.python(), "-S", "setup.py", *flags, cwd=checkout, **settings)

    def python(self) -> str:
        """An interpreter that this user may run: that of the tests may lie in root's home."""
        for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            done = self.try_run(candidate, "-c", "", cwd=self.home)
            if done is not None and done.returncode == 0:
                return candidate
        pytest.fail(f"user {self.uid} can run no Python on this machine")

    def compose(self, checkout: Path, *words: str, **settings: str) -> Completed:
        return self.run("docker", "compose", *words, cwd=checkout, **settings)

    def owns(self, path: Path) -> bool:
        """Whether everything at and below `path` belongs to this user and group."""
        found = [path, *path.rglob("*")]
        return all(
            (item.lstat().st_uid, item.lstat().st_gid) == (self.uid, self.gid) for item in found
        )


def copy_checkout(target: Path, owner: Caller) -> Path:
    """What a clone of this repository would hold, with uncommitted changes, as `owner`'s."""
    listing = docker_free("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listing.split("\0")):
        source, copy = REPOSITORY / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    give(target, owner)
    return target


def make_repository(target: Path, owner: Caller) -> str:
    """A git repository with benchmark classes, which belongs to `owner`; returns its one commit."""
    (target / "theirs").mkdir(parents=True)
    (target / "theirs" / "benchmarks.py").write_text(BENCHMARKS, encoding="utf-8")
    author = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
    docker_free("git", "init", "-q", "-b", "main", ".", cwd=target)
    docker_free("git", "add", ".", cwd=target)
    docker_free("git", *author, "commit", "-q", "-m", "Benchmarks", cwd=target)
    give(target, owner)
    return docker_free("git", "-c", "safe.directory=*", "rev-parse", "HEAD", cwd=target).strip()


def give(folder: Path, owner: Caller) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.uid, owner.gid, follow_symlinks=False)


def docker_free(*argv: str, cwd: Path = REPOSITORY) -> str:
    """Runs a command that has nothing to do with containers, as whoever runs the tests."""
    return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True).stdout


def docker(*arguments: str) -> str:
    """Asks the machine's own engine something; fails the test if it says no."""
    done = subprocess.run(("docker", *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def results(stdout: str) -> list[dict[str, Any]]:
    """What `--format=json` printed; a build before the run may have printed more."""
    document = json.loads(stdout.splitlines()[-1])
    return list(document["results"])


def read_summary(result: dict[str, Any], workspace: Path) -> dict[str, Any]:
    """The summary that a run in a container named, read through the mounted folder."""
    inside = Path(result["summary"])
    document = json.loads((workspace / inside.relative_to("/workspace")).read_text("utf-8"))
    assert isinstance(document, dict)
    return document

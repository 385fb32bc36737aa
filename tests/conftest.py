"""What every test gets: no home directory, no network, and small git repositories and packages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def no_home_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make touching the home directory, or any host but this one, an error."""
    # A file in the place of a folder: whatever is read there is missing, and nothing can be made.
    monkeypatch.setenv("HOME", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file:git")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    for name in list(os.environ):
        if name.startswith(("PERFZERO_", "PERFRUN_PYTHON", "PERFRUN_IMAGE", "TEST_REPORT")):
            monkeypatch.delenv(name)
    connect = socket.socket.connect

    def local_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in (
            "127.0.0.1",
            "localhost",
            "::1",
        ):
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_connect)


@dataclass(frozen=True)
class Completed:
    """A finished `perfrun`."""

    code: int
    stdout: str
    stderr: str

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of `--format=json`."""
        results: list[dict[str, Any]] = json.loads(self.stdout)["results"]
        return results

    @property
    def statuses(self) -> list[str]:
        """The outcomes in the order of the trials."""
        return [result["status"] for result in self.results]

    def summaries(self) -> list[dict[str, Any]]:
        """The documents on disk."""
        return [
            json.loads(Path(result["summary"]).read_text(encoding="utf-8"))
            for result in self.results
        ]


Perfrun = Callable[..., Completed]


@pytest.fixture
def perfrun(tmp_path: Path) -> Perfrun:
    """Run the program in a process of its own, in `tmp_path`."""

    def run(
        *words: str, cwd: Path = tmp_path, env: dict[str, str] | None = None, timeout: float = 240
    ) -> Completed:
        done = subprocess.run(
            [sys.executable, str(ROOT / "perfrun" / "benchmark.py"), *words],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Completed(
            done.returncode,
            done.stdout.decode("utf-8", "backslashreplace"),
            done.stderr.decode("utf-8", "backslashreplace"),
        )

    return run


def write_package(folder: Path, source: str, module: str = "cases") -> Path:
    """Write `<folder>/pkg/<module>.py`; the method names then begin with `pkg.<module>.`."""
    package = folder / "pkg"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / f"{module}.py").write_text(source, encoding="utf-8")
    return folder


def interpreter(variable: str, requirement: str) -> str:
    """Return the interpreter that has a framework, or skip; CI makes a missing one a failure."""
    python = os.environ.get(variable)
    if python:
        return python
    reason = f"no interpreter with {requirement}: set {variable}"
    if os.environ.get("PERFRUN_REQUIRE_FRAMEWORKS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def tensorflow_python() -> str:
    """An interpreter with TensorFlow."""
    return interpreter("PERFRUN_TEST_TENSORFLOW_PYTHON", "TensorFlow")


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with PyTorch."""
    return interpreter("PERFRUN_TEST_TORCH_PYTHON", "PyTorch")


def git(folder: Path, *words: str) -> str:
    """Run git in `folder` as a fixed author at a fixed time, and return what it prints."""
    identity = {
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.com",
    }
    done: subprocess.CompletedProcess[str] = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**os.environ, **identity},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def make_repository(folder: Path, versions: Sequence[dict[str, str]]) -> list[str]:
    """Make a repository with one commit a version (file name -> text); return the hashes."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    hashes = []
    for number, files in enumerate(versions, start=1):
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"version {number}")
        hashes.append(git(folder, "rev-parse", "HEAD"))
    return hashes

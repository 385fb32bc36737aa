"""Small real git repositories for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
}


def git(folder: Path, *words: str) -> str:
    """Run git in `folder` as a fixed author, and return what it prints."""
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**os.environ, **_IDENTITY},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def make_repository(folder: Path, versions: Sequence[Mapping[str, str]]) -> list[str]:
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

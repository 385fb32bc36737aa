"""A capsule is put in place."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perfrun.compare.one_result import Asked
from perfrun.errors import UsageError
from perfrun.replay.capsule import Manifest, sha256_of, write_capsule
from perfrun.replay.opening import Opened, hold, open_capsule

COMMIT = "1" * 40
EMPTY = Manifest(python=("3.11", "cpython"), repositories=(), wheels=(), data=(), code=(), files={})


def opened(folder: Path, document: dict[str, Any], manifest: Manifest) -> Opened:
    asked = cast("Asked", SimpleNamespace(record=SimpleNamespace(document=document)))
    return Opened(asked=asked, manifest=manifest, digest="", place=folder, folder=folder)


def test_a_url_that_is_none_is_refused(tmp_path: Path) -> None:
    git = [
        {"directory": "repo", "git_hash": COMMIT, "url": "https://a.example/a,https://a.example/b"}
    ]
    row = {"directory": "repo", "commit": COMMIT, "file": "repositories/repo.bundle"}
    made = opened(tmp_path, {"perfrun": {"git": git}}, replace(EMPTY, repositories=(row,)))
    with pytest.raises(UsageError, match="the capsule's summary names no such commit"):
        made.plan("", lambda _: None)


@pytest.fixture
def capsule(tmp_path: Path) -> Path:
    """A capsule of next to nothing: its summary is refused, after it has been put in place."""
    (tmp_path / "made" / "code" / "0").mkdir(parents=True)
    (tmp_path / "made" / "code" / "0" / "cases.py").write_text("1")
    (tmp_path / "made" / "summary.json").write_text("{}")
    about: dict[str, Any] = {"python": {"version": "3.11", "implementation": "cpython"}}
    lists: dict[str, Any] = {name: [] for name in ("repositories", "wheels", "data", "code")}
    write_capsule(tmp_path / "made", {**about, **lists}, tmp_path / "capsule.tar")
    return tmp_path / "capsule.tar"


def test_the_trials_user_can_read_a_capsules_code(capsule: Path, tmp_path: Path) -> None:
    with ExitStack() as held, pytest.raises(UsageError, match="but no summary"):
        open_capsule(capsule, tmp_path / "workspace", "all", lambda _: None, held)
    (found,) = (tmp_path / "workspace" / "replays").glob("*/capsule")
    assert (found / "code" / "0" / "cases.py").is_file()
    assert found.stat().st_mode & 0o777 == 0o755


def test_two_replays_of_one_capsule_do_not_share_its_place(capsule: Path, tmp_path: Path) -> None:
    """The second has to wait as long as the first runs."""

    class Waits(Exception):  # noqa: N818
        pass

    notes: list[str] = []

    def notify(text: str) -> None:
        notes.append(text)
        if text.startswith("waiting"):
            raise Waits

    digest = sha256_of(capsule)
    replays = tmp_path / "workspace" / "replays"
    with ExitStack() as first:
        place = hold(replays, digest, notify, first)
        (place / "capsule").mkdir(parents=True)
        (place / "capsule" / "in_use").touch()
        with ExitStack() as held, pytest.raises(Waits):
            open_capsule(capsule, tmp_path / "workspace", "all", notify, held)
        assert (place / "capsule" / "in_use").exists()
    assert notes[-1].startswith(f"waiting for another replay in {place}")
    assert f"(process {os.getpid()} holds " in notes[-1]
    assert not list(replays.glob(".capsule-*"))
    with ExitStack() as held:
        assert hold(replays, digest, notify, held) == place  # free again


def test_a_workspace_that_cannot_be_written_is_said(capsule: Path, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "replays").touch()
    with ExitStack() as held, pytest.raises(UsageError, match=r"cannot be opened: .*File exists"):
        open_capsule(capsule, tmp_path / "workspace", "all", lambda _: None, held)

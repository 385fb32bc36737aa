"""Whose the files are that setup.py writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfrun.image.owner import find_caller, give_to_caller


@pytest.mark.parametrize(
    ("environment", "uid", "caller"),
    [
        ({}, 1000, (1000, 100)),
        ({}, 0, (0, 100)),
        ({"SUDO_UID": "1000", "SUDO_GID": "1001"}, 0, (1000, 1001)),
        ({"SUDO_UID": "1000"}, 0, (0, 100)),
        ({"SUDO_UID": "me", "SUDO_GID": "us"}, 0, (0, 100)),
        # Somebody who became another user with sudo -u: root's rights are gone.
        ({"SUDO_UID": "1000", "SUDO_GID": "1001"}, 33, (33, 100)),
    ],
)
def test_with_sudo_the_caller_is_who_typed_it(
    environment: dict[str, str], uid: int, caller: tuple[int, int]
) -> None:
    assert find_caller(environment, uid, 100) == caller


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_is_written_with_sudo_becomes_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to("/etc/passwd")
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setenv("SUDO_GID", "4322")

    give_to_caller(tmp_path / "a")

    for path in (tmp_path / "a", tmp_path / "a" / "link"):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (4321, 4322)
    assert Path("/etc/passwd").stat().st_uid == 0

"""--site_package_downloads: folders copied into the workspace, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.image.site_packages import copy_site_packages, find_caller, give_to_caller


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "my source"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "a.py").write_text("new = 1\n")
    (folder / "dangling").symlink_to("nowhere")
    return folder


def test_a_folder_arrives_under_its_new_name(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "work space"

    lines = copy_site_packages(((source, "models"),), workspace)

    target = workspace / "site-packages" / "models"
    assert lines == [f"copied {source} to {target}"]
    assert (target / "package" / "a.py").read_text() == "new = 1\n"
    assert [path.name for path in target.parent.iterdir()] == ["models"]


def test_a_folder_of_that_name_is_replaced_whole(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "w" / "site-packages" / "models"
    target.mkdir(parents=True)
    (target / "old.py").write_text("")

    copy_site_packages(((source, "models"),), tmp_path / "w")

    assert {path.name for path in target.iterdir()} == {"package"}
    assert [path.name for path in target.parent.iterdir()] == ["models"]


def test_a_copy_that_fails_leaves_what_was_there(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "w" / "site-packages" / "models"
    target.mkdir(parents=True)
    (target / "old.py").write_text("")
    os.mkfifo(source / "pipe")  # nothing that can be copied

    with pytest.raises(UsageError, match="cannot be copied") as caught:
        copy_site_packages(((source, "models"),), tmp_path / "w")

    assert "\n" not in str(caught.value)
    assert {path.name for path in target.iterdir()} == {"old.py"}
    assert [path.name for path in target.parent.iterdir()] == ["models"]


def test_a_source_inside_its_target_is_refused_before_anything_is_lost(tmp_path: Path) -> None:
    inside = tmp_path / "site-packages" / "models" / "deep"
    inside.mkdir(parents=True)

    for folder in (inside, inside.parent, tmp_path):
        with pytest.raises(UsageError, match="is in the way"):
            copy_site_packages(((folder, "models"),), tmp_path)
    assert inside.is_dir()


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

"""A repository, or a slip of the user, that would show a container more of the host than is meant.

Each case asks for the folders of one run; no engine is needed. That a container cannot do more with
what it is shown is tried in tests/docker/test_escapes.py.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.launchers.container_sandbox import Bind
from perfrun.launchers.mounts import code_folders, folders_of, mount_points, with_file_systems


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a key, a workspace with a checkout, and a repository of the user's own."""
    for folder in ("home/.ssh", "ws/site-packages/repo/.git", "mine/.git", "mine/src", "plain"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_ed25519").write_text("a private key")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def shown(world: Path, *items: str, data: str = "/nonexistent", engine: str = "") -> list[Path]:
    """The folders of the host, links resolved, that a container would see for these flags."""
    checkouts = world / "ws" / "site-packages"
    paths = [str(checkouts / item) for item in items]
    binds = [*folders_of(checkouts, data, engine), *code_folders(paths, checkouts, engine)]
    return [Path(os.path.realpath(bind.source or bind.path)) for bind in binds]


LINKS = {
    "a checkout's lib leads to the home": ("ws/site-packages/repo/lib", "home", "repo/lib"),
    "by a relative link": ("ws/site-packages/repo/lib", "../../../home", "repo/lib"),
    "to the keys in it": ("ws/site-packages/repo/lib", "home/.ssh", "repo/lib"),
    "to a folder above all": ("ws/site-packages/repo/lib", "../../..", "repo/lib"),
    "to the root": ("ws/site-packages/repo/lib", "/", "repo/lib"),
    "to the root, of this process": ("ws/site-packages/repo/lib", "/proc/self/root", "repo/lib"),
    "to /etc": ("ws/site-packages/repo/lib", "/etc", "repo/lib"),
    "to the workspace": ("ws/site-packages/repo/lib", "../..", "repo/lib"),
    "to the other checkouts": ("ws/site-packages/repo/lib", "..", "repo/lib"),
    "a link on the way": ("ws/site-packages/repo/a", "home", "repo/a/.ssh"),
    "a name that begins like the checkout's": ("ws/site-packages/repo/lib", "../repo2", "repo/lib"),
    "the user's own repository": ("mine/src/lib", "home", "{world}/mine/src/lib"),
    "a link on the way in it": ("mine/a", "home", "{world}/mine/a/.ssh"),
    "an unpacked archive leads to the home": ("plain/lib", "home", "{world}/plain/lib"),
    "an unpacked archive leads upwards": ("plain/lib", "..", "{world}/plain/lib"),
    "an unpacked archive leads to the root": ("plain/lib", "/", "{world}/plain/lib"),
}


@pytest.mark.parametrize(("link", "target", "item"), LINKS.values(), ids=LINKS)
def test_a_link_in_python_path_shows_nothing_but_its_checkout(
    world: Path, link: str, target: str, item: str
) -> None:
    (world / "ws/site-packages/repo2").mkdir()
    target = str(world / target) if target.startswith("home") else target
    (world / link).symlink_to(target)
    with pytest.raises(UsageError, match=r"--python_path.*container") as refused:
        shown(world, item.format(world=world))
    assert "\n" not in str(refused.value)


FOLDERS = {
    "the root": "/",
    "the root, with two slashes": "//",
    "above the root": "/..",
    "the root of this process": "/proc/self/root",
    "the root by a link": "{world}/root",
    "the processes": "/proc",
    "another process": "/proc/1",
    "the kernel": "/sys/fs/cgroup",
    "all devices": "/dev",
    "the home by a link": "{world}/home_link",
    "above the home by a link": "{world}/up",
    "the folder of the engine's socket": "{engine}",
    "above the engine's socket": "{engine}/..",
    "the engine's socket by a link": "{world}/socket_link",
}


@pytest.mark.parametrize("flag", ["data", "code"])
@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_is_the_whole_host_is_not_shown(
    world: Path, engine_socket: Path, folder: str, flag: str
) -> None:
    (world / "root").symlink_to("/")
    (world / "home_link").symlink_to(world / "home")
    (world / "up").symlink_to(world)
    (world / "socket_link").symlink_to(engine_socket.parent)
    path = folder.format(world=world, engine=engine_socket.parent)
    asked = ((), path) if flag == "data" else ((path,), "/nonexistent")
    with pytest.raises(UsageError, match="to the container"):
        shown(world, *asked[0], data=asked[1], engine=str(engine_socket))


@pytest.fixture
def engine_socket() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="perfrun-engine-"))  # a socket's path has 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        (folder / "run").mkdir()
        listener.bind(str(folder / "run" / "docker.sock"))
        yield folder / "run" / "docker.sock"
    shutil.rmtree(folder)


def test_what_the_user_names_is_shown_as_ever(world: Path) -> None:
    (world / "ws/site-packages/repo/src/pkg").mkdir(parents=True)
    (world / "ws/site-packages/repo/lib").symlink_to("src")
    (world / "big").mkdir()
    (world / "data").symlink_to("big")
    (world / "ws/site-packages/linked").symlink_to(world / "mine")
    (world / "home/.git").mkdir()  # settings that are kept in git
    (world / "home/code").symlink_to(world / "plain")
    known = len(shown(world))
    # A link within its checkout is the checkout's, which every container sees as a whole.
    assert shown(world, "repo/lib", "repo", "repo/src/pkg")[known:] == []
    assert shown(world, "linked/src")[known:] == [world / "mine/src"]
    assert shown(world, str(world / "mine/src"))[known:] == [world / "mine/src"]
    assert shown(world, str(world / "home"), str(world / "home/code"))[known:] == [
        world / "home",
        world / "plain",
    ]
    assert shown(world, data=str(world / "data"))[-1] == world / "big"
    assert shown(world, data=str(world / "home"))[-1] == world / "home"


@pytest.mark.root
def test_a_disk_below_a_read_only_folder_is_mounted_read_only_by_itself(world: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts a file system")
    disk = world / 'plain/a disk "1"\\'
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    try:
        assert disk in mount_points()
        (world / "alias").symlink_to("plain")
        alias = Bind(path=world / "alias", source=world / "plain")
        out = Bind(path=world / "plain", writable=True)
        assert with_file_systems([alias, out]) == (
            alias,
            Bind(path=world / "alias" / disk.name, source=disk),
            out,
        )
    finally:
        subprocess.run(["umount", disk], check=True)

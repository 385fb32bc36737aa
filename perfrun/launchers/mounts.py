"""The folders of the host that a trial's container sees, and those that it may not.

A repository is hostile input: a link in it may lead to the home folder, and an engine follows links
when it mounts a folder. So the source of each mount is resolved here, and a link must not lead out
of its checkout. An engine mounts other file systems below a read-only folder writable before Docker
25 and Linux 5.12; so each of these is mounted read-only by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfrun.errors import UsageError
from perfrun.launchers.container_sandbox import Bind
from perfrun.launchers.launcher import SHIPPED, WORKER

_PYTHON_PATH, _DATA = "--python_path", "--root_data_dir"
# A container has its own of these; with the host's it could do more than read a folder.
_KERNEL = ("/proc", "/sys")
# Who can connect to one of these is root, also where the folder that holds it is read-only.
_SOCKETS = ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def folders_of(
    site_packages: Path, root_data_dir: str, engine_socket: str = ""
) -> tuple[Bind, ...]:
    """Return the folders that every container sees, read-only: worker, code and data.

    Of perfrun's own package only the worker is among them, not the harness. Raises UsageError.
    """
    data = Path(root_data_dir)
    return (
        Bind(path=WORKER),
        Bind(path=WORKER.parent / "__init__.py"),
        Bind(path=SHIPPED / "benchmarks"),
        Bind(path=site_packages),
        *((_named(data, _DATA, engine_socket),) if data.is_absolute() else ()),
    )


def code_folders(
    paths: Iterable[str], site_packages: Path, engine_socket: str = ""
) -> tuple[Bind, ...]:
    """Return the folders of `--python_path` that lie elsewhere than in the checkouts.

    Raises UsageError for one that leads out of its checkout.
    """
    found = []
    for text in paths:
        path = _as_written(text)
        checkout = _checkout_of(path, site_packages)
        real = Path(os.path.realpath(path))
        if checkout is not None and not real.is_relative_to(os.path.realpath(checkout)):
            raise UsageError(
                f"{_PYTHON_PATH}: {path} is a link out of its checkout, to {real}, which a "
                "container is not shown; name that folder itself if it is meant"
            )
        bind = _named(path, _PYTHON_PATH, engine_socket)
        if not real.is_relative_to(os.path.realpath(site_packages)):
            found.append(bind)
    return tuple(found)


def with_file_systems(binds: Sequence[Bind]) -> tuple[Bind, ...]:
    """Return the binds, and for each other file system below a read-only one a bind of its own."""
    points = mount_points()
    return tuple(
        each
        for bind in binds
        for each in (bind, *(() if bind.writable else _file_systems_below(bind, points)))
    )


def mount_points(table: Path = Path("/proc/self/mountinfo")) -> tuple[Path, ...]:
    """Return the folders on which this process sees a file system mounted; see proc(5)."""
    try:
        lines = os.fsdecode(table.read_bytes()).split("\n")
    except OSError:
        return ()
    fields = (line.split(" ") for line in lines)
    return tuple(dict.fromkeys(Path(_unescaped(each[4])) for each in fields if len(each) > 4))


def _unescaped(text: str) -> str:
    """Return a path of the kernel's table: space, tab, newline and backslash are octal there."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def _file_systems_below(bind: Bind, points: Sequence[Path]) -> list[Bind]:
    real = Path(os.path.realpath(bind.source or bind.path))
    below = (point for point in points if real in point.parents)
    return [Bind(path=bind.path / point.relative_to(real), source=point) for point in below]


def _checkout_of(path: Path, site_packages: Path) -> Path | None:
    """Return the checkout that a path lies in: one that perfrun made, or another with a `.git`.

    The path is taken as it is written, because the links in it are what is judged.
    """
    base = _as_written(site_packages)
    if path != base and path.is_relative_to(base):
        return base / path.relative_to(base).parts[0]
    home = _as_written(Path.home())  # of some it is a repository: of their settings
    around = (p for p in (path, *path.parents) if not home.is_relative_to(p))
    return next((p for p in around if os.path.lexists(p / ".git")), None)


def _named(path: Path, flag: str, engine_socket: str) -> Bind:
    """Return the bind of a folder that the user has named. Raises UsageError."""
    path = _as_written(path)
    real = Path(os.path.realpath(path))
    shown = f"{flag}={path}" if path == real else f"{flag}={path} is a link to {real} and"
    if real == Path("/"):
        raise UsageError(f"{shown} would show this whole host to the container")
    if any(real.is_relative_to(kernel) for kernel in _KERNEL) or real == Path("/dev"):
        raise UsageError(f"{shown} would show this host's kernel to the container, not files")
    for socket in filter(None, (engine_socket, *_SOCKETS)):
        if Path(os.path.realpath(socket)).is_relative_to(real):
            raise UsageError(
                f"{shown} would show the engine's socket {socket} to the container: "
                "whoever reaches it commands the engine"
            )
    if path != real and (what := _held(path, real)):
        raise UsageError(f"{shown} would show {what} to the container")
    return Bind(path=path, source=real)


def _held(path: Path, real: Path) -> str | None:
    """Return the words for a folder that nobody means by a link; None for any other.

    A link on the way to the home folder is meant, as where `/home` is one itself.
    """
    if real in Path(os.path.realpath(path.parent), path.name).parents:
        return "a folder that holds this link"
    named = _as_written(Path.home())
    is_on_the_way = path == named or path in named.parents
    is_home = Path(os.path.realpath(named)).is_relative_to(real)
    return "your home folder" if is_home and not is_on_the_way else None


def _as_written(path: Path | str) -> Path:
    """Return an absolute path without `..`, its links not followed."""
    return Path(os.path.normpath(Path(path).absolute()))

"""Worlds whose perfrun is run by the user of an engine, as `perfrun --image=...` on the host."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from actors import give
from engines import Site
from worlds import World


def launched_world(place: Path, site: Site, source: str = "") -> Iterator[World]:
    """A world in a folder with a hostile name, everything in it the user's."""
    folder = Path(tempfile.mkdtemp(prefix="a 'world': of \"its\"\nown ", dir=place))
    user = site.user
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        groups = f"--groups={','.join(map(str, user.groups))}" if user.groups else "--clear-groups"
        prefix = ("setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", groups)
    world = World(
        folder,
        prefix=prefix,
        python=user.harness_python,
        entry=str(site.checkout / "perfrun" / "benchmark.py"),
        settings=user.environment(),
    )
    world.temporary.mkdir()
    world.write(source)
    give(folder, user)
    yield world
    shutil.rmtree(folder)

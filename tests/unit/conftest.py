"""Where an index can be: each test of the store runs in all of these places."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfrun.options.store_address import Address, parse_address

PLACES = [
    "workspace",
    "file",
    pytest.param("postgresql", marks=pytest.mark.postgresql),
]


def place(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Address:
    """An address at which there is no index yet."""
    workspace = tmp_path / "work space"
    workspace.mkdir()
    if kind == "workspace":
        return parse_address(None, workspace)
    if kind == "file":
        return parse_address(str(tmp_path / "a file? of #results%20.db"), workspace)
    server = request.getfixturevalue("postgresql")
    return parse_address(server.new_database(), workspace)


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """The index of a workspace, another file, a server."""
    return place(request, request.param, tmp_path)


@pytest.fixture(params=PLACES[1:])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """A store named with --store, which keeps what has gone: a file, a server."""
    return place(request, request.param, tmp_path)

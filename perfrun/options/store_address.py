"""The address of an index: the file in a workspace, another file, or a PostgreSQL server."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from perfrun.dataclass import dataclass
from perfrun.errors import UsageError
from perfrun.text import redact

FILE_NAME = "perfrun.db"
_POSTGRESQL = ("postgresql+psycopg", "postgresql", "postgres")


@dataclass(frozen=True, kw_only=True)
class Address:
    """The address of one index."""

    url: str  # of a server, as SQLAlchemy takes it; the path of a file
    shown: str  # without passwords
    file: Path | None = None  # of an SQLite index
    workspace: Path | None = None  # whose own index it is; None for one named with --store
    home: Path | None = None  # the workspace at hand; its quarantine holds for any index

    @property
    def is_sqlite(self) -> bool:
        """True for a file, False for a server."""
        return self.file is not None


def parse_address(store: str | None, workspace: Path) -> Address:
    """Turn `--store=URL|FILE` into an address; without it, that of the workspace's own index."""
    if not store:
        return _file(workspace / FILE_NAME, workspace, workspace)
    scheme, separator, rest = store.partition("://")
    if not separator:
        return _file(Path(store).absolute(), None, workspace)
    if scheme in _POSTGRESQL:
        _check_port(store)
        return Address(url=f"postgresql+psycopg://{rest}", shown=_shown(store), home=workspace)
    if scheme == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        return _file(Path(rest[1:]).absolute(), None, workspace)
    raise UsageError(
        f"--store={_shown(store)}: must be a file, sqlite:///FILE or "
        "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
    )


def _check_port(store: str) -> None:
    # By SQLAlchemy's rule a password may hold anything but `@`, a `/` and a `:` included.
    place = store.partition("://")[2].rpartition("@")[2]
    try:
        urlsplit(f"//{place}").port  # noqa: B018 - reading it is the check
    except ValueError:  # its text may have a part of the password
        raise UsageError(
            f"--store={_shown(store)}: its port must be a number from 0 to 65535"
        ) from None


def _shown(store: str) -> str:
    scheme, separator, rest = store.partition("://")
    _, at, place = rest.rpartition("@")
    return redact(f"{scheme}{separator}{'***' if at else ''}{at}{place}")


def _file(path: Path, workspace: Path | None, home: Path) -> Address:
    if os.path.isdir(path):  # noqa: PTH112 - pathlib raises for a name that is too long
        raise UsageError(f"--store={path}: is a folder; name a file in it, as {path / FILE_NAME}")
    return Address(url=str(path), shown=str(path), file=path, workspace=workspace, home=home)

"""A PostgreSQL server of the tests' own: a private cluster in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 120.0
PASSWORD = "s3cret/word"


@dataclass(frozen=True)
class Server:
    """A server that runs; each test gets a database of its own."""

    port: int

    def url(self, database: str, password: str = PASSWORD) -> str:
        """The address as a user writes it; `/` in a password must be written as %2F."""
        return (
            f"postgresql+psycopg://perfrun:{password.replace('/', '%2F')}"
            f"@127.0.0.1:{self.port}/{database}"
        )

    def new_database(self) -> str:
        """Make an empty database and return its address."""
        name = f"t{uuid.uuid4().hex}"
        with self.connection("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def connection(self, database: str):  # type: ignore[no-untyped-def]
        """A connection that commits each statement."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="perfrun",
            password=PASSWORD,
            dbname=database,
            autocommit=True,
        )


def programs() -> Path | None:
    """The folder with initdb and postgres; distributions do not put it on PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        folders.insert(0, Path(os.path.realpath(on_path)).parent)
    return next((one for one in folders if (one / "initdb").exists()), None)


@contextmanager
def running(bin_folder: Path) -> Iterator[Server]:
    """Make a cluster, run its server, and leave nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="perfrun-postgresql-"))
    # The server refuses to run as root.
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    prefix = user if os.geteuid() == 0 else []
    if prefix:
        shutil.chown(folder, "postgres", "postgres")
    passwords = folder / "password"
    passwords.write_text(PASSWORD, encoding="utf-8")
    passwords.chmod(0o644)
    data = folder / "data"
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    initdb = [str(bin_folder / "initdb"), "--auth=scram-sha-256", "--username=perfrun"]
    initdb += [f"--pgdata={data}", f"--pwfile={passwords}", "--encoding=UTF8", "--no-sync"]
    server = None
    try:
        subprocess.run(
            [*prefix, *initdb], check=True, stdout=subprocess.PIPE, env=environment, cwd="/"
        )
        port = _free_port()
        words = [str(bin_folder / "postgres"), "-D", str(data), "-p", str(port)]
        words += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        words += ["-c", "fsync=off"]
        with (folder / "log").open("w", encoding="utf-8") as log:
            server = subprocess.Popen(
                [*prefix, *words], stdout=log, stderr=log, env=environment, cwd="/"
            )
        made = Server(port=port)
        _wait(made, server, folder / "log")
        yield made
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)
            server.wait(PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            server.connection("postgres").close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{error}\n{log.read_text(encoding='utf-8')}") from error
            time.sleep(0.1)
        else:
            return

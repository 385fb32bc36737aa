"""A PostgreSQL server of the tests' own: a private cluster in a temporary folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "s3cret/word"
_START_S = 60.0  # for a server to start again


@dataclass(frozen=True)
class Server:
    """A server that runs; each test gets a database of its own."""

    port: int
    data: Path
    control: tuple[str, ...]  # pg_ctl, as the user whom the server needs

    @property
    def pids(self) -> list[int]:
        """The processes of the server that live, the postmaster first if it does."""
        first = self._postmaster()
        return sorted(_pids(self.data), key=lambda pid: (pid != first, pid))

    def _postmaster(self) -> int | None:
        try:
            return int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, IndexError):
            return None

    def stop(self, mode: str) -> None:
        """Stop it, if it runs: `smart`, `fast`, or `immediate` (the next start is a recovery)."""
        if self._postmaster() in self.pids:
            self._told("-m", mode, "stop")

    def start(self) -> None:
        """Start it again on its port, whatever it ended by; nothing if it runs."""
        end = time.monotonic() + _START_S
        words = ["-o", _options(self.port), f"--log={self.data / 'server.log'}", "start"]
        while not self._answers():
            if not self.pids:  # those of a postmaster that was killed end first
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                self._told(*words)
            assert time.monotonic() < end, (self.data / "server.log").read_text()[-2000:]
            time.sleep(0.02)

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connection("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _told(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.control, *words],
            env=_environment(),
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )

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
    environment = _environment()
    initdb = [str(bin_folder / "initdb"), "--auth=scram-sha-256", "--username=perfrun"]
    initdb += [f"--pgdata={data}", f"--pwfile={passwords}", "--encoding=UTF8", "--no-sync"]
    # Started by pg_ctl the server is nobody's child here: tests of the launcher kill all children
    # that this process has, as a trial's leftovers.
    control = [*prefix, str(bin_folder / "pg_ctl"), f"--pgdata={data}", "-w", "-t", "120"]
    try:
        subprocess.run(
            [*prefix, *initdb], check=True, stdout=subprocess.PIPE, env=environment, cwd="/"
        )
        server = Server(port=_start(control, data, environment), data=data, control=tuple(control))
        yield server
    finally:
        if (data / "postmaster.pid").exists() and _pids(data):
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, env=environment, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


def _start(control: list[str], data: Path, environment: dict[str, str]) -> int:
    """Start the server and return its port: one that nobody else has taken in the meantime."""
    log = data / "server.log"
    for _ in range(5):
        port = _free_port()
        start = [*control, "-o", _options(port), f"--log={log}", "start"]
        done = subprocess.run(
            start, stdout=subprocess.DEVNULL, env=environment, cwd="/", check=False
        )
        if done.returncode == 0:
            return port
    raise RuntimeError(f"no PostgreSQL server: {log.read_text(errors='replace')[-2000:]}")


def _pids(data: Path) -> list[int]:
    """The processes of a cluster. A zombie has no working folder; nobody may have reaped it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == data:
                found.append(int(process.name))
    return found


def _options(port: int) -> str:
    return f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

"""Hosts of the tests' own: an sshd each, on a port of this machine, with a home of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
_START_S = 60.0
_TRIES = 5  # ports
ENTRY = Path(__file__).resolve().parent.parent / "perfrun" / "benchmark.py"


@dataclass(frozen=True)
class SshHost:
    """A host that answers."""

    name: str
    home: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End the host as a power cut does: its server and all that came in over it."""
        if self.process.poll() is not None:
            return  # its number may be another process's by now
        below = [self.process.pid]
        for pid in below:  # it grows
            with suppress(OSError):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    below += map(int, (thread / "children").read_text().split())
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Hosts:
    """Some hosts, and the configuration of the ssh client that knows them."""

    hosts: dict[str, SshHost]
    config: Path

    @property
    def words(self) -> list[str]:
        """The flags of `perfrun submit` for all of them."""
        return flags(self.config, *self.hosts)


def flags(config: Path, *names: str) -> list[str]:
    """The flags of `perfrun submit` for hosts on which perfrun has the same path as here."""
    return [
        "--engine=ssh",
        f"--hosts={','.join(names)}",
        f"--ssh_options=-F '{config}'",
        f"--remote_perfrun='{sys.executable}' '{ENTRY}'",
    ]


@contextmanager
def hosts(folder: Path, *names: str) -> Iterator[Hosts]:
    """Start a host for each name; `folder` gets homes, keys and configurations."""
    if SERVER is None:
        reason = "there is no sshd: install openssh-server"
        if os.environ.get("PERFRUN_REQUIRE_SLURM") == "1":  # CI, which installs both
            pytest.fail(reason)
        pytest.skip(reason)
    config = make_keys(folder)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd separates its privileges there
    made: dict[str, SshHost] = {}
    try:
        for name in names:
            (folder / name).mkdir()
            port = _started(folder, name, made)
            add_host(folder, name, "127.0.0.1", port)
        yield Hosts(made, config)
    finally:
        for host in made.values():
            host.kill()


def make_keys(folder: Path) -> Path:
    """Make a folder with the keys of a user and of servers; return the client's configuration."""
    folder.mkdir(mode=0o700)
    for key in ("user", "server"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True)
    return folder / "config"


def add_host(folder: Path, name: str, address: str, port: int) -> None:
    """Have the client know a host, which has the key of the servers."""
    with (folder / "config").open("a") as file:
        file.write(
            f"Host {name}\n HostName {address}\n Port {port}\n User {getpass.getuser()}\n"
            f' IdentityFile "{folder / "user"}"\n IdentitiesOnly yes\n'
            f' UserKnownHostsFile "{folder / "known_hosts"}"\n StrictHostKeyChecking yes\n'
        )
    with (folder / "known_hosts").open("a") as file:
        public = (folder / "server.pub").read_text().rsplit(" ", 1)[0]
        file.write(f"[{address}]:{port} {public}\n")


def _started(folder: Path, name: str, made: dict[str, SshHost]) -> int:
    """Start a host; return its port. Another process may take a free one first: then again."""
    for _ in range(_TRIES):
        port = _free_port()
        made[name] = SshHost(name, folder / name, _serve(folder, name, port))
        if _answers(port, made[name].process, folder / f"{name}.log"):
            return port
    raise AssertionError((folder / f"{name}.log").read_text())


def _serve(folder: Path, name: str, port: int) -> subprocess.Popen[bytes]:
    home = folder / name
    (folder / f"{name}.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'server'}\n"
        f"AuthorizedKeysFile {folder / 'user.pub'}\nPasswordAuthentication no\n"
        f"KbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
        f"PidFile none\nSetEnv HOME={home} PYTHONDONTWRITEBYTECODE=1\n"
    )
    assert SERVER
    return subprocess.Popen(
        [SERVER, "-D", "-f", str(folder / f"{name}.conf"), "-E", str(folder / f"{name}.log")],
        stdin=subprocess.DEVNULL,
    )


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait for a server; False when it has ended. What answers on its port may be another one."""
    end = time.monotonic() + _START_S
    while process.poll() is None:
        text = log.read_text() if log.exists() else ""
        if f"Server listening on 127.0.0.1 port {port}." in text:
            return True
        assert time.monotonic() < end, text
        time.sleep(0.02)
    return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

"""Hosts of the tests' own: an sshd each, on a port of this machine, with a home of its own."""

from __future__ import annotations

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

_SERVER = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
_START_S = 60.0
ENTRY = Path(__file__).resolve().parent.parent / "perfrun" / "benchmark.py"


@dataclass(frozen=True)
class SshHost:
    """A host that answers."""

    name: str
    home: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """End the host as a power cut does: its server and all that came in over it."""
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
        remote = f"'{sys.executable}' '{ENTRY}'"
        return [
            "--engine=ssh",
            f"--hosts={','.join(self.hosts)}",
            f"--ssh_options=-F '{self.config}'",
            f"--remote_perfrun={remote}",
        ]


@contextmanager
def hosts(folder: Path, *names: str) -> Iterator[Hosts]:
    """Start a host for each name; `folder` gets homes, keys and configurations."""
    if _SERVER is None:
        pytest.skip("there is no sshd: install openssh-server")
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd separates its privileges there
    for key in ("user", "server"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True)
    config, known = folder / "config", folder / "known_hosts"
    made: dict[str, SshHost] = {}
    try:
        for name in names:
            port = _free_port()
            with config.open("a") as file:
                file.write(
                    f"Host {name}\n HostName 127.0.0.1\n Port {port}\n"
                    f' IdentityFile "{folder / "user"}"\n IdentitiesOnly yes\n'
                    f' UserKnownHostsFile "{known}"\n StrictHostKeyChecking yes\n'
                )
            with known.open("a") as file:
                public = (folder / "server.pub").read_text().rsplit(" ", 1)[0]
                file.write(f"[127.0.0.1]:{port} {public}\n")
            made[name] = SshHost(name, folder / name, _serve(folder, name, port))
            _wait_for(port, made[name].process, folder / f"{name}.log")
        yield Hosts(made, config)
    finally:
        for host in made.values():
            host.kill()


def _serve(folder: Path, name: str, port: int) -> subprocess.Popen[bytes]:
    home = folder / name
    home.mkdir()
    (folder / f"{name}.conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'server'}\n"
        f"AuthorizedKeysFile {folder / 'user.pub'}\nPasswordAuthentication no\n"
        f"KbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
        f"PidFile none\nSetEnv HOME={home} PYTHONDONTWRITEBYTECODE=1\n"
    )
    assert _SERVER
    return subprocess.Popen(
        [_SERVER, "-D", "-f", str(folder / f"{name}.conf"), "-E", str(folder / f"{name}.log")],
        stdin=subprocess.DEVNULL,
    )


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

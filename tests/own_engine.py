"""A container engine of a test's own, which may be killed and stopped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from worlds import PATIENCE_S, wait_until


@dataclass(frozen=True)
class OwnEngine:
    """A daemon with folders, containerd, socket and network namespace of its own.

    In the host's network namespace a second daemon would take the first one's bridge away.
    """

    folder: Path

    @property
    def host(self) -> str:
        return f"unix://{self.folder / 'socket'}"

    def start(self) -> subprocess.Popen[bytes]:
        # A killed daemon's containerd ends with it and leaves its socket, which is waited for.
        shutil.rmtree(self.folder / "exec" / "containerd", ignore_errors=True)
        with (self.folder / "log").open("ab") as log:
            daemon = subprocess.Popen(
                [
                    "unshare",
                    "--net",
                    "dockerd",
                    f"--host={self.host}",
                    f"--data-root={self.folder / 'data'}",
                    f"--exec-root={self.folder / 'exec'}",
                    f"--pidfile={self.folder / 'pid'}",
                    "--iptables=false",
                ],
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: self.docker("info").returncode == 0 or daemon.poll() is not None)
        assert daemon.poll() is None, (self.folder / "log").read_text()[-2000:]
        return daemon

    def docker(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["docker", "-H", self.host, *words], capture_output=True, check=False)

    def pids(self, program: str) -> list[int]:
        """The processes of its `containerd`, or those named `containerd-shim` and a version."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (process / "cmdline").read_bytes()
                name = Path(os.fsdecode(line.split(b"\0")[0])).name
                if re.sub(r"-runc-v\d$", "", name) == program and bytes(self.folder) + b"/" in line:
                    found.append(int(process.name))
        return found


@contextmanager
def own_engine_with(image: str) -> Iterator[OwnEngine]:
    """Make an engine that has an image of the machine's own one. It does not run yet."""
    engine = OwnEngine(Path(tempfile.mkdtemp(prefix="pfd-")))  # sockets below it have short paths
    try:
        daemon = engine.start()
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
            load = ["docker", "-H", engine.host, "load"]
            subprocess.run(load, stdin=save.stdout, check=True, capture_output=True)
        daemon.terminate()
        daemon.wait(PATIENCE_S)
        yield engine
    finally:
        for pid in engine.pids("containerd-shim"):  # those of a daemon that was killed
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for path in reversed([p for p in mounted if p.startswith(f"{engine.folder}/")]):
            subprocess.run(["umount", path], check=False)
        shutil.rmtree(engine.folder)


def end(daemon: subprocess.Popen[bytes]) -> None:
    """Stop a daemon, one that stands still, too."""
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGCONT)
        daemon.terminate()
    daemon.wait(PATIENCE_S)

"""Hosts that are containers with an sshd each: another kernel's view, another disk, another name.

The server and perfrun are those of this machine, mounted: nothing has to be installed there.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from engines import give_up
from sshd import ENTRY, SERVER, add_host, flags, make_keys
from worlds import PATIENCE_S, World, finish, strict, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]
NAMES = ("alpha", "beta")
CASES = """
import os, socket, time
from perfrun import Benchmark

class Cases(Benchmark):
    def fine(self):
        if socket.gethostname() == "beta":
            open("/notes/held", "w").close()
            time.sleep(600)
        self.report_benchmark(wall_time=1.0)
"""
CONFIGURATION = """
HostKey /keys/server
AuthorizedKeysFile /keys/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
"""


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def containers(tmp_path: Path, base_image: str) -> Iterator[dict[str, str]]:
    """The ids of two hosts that answer; `tmp_path / "keys"` has the client's configuration."""
    if os.geteuid() != 0 or shutil.which("docker") is None or SERVER is None:
        give_up("this needs root, docker and sshd (package openssh-server)")
    keys = tmp_path / "keys"
    make_keys(keys)
    (keys / "sshd").write_text(CONFIGURATION)
    (keys / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
    )
    (tmp_path / "notes").mkdir()
    root = ENTRY.parent.parent
    mounted = {
        str(keys): "/keys",
        str(keys / "passwd"): "/etc/passwd",
        SERVER: "/usr/sbin/sshd",
        "/usr/lib/x86_64-linux-gnu": "/libraries",
        **{path: path for path in (str(root), sys.prefix, sys.base_prefix) if path != "/usr"},
    }
    words = [f"--mount=type=bind,src={a},dst={b},readonly" for a, b in mounted.items()]
    words += [f"--mount=type=bind,src={tmp_path / 'notes'},dst=/notes"]
    served = "exec /usr/sbin/sshd -D -e -f /keys/sshd"
    serve = f"mkdir -p /run/sshd && LD_LIBRARY_PATH=/libraries {served}"
    made: dict[str, str] = {}
    try:
        for name in NAMES:
            run = ["run", "-d", "--rm", "--init", f"--hostname={name}", "-p=127.0.0.1::22"]
            made[name] = docker(*run, *words, base_image, "sh", "-c", serve)
            port = int(docker("port", made[name], "22").rpartition(":")[2])
            wait_for(port, made[name])
            add_host(keys, name, "127.0.0.1", port)
        yield made
    finally:
        for one in made.values():
            subprocess.run(["docker", "rm", "-f", one], capture_output=True, check=False)


def wait_for(port: int, container: str) -> None:
    """Wait until the server greets: the engine takes connections before it does."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as one:
            if one.recv(4) == b"SSH-":
                return
        time.sleep(0.05)
    raise AssertionError(docker("logs", container))


def test_a_suite_runs_on_containers_of_which_one_is_killed(
    containers: dict[str, str], tmp_path: Path
) -> None:
    world = World(tmp_path / "a b")
    (world.folder / "code").mkdir(parents=True)
    (world.folder / "code" / "cases.py").write_text(CASES)
    suite = world.folder / "suite.toml"
    suite.write_text('python_path = ["./code"]\n[[methods]]\nname = "cases.Cases.fine"\n')
    words = [world.python, world.entry, "submit", str(suite), "--rounds=2", "--format=json"]
    process = world.start_words([*words, *flags(tmp_path / "keys" / "config", *NAMES)])
    wait_until((tmp_path / "notes" / "held").exists)
    docker("kill", containers["beta"])
    done = finish(process)
    assert done.code == 0, done.stderr
    said = strict(done.stdout)
    assert said["states"] == {"done": 2}
    assert sorted(one["attempts"] for one in said["shards"]) == [1, 2]
    assert "beta does not answer as it should" in done.stderr
    paths = list((world.workspace / "output").glob("*/perfzero_summary.json"))
    machines = [json.loads(path.read_text())["system_info"]["hostname"] for path in paths]
    assert machines == ["alpha", "alpha"]

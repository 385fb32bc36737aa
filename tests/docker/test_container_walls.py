"""A trial that tries to get out of its container fails inside, is reported, and harms nobody."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import ROOTLESS, Site, both_engines
from launched import launched_world
from worlds import Finished, World

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900), both_engines]
CASES = "pkg.cases.Cases"
HEAD = """
import errno, json, socket
from pathlib import Path

def attempt(action):
    '''What became of it: "done", or the name of the error.'''
    try:
        action()
        return "done"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))

class Cases(Benchmark):
    def first(self):
        Path(self.output_dir, "mine").write_text("of the first trial")
        self.report_benchmark(wall_time=1.0)

    def last(self):
        self.report_benchmark(wall_time=3.0)

    def says(self, **facts):
        Path(self.output_dir, "facts.json").write_text(json.dumps(facts))
"""


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    yield from launched_world(place, site)


@pytest.fixture
def secret(place: Path, site: Site) -> Path:
    """A file in the home of the very user who runs the benchmark."""
    path = site.user.home / "secret.txt"
    path.write_text("a secret")
    path.chmod(0o644)
    return path


def run(world: World, body: str, *words: str) -> tuple[Finished, dict[str, Any], dict[str, Any]]:
    """Run `first`, the attempt and `last`; return the attempt's summary and what it found out."""
    attempt = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    world.write(f"{HEAD}\n    def attempts(self):\n{attempt}\n")
    methods = f"{CASES}.first,{CASES}.attempts,{CASES}.last"
    image = f"--image={os.environ['PERFRUN_TEST_BASE_IMAGE']}"
    done = world.run("--format=json", "--quiet", image, "--timeout=120", *words, methods=methods)
    assert [done.statuses[0], done.statuses[2]] == ["passed", "passed"], done.stderr
    assert "internal error" not in done.stderr
    assert world.left_running() == []
    facts = Path(done.results[1]["summary"]).parent / "facts.json"
    found = json.loads(facts.read_text()) if facts.exists() else {}
    return done, done.summaries()[1], found


def outcome(summary: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = summary["perfrun"]["outcome"]
    return found


def test_nothing_can_be_written_but_the_output_folder(world: World, secret: Path) -> None:
    outside = [
        str(secret.parent / "new"),
        str(secret),
        str(world.folder / "new"),
        str(world.folder / "code" / "pkg" / "new"),
        str(world.folder / "code" / "pkg" / "cases.py"),
        str(world.workspace / "new"),
        "/new",
        "/etc/new",
        "/usr/new",
        "/proc/sys/kernel/core_pattern",
        "/sys/new",
    ]
    source = f"""
        outside = {outside!r}
        earlier = [str(path / "mine") for path in Path(self.output_dir).parent.iterdir()]
        self.says(
            outside=[attempt(lambda: open(path, "a").write("x")) for path in outside],
            own=attempt(lambda: Path(self.output_dir, "x").write_text("x")),
            home=attempt(lambda: Path.home().joinpath("x").write_text("x")),
            temporary=attempt(lambda: Path("/tmp/x").write_text("x")),
            seen=sorted(os.listdir(Path(self.output_dir).parent)),
        )
        open(outside[6], "w")
    """
    before = sorted(world.workspace.rglob("*"))
    done, summary, found = run(world, source)
    assert outcome(summary)["status"] == "failed"
    assert "Read-only file system: '/new'" in outcome(summary)["reason"]
    # Folders on the way to a mounted one are the container's own, and so is what is made in them.
    assert [path for path in outside if path.endswith("new") and Path(path).exists()] == []
    assert not {"done"} & set(found["outside"][3:5] + found["outside"][6:])
    assert (found["own"], found["home"], found["temporary"]) == ("done",) * 3
    assert found["seen"] == [Path(done.results[1]["summary"]).parent.name]  # no other trial's
    assert secret.read_text() == "a secret"
    assert before == []
    assert (world.folder / "code" / "pkg" / "cases.py").read_text().endswith("\n")
    first = Path(done.results[0]["summary"]).parent / "mine"
    assert first.read_text() == "of the first trial"


@pytest.fixture
def server() -> Iterator[int]:
    """Somebody on this host who answers on every address that it has."""
    with socket.create_server(("", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener,), daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket) -> None:
    try:
        while True:
            listener.accept()[0].close()
    except OSError:
        return


def test_there_is_no_network_unless_it_is_asked_for(world: World, server: int, site: Site) -> None:
    source = f"""
        hosts = ["127.0.0.1", "172.17.0.1", "10.0.2.2"]
        connect = lambda host: socket.create_connection((host, {server}), 2).close()
        self.says(
            answers=[attempt(lambda: connect(host)) for host in hosts],
            interfaces=sorted(os.listdir("/sys/class/net")),
            names=attempt(lambda: socket.getaddrinfo("example.org", 80)),
            unix=[attempt(lambda: open(p)) for p in ("/var/run/docker.sock", "/run/docker.sock")],
        )
        connect("172.17.0.1")
    """
    _, summary, found = run(world, source)
    assert outcome(summary)["status"] == "failed"
    assert "Network is unreachable" in outcome(summary)["reason"]
    assert not {"done"} & {*found["answers"], *found["unix"], found["names"]}
    assert "eth0" not in found["interfaces"]
    assert summary["perfrun"]["container"]["network"] == "none"
    _, summary, found = run(world, source, "--trial_network=bridge")
    assert "eth0" in found["interfaces"]
    assert summary["perfrun"]["container"]["network"] == "bridge"
    if site.kind != ROOTLESS:
        assert found["answers"][1] == "done"


def test_the_home_of_the_caller_and_the_rest_of_the_host_cannot_be_read(
    world: World, secret: Path
) -> None:
    source = f"""
        paths = [{str(secret)!r}, "/proc/1/root{secret}", {str(world.workspace / "runs")!r}]
        self.says(
            reads=[attempt(lambda: os.stat(path)) for path in paths],
            environment=sorted(os.environ),
            mounts=Path("/proc/self/mounts").read_text(),
        )
        open(paths[0])
    """
    _, summary, found = run(world, source)
    assert outcome(summary)["status"] == "failed"
    assert "No such file or directory" in outcome(summary)["reason"]
    assert not {"done"} & set(found["reads"])
    assert str(secret.parent) not in found["mounts"].replace("\\040", " ")


def test_no_privilege_can_be_had(world: World) -> None:
    source = """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        def mount():
            if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None):
                raise OSError(ctypes.get_errno(), "mount")
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        self.says(
            capabilities=[status[k].strip() for k in ("CapEff", "CapPrm", "CapBnd", "CapAmb")],
            no_new_privileges=status["NoNewPrivs"].strip(), seccomp=status["Seccomp"].strip(),
            attempts=[attempt(a) for a in (
                mount, lambda: os.chroot("/tmp"), lambda: os.setuid(12345), lambda: os.nice(-5),
                lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)),
                lambda: os.chown("/tmp", 12345, 12345), lambda: os.sched_setscheduler(
                    0, os.SCHED_FIFO, os.sched_param(1)),
            )],
        )
        mount()
    """
    _, summary, found = run(world, source)
    assert outcome(summary)["status"] == "failed"
    assert found["capabilities"] == ["0" * 16] * 4
    assert (found["no_new_privileges"], found["seccomp"]) == ("1", "2")
    assert set(found["attempts"]) <= {"EPERM", "EACCES", "EINVAL"}, found["attempts"]


def test_processes_of_the_host_cannot_be_signalled(world: World, site: Site) -> None:
    bystander = subprocess.Popen(["sleep", "600"], **site.user.identity())
    try:
        source = f"""
            self.says(
                kill=attempt(lambda: os.kill({bystander.pid}, 9)),
                seen=[int(name) for name in os.listdir("/proc") if name.isdigit()],
            )
            os.kill({bystander.pid}, 9)
        """
        _, summary, found = run(world, source)
        assert outcome(summary)["status"] == "failed"
        assert "ProcessLookupError" in outcome(summary)["reason"]
        assert found["kill"] == "ESRCH"
        assert len(found["seen"]) < 8
        assert bystander.poll() is None
        # All that it may signal is its own, and not its supervisor, which is process 1.
        source = """
            child = subprocess.Popen(["sleep", "600"])
            os.kill(-1, 9)
            self.report_benchmark(wall_time=float(-child.wait()))
        """
        _, summary, _ = run(world, source)
        assert outcome(summary)["status"] == "passed"
        assert summary["benchmark_result"]["wall_time"] == 9.0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_forking_without_end_ends_at_the_limit(world: World, site: Site) -> None:
    if site.kind == ROOTLESS:
        pytest.skip("a rootless engine has no pid limit on cgroup v1; the summary says so")
    source = """
        while True:
            os.fork()
    """
    _, summary, _ = run(world, source, "--pids_limit=100")
    found = outcome(summary)
    assert (found["status"], found["exception"]["type"]) == ("failed", "BlockingIOError")
    assert summary["perfrun"]["container"]["limits"]["pids"] == 100


def test_what_cannot_be_limited_is_said_with_what_would_enable_it(world: World, site: Site) -> None:
    _, summary, _ = run(world, "self.report_benchmark()", "--memory=1g", "--cpuset=0")
    limits = summary["perfrun"]["container"]["limits"]
    peak = summary["perfrun"]["memory"]["cgroup"]["peak"]
    if site.kind == ROOTLESS and summary["perfrun"]["container"]["cgroup_driver"] == "none":
        assert limits["not_enforced"] == ["--memory", "--pids_limit"]
        assert "systemd.unified_cgroup_hierarchy=1" in limits["how_to_enforce"]
        assert peak["bytes"] is None
        assert peak["enable"] == limits["how_to_enforce"]
    else:
        assert peak["source"].startswith("cgroup v")
        assert peak["bytes"] > 5 * 2**20
        assert limits["not_enforced"] == []
        assert limits["how_to_enforce"] is None


def test_filling_memory_is_ended_at_the_limit_and_said_with_limit_and_peak(
    world: World, site: Site
) -> None:
    if site.kind == ROOTLESS:
        pytest.skip("a rootless engine has no memory limit on cgroup v1; the summary says so")
    source = """
        hold = []
        while True:
            hold.append(bytearray(b"x") * (8 << 20))
    """
    _, summary, _ = run(world, source, "--memory=128m")
    found = outcome(summary)
    assert found["status"] == "oom_killed"
    assert "limit 128.0 MiB, peak 128.0 MiB" in found["reason"]
    # Of a child, the method itself may go on; the summary says what happened to it.
    source = """
        hold = "x = [bytearray(b'x') * (8 << 20) for _ in range(100)]"
        child = subprocess.run([sys.executable, "-c", hold])
        self.report_benchmark(wall_time=float(-child.returncode))
    """
    _, summary, _ = run(world, source, "--memory=128m")
    assert outcome(summary)["status"] == "passed"
    assert summary["benchmark_result"]["wall_time"] == 9.0
    assert "the kernel killed 1 process(es)" in "\n".join(summary["perfrun"]["notes"])


def test_filling_the_disk_ends_at_the_size_of_what_is_in_memory(world: World) -> None:
    source = """
        def fill(folder):
            with open(folder + "/filler", "wb") as file:
                while True:
                    file.write(b"x" * (1 << 20))
        self.says(filled=[attempt(lambda: fill(folder)) for folder in ("/run", "/dev/shm", "/")])
        fill("/run")
    """
    _, summary, found = run(world, source, "--shm_size=32m")
    assert found["filled"] == ["ENOSPC", "ENOSPC", "EROFS"]
    assert outcome(summary)["status"] == "failed"
    assert "No space left on device" in outcome(summary)["reason"]

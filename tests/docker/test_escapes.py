"""One trial tries all ways out of its container, one after the other, and says which it found."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import Site, both_engines
from launched import launched_world
from worlds import World

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900), both_engines]

BENCHMARK = '''
import ctypes, errno, glob, json, socket, struct
from pathlib import Path

HOST = json.loads(Path(__file__).with_name("host.json").read_text())
CODE, SECRET = Path(__file__).parent, Path(HOST["secret"])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number, *arguments):
    """A system call of x86-64 or arm64; raises OSError."""
    number = number[os.uname().machine == "aarch64"]
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def text(path):
    return ctypes.create_string_buffer(os.fsencode(str(path)))


def wrote(path, data="hacked", how="a"):
    with open(path, how) as file:
        file.write(data)


def connect(host):
    socket.create_connection((host, HOST["port"]), 2).close()


def unix(address):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)


def any_of(action, choices):
    """Succeeds when one of them does."""
    for choice in choices:
        try:
            return action(choice)
        except OSError as error:
            last = error
    raise last


def stopped(number):
    os.kill(1, number)
    time.sleep(0.2)
    if Path("/proc/1/stat").read_text().rpartition(")")[2].split()[0] != "T":
        raise OSError(errno.EPERM, "it goes on")


def as_another():
    """Run a program that belongs to root and is setuid."""
    found = subprocess.run([HOST["setuid"], "-u"], capture_output=True, text=True, check=True)
    if found.stdout.strip() == str(os.getuid()):
        raise OSError(errno.EPERM, "it runs as the caller")


def sees_the_host():
    for name in filter(str.isdigit, os.listdir("/proc")):
        if HOST["mark"].encode() in Path("/proc", name, "cmdline").read_bytes():
            return
    raise OSError(errno.ENOENT, "it sees no process of the host")


def raised_limit():
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))


def forged():
    wrote("/proc/1/fd/1", json.dumps({"exit": {"exit_code": 0, "signal_number": None}}) + "\\n")


def file_handle():
    """Open a file of the host by its number, as a process with CAP_DAC_READ_SEARCH can."""
    handle = ctypes.create_string_buffer(struct.pack("=IiII", 8, 1, 2, 0), 128)
    mount = os.open("/", os.O_RDONLY)
    call((304, 265), mount, handle, os.O_RDONLY)


CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096

ATTEMPTS = {
    # Files of the host
    "read the home": lambda out: SECRET.read_text(),
    "read the home through process 1": lambda out: Path("/proc/1/root" + str(SECRET)).read_text(),
    "read the home by a link in the code": lambda out: (CODE / "link").read_text(),
    "read the home by a link in the output": lambda out: (
        (out / "link").symlink_to(SECRET), (out / "link").read_text()),
    "open a file by its number": lambda out: file_handle(),
    "see another trial": lambda out: os.stat(HOST["first"]),
    "read another trial": lambda out: Path(HOST["first"], "mine").read_text(),
    "write into another trial": lambda out: wrote(HOST["first"] + "/mine"),
    "make a folder for a trial to come": lambda out: os.mkdir(out.parent / "to come"),
    "write the journal": lambda out: any_of(wrote, HOST["journals"]),
    "read the lock of the workspace": lambda out: os.stat(HOST["workspace"] + "/.locks"),
    "write the code": lambda out: wrote(CODE / "cases.py"),
    "add to the code": lambda out: wrote(CODE / "new.py"),
    "remove the code": lambda out: os.unlink(CODE / "cases.py"),
    "rename the code": lambda out: os.rename(CODE, CODE.with_name("moved")),
    "change the mode of the code": lambda out: os.chmod(CODE / "cases.py", 0o777),
    "a second name for the code": lambda out: os.link(CODE / "cases.py", out / "cases.py"),
    "write perfrun's worker": lambda out: wrote(sys.modules["perfrun"].__file__),
    "write the data": lambda out: wrote(HOST["data"] + "/set"),
    "write a disk below the data": lambda out: wrote(HOST["data"] + "/disk/set"),
    "truncate the data": lambda out: os.truncate(HOST["data"] + "/set", 0),
    "write the image": lambda out: wrote("/usr/bin/env"),
    "write the root": lambda out: wrote("/new"),
    "read the host's shared memory": lambda out: os.stat(HOST["shared"]),
    # Mounts and namespaces
    "mount a file system": lambda out: call(
        (165, 40), text("none"), text("/tmp"), text("tmpfs"), 0, 0),
    "mount the code writable": lambda out: call(
        (165, 40), text("none"), text(CODE.parent), text("none"), MS_REMOUNT | MS_BIND, 0),
    "mount the root writable": lambda out: call(
        (165, 40), text("none"), text("/"), text("none"), MS_REMOUNT | MS_BIND, 0),
    "take a mount away": lambda out: call((166, 39), text(CODE.parent), 2),
    "open a tree of mounts": lambda out: call((428, 428), -100, text("/"), 1),
    "change the root": lambda out: os.chroot(out),
    "pivot the root": lambda out: call((155, 41), text("/tmp"), text("/tmp")),
    "a user namespace of its own": lambda out: call((272, 97), CLONE_NEWUSER | CLONE_NEWNS),
    "a mount namespace of its own": lambda out: call((272, 97), CLONE_NEWNS),
    "enter the namespace of process 1": lambda out: call(
        (308, 268), os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
    # Devices and the kernel
    "make a disk": lambda out: os.mknod(out / "disk", 0o60600, os.makedev(254, 0)),
    "make a memory device": lambda out: os.mknod("/tmp/mem", 0o20600, os.makedev(1, 1)),
    "open a disk": lambda out: any_of(
        lambda path: open(path, "rb"), ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/mem"]),
    "read the kernel's log": lambda out: open("/dev/kmsg"),
    "set the handler of crashes": lambda out: wrote(
        "/proc/sys/kernel/core_pattern", "|/bin/sh", "w"),
    "press a magic key": lambda out: wrote("/proc/sysrq-trigger", "h", "w"),
    "write a cgroup": lambda out: any_of(wrote, [
        "/sys/fs/cgroup/new",
        *glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True),
        *glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)]),
    "load a module": lambda out: call((175, 105), text(""), 0, text("")),
    "load a program into the kernel": lambda out: call((321, 280), 0, 0, 0),
    "use the keys of the kernel": lambda out: call((250, 219), 0, -4, 1),
    "set the clock": lambda out: time.clock_settime(time.CLOCK_REALTIME, time.time() + 60),
    "set the host's name": lambda out: socket.sethostname("hacked"),
    "restart the machine": lambda out: call((169, 142), 0xFEE1DEAD, 672274793, 0, 0),
    # Other users and more rights
    "become root": lambda out: os.setuid(0) if os.getuid() else os.setuid(4242),
    "join a group": lambda out: os.setgroups([0, 6, 42]),
    "run a setuid program": lambda out: as_another(),
    "give a file away": lambda out: (wrote(out / "mine"), os.chown(out / "mine", 4242, 4242)),
    "give a file capabilities": lambda out: os.setxattr(out / "mine", "security.capability",
        struct.pack("<IIIII", 0x02000001, 1 << 21, 0, 0, 0)),
    "raise a limit": lambda out: raised_limit(),
    "a priority over the others": lambda out: os.nice(-10),
    "the processor for itself": lambda out: os.sched_setscheduler(
        0, os.SCHED_FIFO, os.sched_param(1)),
    # Processes
    "see the host's processes": lambda out: sees_the_host(),
    "signal the host's processes": lambda out: os.kill(HOST["bystander"], 9),
    "trace its supervisor": lambda out: call((101, 117), 16, 1, 0, 0),
    "seize its supervisor": lambda out: call((101, 117), 0x4206, 1, 0, 0),
    "write its supervisor's memory": lambda out: open("/proc/1/mem", "r+b"),
    "read its supervisor's environment": lambda out: open("/proc/1/environ").read(),
    "read its supervisor's input": lambda out: open("/proc/1/fd/0"),
    "forge its supervisor's report": lambda out: forged(),
    "forge its supervisor's complaint": lambda out: wrote("/proc/1/fd/2"),
    "stop its supervisor": lambda out: stopped(19),
    "kill its supervisor": lambda out: stopped(9),
    # The network
    "reach the host": lambda out: any_of(connect, ["172.17.0.1", "10.0.2.2", "127.0.0.1"]),
    "ask for a name": lambda out: socket.getaddrinfo("example.org", 80),
    "reach the engine": lambda out: any_of(
        unix, [HOST["engine"], "/var/run/docker.sock", "/run/containerd/containerd.sock"]),
    "reach a socket without a file": lambda out: unix("\\0" + HOST["mark"]),
    "read packets": lambda out: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768),
    "send raw packets": lambda out: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
}


def daemon(out):
    """Two forks, a session of its own, deaf to signals, without its parent's environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in set(signal.Signals) - {9, 19}:
                signal.signal(number, signal.SIG_IGN)
            clean = {"PATH": os.environ["PATH"]}
            os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)",
                HOST["left"]], clean)
        os._exit(0)
    os.wait()


class Cases(Benchmark):
    def first(self):
        Path(self.output_dir, "mine").write_text("of the first trial")

    def escapes(self):
        out = Path(self.output_dir)
        found = {}
        for name, attempt in ATTEMPTS.items():
            try:
                attempt(out)
                found[name] = "done"
            except OSError as error:
                found[name] = errno.errorcode.get(error.errno, str(error))
            except ValueError as error:
                found[name] = str(error)
            except subprocess.CalledProcessError as error:
                found[name] = "status %d" % error.returncode
        daemon(out)
        os.mkfifo(out / "perfrun" / "exit.json.next")  # where its supervisor writes its report
        (out / "found.json").write_text(json.dumps(found))
        self.report_benchmark(wall_time=1.0)
'''

# Below a folder of the container's own /tmp root may make others; seen from outside, nothing is.
IN_MEMORY = {"make a folder for a trial to come"}


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    yield from launched_world(place, site, BENCHMARK)


@pytest.fixture
def data(world: World) -> Iterator[Path]:
    """A folder of data with a file, a disk mounted below it, and a setuid program of root's."""
    folder = world.folder / "data"
    (folder / "disk").mkdir(parents=True)
    (folder / "set").write_text("data")
    shutil.copy2("/usr/bin/id", folder / "id")
    if os.geteuid() == 0:
        (folder / "id").chmod(0o4755)
        os.chown(folder / "set", 4321, 4321)
        (folder / "set").chmod(0o666)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "mode=1777", "none", folder / "disk"], check=True
        )
    (folder / "disk" / "set").write_text("data")
    (folder / "disk" / "set").chmod(0o666)
    yield folder
    if os.geteuid() == 0:
        subprocess.run(["umount", folder / "disk"], check=True)


@pytest.fixture
def host(world: World, data: Path, site: Site) -> Iterator[dict[str, Any]]:
    """What a benchmark would like to reach: a secret, a process, servers, shared memory."""
    secret, shared = site.user.home / "secret.txt", Path("/dev/shm", world.mark)
    for path in (secret, shared):
        path.write_text("a secret")
        path.chmod(0o644)
    words = ["python3", "-c", "import time; time.sleep(600)", world.mark]
    with (
        socket.create_server(("", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen(words, **site.user.identity()) as bystander,
    ):
        abstract.bind("\0" + world.mark)
        abstract.listen()
        yield {
            "secret": str(secret),
            "shared": str(shared),
            "mark": world.mark,
            "left": f"left-{world.mark[:8]}",
            "bystander": bystander.pid,
            "port": server.getsockname()[1],
            "engine": (site.user.host or "unix:///var/run/docker.sock").removeprefix("unix://"),
            "data": str(data),
            "setuid": str(data / "id"),
            "workspace": str(world.workspace),
        }
        assert bystander.poll() is None
        bystander.kill()
    shared.unlink()


def test_of_all_ways_out_of_a_container_none_leads_anywhere(
    world: World, host: dict[str, Any]
) -> None:
    image = f"--image={os.environ['PERFRUN_TEST_BASE_IMAGE']}"
    words = ("--format=json", "--quiet", image, "--timeout=300", f"--root_data_dir={host['data']}")
    package = world.folder / "code" / "pkg"
    (package / "host.json").write_text(json.dumps(host))
    (package / "link").symlink_to(host["secret"])
    before = world.run(*words, methods="pkg.cases.Cases.first")
    assert before.statuses == ["passed"], before.stderr
    first = Path(before.results[0]["summary"]).parent
    journals = [str(path) for path in (world.workspace / "runs").iterdir()]
    code = {path: path.read_bytes() for path in package.iterdir() if path.is_file()}
    (package / "host.json").write_text(
        json.dumps({**host, "first": str(first), "journals": journals})
    )

    done = world.run(*words, methods="pkg.cases.Cases.escapes")

    (summary,) = done.summaries()
    assert done.statuses == ["passed"], summary["perfrun"]["outcome"]
    assert summary["perfrun"]["outcome"]["exit_code"] == 0
    folder = Path(done.results[0]["summary"]).parent
    found = json.loads((folder / "found.json").read_text())
    assert len(found) >= 70
    assert {name for name, answer in found.items() if answer == "done"} <= IN_MEMORY
    # Seen from outside: nothing has changed, nothing runs on, and the report is the supervisor's.
    code[package / "host.json"] = (package / "host.json").read_bytes()
    assert {path: path.read_bytes() for path in package.iterdir() if path.is_file()} == code
    assert (first / "mine").read_text() == "of the first trial"
    assert (Path(host["data"]) / "set").read_text() == "data"
    assert (Path(host["data"]) / "disk" / "set").read_text() == "data"
    assert {path.name for path in (world.workspace / "output").iterdir()} == {
        first.name,
        folder.name,
    }
    assert not any(path.is_block_device() for path in folder.iterdir())
    assert host["left"] in "\n".join(summary["perfrun"]["notes"])
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert host["left"] not in listed.stdout
    assert world.left_running() == []

"""A Slurm cluster of the tests' own: a controller and four nodes on this host, in a folder.

The daemons are Debian's. Each node is a slurmd with a name and a port of its own; munge has its own
key and socket; there is no accounting (slurmdbd), so neither sacct nor sacctmgr has anything to
say. All daemons are started by one process, `python cluster.py FOLDER`. It ends them, and what jobs
have left, when the pipe from which it reads closes: the kernel closes it, however the tests end.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

NODES = ("node1", "node2", "node3", "node4")
PROGRAMS = ("munged", "sbatch", "scontrol", "slurmctld", "slurmd", "squeue")
MAX_ARRAY_SIZE = 11  # ten tasks an array and one: the largest index is one less
_PATIENCE_S = 60.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

# Times are as short as they can be. `cred_expire` is how long a job that was requeued waits.
_CONF = """\
ClusterName=perfrun
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MaxArraySize={max_array_size}
ReturnToService=2
KillWait=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
GresTypes=accelerator
NodeName=node[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[4]}] \
CPUs=2 RealMemory=1000 Gres=accelerator:2 Feature=virtual State=UNKNOWN
PartitionName=bench Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs."""

    folder: Path
    commands: int  # a pipe to the process that has started the daemons
    answers: int

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Slurm's programs find it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *words: str) -> str:
        """Run one of Slurm's programs, and return what it printed."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, (words, done.stderr, self.logs())
        return done.stdout.strip()

    def stop_controller(self) -> None:
        """End slurmctld. Jobs go on, and nobody can be asked about them."""
        self._told(b"stop\n")

    def start_controller(self) -> None:
        """Start it again: it reads its state, and asks the nodes."""
        self._told(b"start\n")
        self.wait_until_ready(states=None)

    def _told(self, word: bytes) -> None:
        os.write(self.commands, word)
        assert os.read(self.answers, 1) == b"."

    def wait_until_ready(self, states: tuple[str, ...] | None = ("idle",)) -> None:
        """Wait until the controller answers, and each node has one of these states (None: any)."""
        end = time.monotonic() + _PATIENCE_S
        words = ["sinfo", "--noheader", "--Node", "--partition=bench", "--format=%T"]
        while True:
            environment = {**os.environ, **self.environment}
            done = subprocess.run(words, env=environment, capture_output=True, text=True)
            found = done.stdout.split()
            if len(found) == len(NODES) and (states is None or set(found) <= set(states)):
                return
            assert time.monotonic() < end, (found, done.stderr, self.logs())
            time.sleep(0.05)

    def reset(self) -> None:
        """Cancel all jobs and resume all nodes: what a test has left is not another's."""
        self.run("scancel", "--full", "--partition=bench")
        self.run("scancel", "--full", "--partition=urgent")
        for node in NODES:
            with suppress(AssertionError):  # nothing to resume
                self.run("scontrol", "update", f"nodename={node}", "state=resume")
        self.wait_until_ready()

    def logs(self) -> str:
        """The end of each log."""
        found = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in found)


def missing() -> list[str]:
    """Name the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


@contextmanager
def running() -> Iterator[Cluster]:
    """Start a cluster, and leave nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="perfrun-slurm-"))
    folder.chmod(0o755)  # munged refuses a folder where others can write, and needs no more
    for name in ("state", *(f"spool/{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "gres.conf").write_text("NodeName=node[1-4] Name=accelerator Count=2\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    cluster = _started(folder)
    try:
        cluster.wait_until_ready()
        yield cluster
    finally:
        os.close(cluster.commands)
        while os.read(cluster.answers, 1):  # until all of them have ended
            pass
        os.close(cluster.answers)
        shutil.rmtree(folder, ignore_errors=True)


def _started(folder: Path) -> Cluster:
    conf = _CONF.format(
        host=socket.gethostname().partition(".")[0],
        ports=_free_ports(1 + len(NODES)),
        user=pwd.getpwuid(os.geteuid()).pw_name,
        folder=folder,
        max_array_size=MAX_ARRAY_SIZE,
    )
    (folder / "slurm.conf").write_text(conf)
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # It is nobody's child here: tests of the launcher kill all children that this process has.
    subprocess.run(
        [sys.executable, __file__, str(folder)], stdin=theirs_in, stdout=theirs_out, check=True
    )
    os.close(theirs_in)
    os.close(theirs_out)
    assert os.read(ours_in, 1) == b"."
    return Cluster(folder, ours_out, ours_in)


def _free_ports(count: int) -> list[int]:
    """Return a controller's port, and ports that follow each other for the nodes."""
    for _ in range(200):
        with ExitStack() as held, suppress(OSError):
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            ports = [int(first.getsockname()[1])]
            start = 20_000 + secrets.randbelow(10_000)  # below those that the kernel gives out
            for port in range(start, start + count - 1):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
            return ports
    raise RuntimeError("no free ports")


# What follows runs in the process that starts the daemons.
_PR_SET_CHILD_SUBREAPER = 36


def _serve(folder: Path) -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    # The orphans of its daemons become its children, so it finds each of them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed", "log")]
    _daemon(folder, ["munged", "--foreground", f"--socket={folder}/munge.sock", *munge])
    controller = _daemon(folder, ["slurmctld", "-D"])
    for node in NODES:
        _daemon(folder, ["slurmd", "-D", "-N", node], node)
    os.write(1, b".")
    while word := os.read(0, 100):
        if word == b"stop\n":
            controller.terminate()
            controller.wait()
        else:
            controller = _daemon(folder, ["slurmctld", "-D"])
        os.write(1, b".")
    _end_all()


def _daemon(folder: Path, words: list[str], name: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": f"{folder}/slurm.conf"}
    with (folder / f"{name or words[0]}.out").open("ab") as out:
        return subprocess.Popen(
            words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )


def _end_all() -> None:
    """Kill every descendant until none is left; what is killed leaves its own to this process."""
    while True:
        for pid in _descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, new = set[int](), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))

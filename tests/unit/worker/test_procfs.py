"""What the kernel says about memory, read back from real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfrun.worker import procfs
from perfrun.worker.procfs import (
    io_counts,
    is_pythons_own,
    last_io_counts,
    memory_marks,
    state_and_flags,
)

MIB = 2**20
ROOT = Path(__file__).parents[3]
MODULE = "from perfrun.worker.procfs import *\n"


def run(source: str) -> list[int]:
    """Run a program in a fresh interpreter and return the numbers that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", MODULE + source],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return [int(word) for word in done.stdout.split()]


def test_the_peak_is_the_kernels_own_and_remembers_what_was_freed() -> None:
    before, after, kernel = run(
        """
import resource
before = memory_marks()["peak_rss_bytes"]
block = bytearray(b"x") * (200 << 20); del block
print(before, memory_marks()["peak_rss_bytes"],
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    )
    assert 195 * MIB < after - before < 210 * MIB
    # ru_maxrss survives exec, so it may be that of the process that runs the tests; never less.
    assert kernel > 0.99 * after


def test_the_peak_can_be_set_back_to_what_is_resident() -> None:
    peak, low = run(
        """
block = bytearray(b"x") * (200 << 20); del block
peak = memory_marks()["peak_rss_bytes"]
if not reset_peak(): peak = low = 0
else: low = memory_marks()["peak_rss_bytes"]
print(peak, low)
"""
    )
    if not peak:
        pytest.skip("this kernel does not reset VmHWM")
    assert peak - low > 190 * MIB


def test_address_space_is_at_least_what_is_resident() -> None:
    marks = memory_marks(str(os.getpid()))
    assert marks["peak_rss_bytes"] is not None
    assert marks["peak_vms_bytes"] is not None
    assert marks["peak_vms_bytes"] > marks["peak_rss_bytes"] > MIB


def test_a_zombie_and_a_missing_process_have_unknown_marks_not_zero() -> None:
    unknown = {"peak_rss_bytes": None, "peak_vms_bytes": None}
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
    assert memory_marks(str(process.pid)) == unknown
    process.wait()
    assert memory_marks(str(process.pid)) == unknown
    assert memory_marks("no such") == unknown


def test_bytes_that_were_written_and_read_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before, after, called, read = run(
        f"""
import os
before = io_counts().get("written_bytes", -1)
file = os.open({str(path)!r}, os.O_RDWR | os.O_CREAT)
called = io_counts()["written_call_bytes"]
os.write(file, b"x" * (4 << 20)); os.fsync(file)
print(before, io_counts()["written_bytes"], io_counts()["written_call_bytes"] - called, end=" ")
os.lseek(file, 0, 0)
called = io_counts()["read_call_bytes"]
os.read(file, 4 << 20)
print(io_counts()["read_call_bytes"] - called)
"""
    )
    assert called == 4 * MIB
    assert 4 * MIB <= read < 4 * MIB + 4096  # what the last question itself read is in it
    assert after - before >= (0 if on_memory(tmp_path) else 4 * MIB)


def on_memory(path: Path) -> bool:
    kind = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True).stdout
    return kind.strip() in ("tmpfs", "ramfs")


def test_an_ended_process_still_has_its_counts_until_it_is_reaped() -> None:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import os; input(); os.write(1, b'x' * 30000)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    read = last_io_counts(str(process.pid))
    with process.stdin as words:
        words.write(b"go\n")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert read()["written_call_bytes"] == 30000
    assert read() == {}
    process.wait()
    assert io_counts(str(process.pid)) == {}


HIDDEN_PARENT = """
import ctypes, os, resource, warnings
from perfrun.launchers.guard import Guard
from perfrun.worker.procfs import last_io_counts

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the parent goes on before its child
if os.geteuid() == 0:  # who may open everything
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, which the change of user took
guard, null, shown = Guard(), os.open(os.devnull, os.O_RDWR), 0
for _ in range(30):
    pid = guard.start(["/bin/sleep", "0.06"], null, null, dict(os.environ))
    read = last_io_counts(str(pid))
    guard.reap(pid)
    shown += read is not dict
print(shown)
"""


def test_the_counts_of_a_process_are_found_though_its_parent_hides() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN_PARENT], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.stdout, done.stderr) == ("30\n", "")


def test_own_counts_hold_the_work_of_this_process_and_of_its_children() -> None:
    before, after, faults = run(
        """
import os, subprocess, sys
first = own_counts()
spin = "import time\\nwhile time.process_time() < 0.3: pass"
subprocess.run([sys.executable, "-c", spin])
block = bytearray(b"x") * (40 << 20)
second = own_counts()
cpu = lambda counts: int(1000 * (counts["user_s"] + counts["system_s"]))
print(cpu(first), cpu(second), second["minor_faults"] - first["minor_faults"])
"""
    )
    assert after - before >= 290
    assert faults > 20  # with huge pages, one for 2 MiB


def test_a_process_dies_with_its_parent() -> None:
    child = MODULE + "import time; die_with_parent(); print(1, flush=True); time.sleep(600)"
    parent = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE)
child.stdout.readline()
os.write(1, str(child.pid).encode())
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == -9
    assert ends(int(done.stdout))


def test_an_orphan_goes_to_the_process_that_adopts() -> None:
    (same,) = run(
        """
import os, subprocess, sys
assert adopt_orphans()
grandchild = "import os, time\\nparent = os.getpid()\\nif not os.fork():\\n"
grandchild += " while os.getppid() == parent: time.sleep(0.01)\\n print(os.getppid())"
out = subprocess.run([sys.executable, "-c", grandchild], capture_output=True, text=True).stdout
print(int(int(out) == os.getpid()))
"""
    )
    assert same == 1


def ends(pid: int, seconds: float = 60.0) -> bool:
    """Say whether a process that is not ours ends within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            if stat.rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("module", ["resource_tracker", "forkserver"])
def test_multiprocessings_helpers_are_known_by_their_command(module: str) -> None:
    own, known, gone = run(
        f"""
import os, time
from multiprocessing import {module}
{module}.ensure_running()
pid = {module}._{module}._{"forkserver_" if module == "forkserver" else ""}pid
end = time.monotonic() + 120
while not is_pythons_own(pid): assert time.monotonic() < end  # its parent until it executes
print(*[int(is_pythons_own(number)) for number in (os.getpid(), pid, 2**22 + 1)])
"""
    )
    assert (own, known, gone) == (False, True, False)


def test_what_a_fork_server_has_forked_is_no_helper_though_it_has_its_command() -> None:
    if not state_and_flags(os.getpid())[1]:
        pytest.skip("this kernel does not show the flags of processes")
    source = """
# from multiprocessing.forkserver import main
import os, sys
pid = os.fork()
if pid: print(pid, flush=True)
sys.stdin.read()
"""
    server = subprocess.Popen(
        [sys.executable, "-S", "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    forked = int(server.stdout.readline())
    commands = {Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (server.pid, forked)}
    assert len(commands) == 1
    assert (is_pythons_own(server.pid), is_pythons_own(forked)) == (True, False)
    server.communicate()


def test_a_process_that_is_just_ending_is_taken_for_a_helper_and_a_zombie_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert state_and_flags(process.pid)[0] == "Z"
    assert not is_pythons_own(process.pid)
    process.wait()
    assert state_and_flags(process.pid) == ("", 0)
    assert not is_pythons_own(process.pid)
    monkeypatch.setattr(procfs, "state_and_flags", lambda _pid: ("D", 0x400004))
    assert is_pythons_own(os.getpid())

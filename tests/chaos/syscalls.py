"""Every system call of a small run fails once, fails from then on, or is the last one.

A clean run is counted first. Each fault is then made by strace in a run of its own, in the
harness's own thread and not in its workers.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from subject import Subject

_BOTH = ("once", "ever")
_WRITES = {"write", "pwrite64", "fsync", "fdatasync", "ftruncate", "mkdir", "rename", "openat"}
_SLOW = {"openat", "read", "write", "pwrite64", "flock", "fsync", "fdatasync", "close"}
CALLS = (
    *("openat", "read", "pread64", "write", "pwrite64", "close", "fsync", "fdatasync"),
    *("ftruncate", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat"),
    *("rmdir", "link", "symlink", "flock", "getdents64", "sendfile"),
)


@dataclass(frozen=True)
class Fault:
    """One fault; its name says which, and makes it again."""

    scenario: str
    call: str
    number: int
    kind: str  # EIO, ENOSPC, EINTR or SIGKILL
    how: str  # once, or ever: from this call on

    @property
    def name(self) -> str:
        return f"{self.scenario}/{self.call}/{self.number}/{self.kind}/{self.how}"

    @property
    def injection(self) -> str:
        """As strace takes it."""
        what = "signal=SIGKILL" if self.kind == "SIGKILL" else f"error={self.kind}"
        return f"{self.call}:{what}:when={self.number}{'+' if self.how == 'ever' else ''}"


def fault_named(name: str) -> Fault:
    """Return the fault of that name."""
    scenario, call, number, kind, how = name.split("/")
    return Fault(scenario, call, int(number), kind, how)


def faults_of(subject: Subject) -> list[Fault]:
    """Return all faults of a scenario: of every call, those that it can meet."""
    subject.restore()
    log = subject.folder / "clean"
    ended = subject.run(watched=partial(_injected, log, None))
    if ended.code != 0:
        raise RuntimeError(f"the clean run ended with {ended.code}: {ended.err}")
    counts = Counter(re.findall(r"^(\w+)\(", log.read_text("utf-8", "replace"), re.MULTILINE))
    found = []
    for call in CALLS:
        kinds = [("EIO", "once"), ("EIO", "ever"), ("SIGKILL", "once")]
        kinds += [("ENOSPC", how) for how in _BOTH if call in _WRITES]
        kinds += [("EINTR", "once")] if call in _SLOW else []
        for number in range(1, counts[call] + 1):
            found += [Fault(subject.name, call, number, *kind) for kind in kinds]
    return found


def make_fault(subject: Subject, fault: Fault) -> tuple[bool, list[str]]:
    """Make one fault; True when the run came to it, and what was wrong afterwards."""
    subject.restore()
    log = subject.folder / "faulted"
    ended = subject.run(watched=partial(_injected, log, fault.injection))
    text = log.read_text("utf-8", "replace")
    was_met = "(INJECTED)" in text or "+++ killed by SIGKILL" in text
    return was_met, subject.problems(ended)


def _injected(log: Path, injection: str | None, pid: int) -> AbstractContextManager[None]:
    fault = ["-e", f"inject={injection}"] if injection else []
    return traced(log, pid, "-e", f"trace={','.join(CALLS)}", *fault)


@contextlib.contextmanager
def traced(log: Path, pid: int, *flags: str) -> Iterator[None]:
    """Trace a process's main thread into the log, with these flags of strace, until it ends."""
    words = ["strace", "-p", str(pid), "-o", str(log), *flags]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        if "attached" not in line:
            raise RuntimeError(f"strace: {line}")
        try:
            yield
        finally:
            tracer.wait(60)

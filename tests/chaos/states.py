"""What a disk may hold after a power loss: at every step of a run, and in several ways.

The system calls of one run are recorded and replayed on a model of a disk (`disk`). Each state that
a power loss could leave is put in place, and the run is resumed from it.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path

from disk import VARIANTS, Call, Disk, calls_of
from subject import Ended, Subject
from syscalls import CALLS, traced

_TRACED = ",".join(call for call in CALLS if call not in ("read", "pread64", "getdents64"))
_LONGEST = 1 << 18  # bytes of a write that are recorded; only the reserve is larger, all zeros


class Recording:
    """The calls of one run that changed its disk, and what it printed."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        subject.restore()
        log = subject.folder / "recorded"
        self.ended = subject.run(watched=partial(_recorded, log))
        if self.ended.code != 0:
            raise RuntimeError(f"the recorded run ended with {self.ended.code}: {self.ended.err}")
        self.calls = list(calls_of(log.read_text("ascii")))

    @cached_property
    def steps(self) -> list[int]:
        """How many calls had been made after each change, and at the end."""
        disk = self._disk()
        changes = [at + 1 for at, call in enumerate(self.calls) if disk.do(call)]
        return [*changes, len(self.calls)]

    def state(self, step: int, variant: str) -> dict[str, bytes | None]:
        """What the disk holds after a power loss at this step."""
        disk = self._disk()
        for call in self.calls[: self.steps[step]]:
            disk.do(call)
        return disk.after_power_loss(variant)

    def said(self, step: int) -> str:
        """What the run had printed to standard output before that step was over."""
        out = str(self._subject.folder / "stdout")
        told = any(_prints(call, out) for call in self.calls[: self.steps[step]])
        return self.ended.out if told else ""

    def _disk(self) -> Disk:
        disk = Disk(self._subject.folder)
        if self._subject.template.exists():
            disk.load("ws", self._subject.template)
        return disk

    def names(self) -> Iterator[str]:
        """The states that differ, by step and variant."""
        seen = set()
        disk, done = self._disk(), 0
        for step, count in enumerate(self.steps):
            for call in self.calls[done:count]:
                disk.do(call)
            done = count
            for variant in VARIANTS:
                digest = hashlib.sha256(self.said(step).encode())
                for path, content in sorted(disk.after_power_loss(variant).items()):
                    digest.update(b"%s %d %s" % (path.encode(), content is None, content or b""))
                if digest.digest() not in seen:
                    seen.add(digest.digest())
                    yield f"{self._subject.name}/{step}/{variant}"


def check_state(subject: Subject, recording: Recording, name: str) -> tuple[bool, list[str]]:
    """Put a state in place; True when there is one, and what is wrong with it."""
    _, step, variant = name.split("/")
    if int(step) >= len(recording.steps):
        return False, []
    state = recording.state(int(step), variant)
    subject.restore()
    shutil.rmtree(subject.workspace, ignore_errors=True)
    for path, content in state.items():
        place = subject.folder / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.write_bytes(content)
    ended = Ended(-signal.SIGKILL, recording.said(int(step)), "")
    return True, subject.problems(ended)


def _prints(call: Call, out: str) -> bool:
    return call.name == "write" and call.descriptor == 1 and call.folder == out


def _recorded(log: Path, pid: int) -> AbstractContextManager[None]:
    return traced(log, pid, "-y", "-xx", "-s", str(_LONGEST), "-e", f"trace={_TRACED}")

"""Recorder of the processor's and the kernel's event counters: `perf stat`, on this process.

perf knows the processors' events and scales those that share a counter; it is attached before a
window and switched on and off by a named pipe. Where the hardware has no counters (most virtual
machines) the kernel's own remain. Source: https://man7.org/linux/man-pages/man1/perf-stat.1.html.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Optional

from perfrun.worker.profilers.profile_recorder import ProfileRecorder, Row, UnavailableError

HARDWARE = (
    *("instructions", "cycles", "branches", "branch-misses"),
    *("cache-references", "cache-misses", "L1-dcache-loads", "L1-dcache-load-misses"),
)
KERNEL = ("task-clock", "context-switches", "cpu-migrations", "minor-faults", "major-faults")
_ANSWERS_S = 20.0
_POLL_S = 0.1
_MISSING = (
    "--profile=counters needs perf on PATH and the kernel's events (Debian: linux-perf; Ubuntu: "
    "linux-tools-generic)"
)


class Count(NamedTuple):
    """What perf says of one event."""

    value: float
    share: float  # percent of the time in which the event was counted; the value is scaled


def parse(text: str) -> Dict[str, Optional[Count]]:
    """Return the counts of perf's comma separated output; None for what the machine lacks."""
    found: Dict[str, Optional[Count]] = {}
    for line in text.splitlines():
        words = line.split(",")
        if len(words) < 5 or line.startswith("#"):
            continue
        name = words[2].partition(":")[0]  # `instructions:u`: in user space only
        try:
            found[name] = Count(float(words[0]), float(words[4]))
        except ValueError:  # <not supported>, <not counted>
            found[name] = None
    return found


class CounterRecorder(ProfileRecorder):
    """perf stat: events of all threads of this process, from the first timed step to the last."""

    tool = "perf stat"
    scope = "events of all threads of the process"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        program = shutil.which("perf")
        if program is None:
            raise UnavailableError("%s; there is none" % _MISSING)
        self._program = program
        said = _run([program, "--version"])
        self.version = said.rpartition(" ")[2].strip() or None
        self._pipes = ""
        self._number = 0
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._control = self._acknowledged = -1
        self._steps: List[int] = []
        self._found: Dict[str, Count] = {}
        self._lacking: List[str] = []
        self._user_only = False

    def start(self) -> None:
        self._number += 1
        self._pipes = tempfile.mkdtemp(prefix="perfrun-perf-")
        paths = [os.path.join(self._pipes, name) for name in ("told", "done")]
        for path in paths:
            os.mkfifo(path, 0o600)
        # Both ends are held here, so that neither side waits for the other to open a pipe.
        self._control, self._acknowledged = (os.open(path, os.O_RDWR) for path in paths)
        name = "perf_stat.csv" if self._number == 1 else "perf_stat_%d.csv" % self._number
        self._output = os.path.join(self.folder, name)
        argv = [self._program, "stat", "-x,", "--pid", str(os.getpid()), "--delay", "-1"]
        argv += ["--control", "fifo:%s,%s" % (paths[0], paths[1]), "--output", self._output]
        argv += ["--event", ",".join((*HARDWARE, *KERNEL))]
        with open(os.path.join(self._pipes, "said"), "wb") as said:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=_plain()
            )
        self._tell("enable")

    def stop(self, keep: bool) -> None:
        assert self._process is not None
        try:
            self._tell("disable")
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_ANSWERS_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError("perf did not end in %g s" % _ANSWERS_S) from None
        finally:
            self._end()
        if not keep:
            self._number -= 1
            os.unlink(self._output)
            return
        with open(self._output, encoding="utf-8", errors="replace") as file:
            text = file.read()
        self._user_only = ":u," in text
        for name, count in parse(text).items():
            before = self._found.get(name, Count(0.0, 100.0))
            if count is None:
                self._lacking += [] if name in self._lacking else [name]
            else:
                share = min(before.share, count.share)
                self._found[name] = Count(before.value + count.value, share)

    def note_steps(self, steps: int) -> None:
        self._steps.append(steps)

    def top(self) -> List[Row]:
        if self._lacking:
            self.notes.append("this machine does not count: %s" % ", ".join(self._lacking))
        if self._user_only:
            self.notes.append("counted in user space only (kernel.perf_event_paranoid)")
        scaled = [name for name, count in self._found.items() if count.share < 99.5]
        if scaled:
            self.notes.append("scaled, for want of counters: %s" % ", ".join(scaled))
        steps = sum(self._steps)
        return [_row(name, count.value, steps) for name, count in self._found.items()]

    def _tell(self, word: str) -> None:
        """Send perf a command and wait until it is done. Raises RuntimeError with perf's words."""
        assert self._process is not None
        os.write(self._control, word.encode() + b"\n")
        end = time.monotonic() + _ANSWERS_S
        while time.monotonic() < end and self._process.poll() is None:
            if select.select([self._acknowledged], [], [], _POLL_S)[0]:
                os.read(self._acknowledged, 16)
                return
        raise RuntimeError(self._why())

    def _why(self) -> str:
        assert self._process is not None
        answer = "no answer in %g s" % _ANSWERS_S
        if self._process.poll() is not None:
            with open(
                os.path.join(self._pipes, "said"), encoding="utf-8", errors="replace"
            ) as file:
                lines = [line.strip() for line in file if len(line.split()) > 1]  # not `Error:`
            answer = lines[0] if lines else "exit status %d" % self._process.returncode
        self._end()
        return "%s; perf says: %s" % (_MISSING, answer)

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for descriptor in (self._control, self._acknowledged):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._acknowledged = -1
        shutil.rmtree(self._pipes, ignore_errors=True)


def _row(name: str, value: float, steps: int) -> Row:
    # perf gives the one time among the events in milliseconds.
    unit = "s" if name == "task-clock" else "events"
    count = value / 1e3 if unit == "s" else value
    row: Row = {"name": name, "unit": unit, "count": count}
    if steps:
        row["per_step"] = count / steps
    return row


def _plain() -> Dict[str, Any]:
    return {**os.environ, "LC_ALL": "C"}


def _run(argv: List[str]) -> str:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_plain())
    return done.stdout.decode("utf-8", "replace")

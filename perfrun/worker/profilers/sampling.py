"""Recorders that sample call stacks: pyinstrument, else py-spy, else a thread of perfrun."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from perfrun.worker.profilers.profile_recorder import (
    TOP_ROWS,
    ProfileRecorder,
    Row,
    UnavailableError,
    imported,
    is_bookkeeping,
)

_INTERVAL_S = 0.002
_SPY_RATE_HZ = 200
_SPY_BEGINS_S = 15.0  # it reads the symbols of every library first
_SPY_ENDS_S = 60.0
_PR_SET_PTRACER = 0x59616D61  # Linux: let this process, which is no ancestor, read our memory

Frame = Tuple[str, str]  # function, file:line
Stacks = Iterable[Tuple[Tuple[Frame, ...], float]]  # from the outermost function on, seconds


def sampling_recorder(folder: str) -> ProfileRecorder:
    """Return the best recorder that the environment has."""
    try:
        imported("pyinstrument", "pyinstrument")
    except UnavailableError:
        spy = shutil.which("py-spy")
        return SpyRecorder(folder, spy) if spy else ThreadRecorder(folder)
    return PyinstrumentRecorder(folder)


def largest(stacks: Stacks, most: int = TOP_ROWS) -> List[Row]:
    """Return the functions in which most time was spent."""
    own: Dict[Frame, float] = {}
    total: Dict[Frame, float] = {}
    for frames, seconds in stacks:
        if not frames:
            continue
        own[frames[-1]] = own.get(frames[-1], 0.0) + seconds
        for frame in set(frames):
            total[frame] = total.get(frame, 0.0) + seconds
    rows: List[Row] = [
        {"name": frame[0], "where": frame[1], "self_s": seconds, "total_s": total[frame]}
        for frame, seconds in own.items()
    ]
    return sorted(rows, key=lambda row: -float(row["self_s"]))[:most]


class PyinstrumentRecorder(ProfileRecorder):
    """pyinstrument: an HTML page to look at, and a file for speedscope.app."""

    tool = "pyinstrument"
    scope = "wall clock of the main thread"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        pyinstrument = imported("pyinstrument", "pyinstrument")
        self.version = str(pyinstrument.__version__)
        self._profiler: Any = pyinstrument.Profiler(interval=_INTERVAL_S, async_mode="disabled")
        self._session: Any = None

    def start(self) -> None:
        self._profiler.start()

    def stop(self, keep: bool) -> None:
        self._session = self._profiler.stop()  # of all windows so far
        if not keep:
            self._profiler.reset()
        else:
            if self.times_steps_only:
                records = self._session.frame_records
                records[:] = [one for one in records if _is_of_steps(map(_named, one[0]))]
            _write(os.path.join(self.folder, "flame.html"), self._profiler.output_html())
            renderers = imported("pyinstrument.renderers", "pyinstrument's renderers")
            text = self._profiler.output(renderers.SpeedscopeRenderer())
            _write(os.path.join(self.folder, "speedscope.json"), text)

    def top(self) -> List[Row]:
        records = self._session.frame_records if self._session else ()
        stacks = ((tuple(map(_named, stack)), seconds) for stack, seconds in records)
        return largest(stacks, self.most_rows)


def _named(identifier: str) -> Frame:
    """Parse pyinstrument's frame: name, file and line between zero bytes, then attributes."""
    name, path, line = (*identifier.partition("\x01")[0].split("\0"), "", "")[:3]
    return name, "%s:%s" % (path, line) if path else ""


def _is_of_steps(frames: Iterable[Frame]) -> bool:
    """Return True unless the stack is one of `measure`'s work between two timed intervals."""
    return not any(is_bookkeeping(where.rpartition(":")[0], name) for name, where in frames)


class ThreadRecorder(ProfileRecorder):
    """A thread that samples the others' stacks, for flamegraph.pl and speedscope.

    It sees a thread when that releases the interpreter lock: time in a call that does not release
    it counts for the function that made the call.
    """

    tool = "perfrun's sampler"
    version = "%d.%d.%d" % sys.version_info[:3]
    scope = "wall clock of all threads; rows are those of the main thread"

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._ended = threading.Event()
        self._paused = False
        self._thread: Optional[threading.Thread] = None
        self._stacks: Dict[Tuple[str, Tuple[Frame, ...]], float] = {}

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def start(self) -> None:
        self._ended.clear()
        self._paused = False
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self, keep: bool) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join()
        if not keep:
            self._stacks.clear()
            return
        several = len({thread for thread, _ in self._stacks}) > 1
        lines = []
        for (thread, frames), seconds in sorted(self._stacks.items()):
            labels = ["%s (%s)" % frame for frame in frames]
            words = [thread, *labels] if several else labels
            # Microseconds, not counts: the thread cannot sample at exactly regular times.
            lines.append("%s %d\n" % (";".join(w.replace(";", ":") for w in words), seconds * 1e6))
        _write(os.path.join(self.folder, "stacks.folded"), "".join(lines))

    def top(self) -> List[Row]:
        main = threading.main_thread().name
        stacks = (
            (frames, seconds)
            for (thread, frames), seconds in self._stacks.items()
            if thread == main
        )
        return largest(stacks, self.most_rows)

    def _sample(self) -> None:
        before = time.perf_counter()
        while not self._ended.wait(_INTERVAL_S):
            now = time.perf_counter()
            if self._paused:
                before = now
                continue
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                stack = _stack(frame)
                if ident != threading.get_ident() and stack:
                    key = (names.get(ident, "thread %d" % ident), stack)
                    self._stacks[key] = self._stacks.get(key, 0.0) + now - before
            before = now


def _stack(frame: Optional[FrameType]) -> Tuple[Frame, ...]:
    frames = []
    while frame is not None:
        code = frame.f_code
        # The line of the `def`, so that a function is one row, whatever line a sample found.
        frames.append((code.co_name, "%s:%d" % (code.co_filename, code.co_firstlineno)))
        frame = frame.f_back
    found = tuple(reversed(frames))
    # A sample of the thread that ends the recording counts for the caller of the recorder.
    own = [at for at, (_, where) in enumerate(found) if where.rpartition(":")[0] == __file__]
    return found[: own[0]] if own else found


class SpyRecorder(ProfileRecorder):
    """py-spy, a process of its own that reads our memory; our own thread if it must not."""

    tool = "py-spy"
    scope = "wall clock of threads that run"

    def __init__(self, folder: str, program: str) -> None:
        super().__init__(folder)
        self._program = program
        self._files: List[str] = []  # one for each window
        self._file = ""
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._instead: Optional[ThreadRecorder] = None
        answer = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=False).stdout
        self.version = answer.decode("utf-8", "replace").strip().rpartition(" ")[2] or None

    def pause(self) -> None:
        if self._instead is not None:
            self._instead.pause()

    def resume(self) -> None:
        if self._instead is not None:
            self._instead.resume()

    def start(self) -> None:
        if self._instead is not None:
            self._instead.start()
            return
        number = len(self._files) + 1
        name = "speedscope.json" if number == 1 else "speedscope_%d.json" % number
        self._file = os.path.join(self.folder, name)
        log = os.path.join(self.folder, "py-spy.log")
        words = ["record", "--pid", str(os.getpid()), "--rate", str(_SPY_RATE_HZ)]
        words += ["--format", "speedscope", "--function", "--output", self._file]
        words += ["--full-filenames"]
        with open(log, "wb") as file:
            self._process = subprocess.Popen([self._program, *words], stdout=file, stderr=file)
        _may_be_read_by(self._process.pid)
        end = time.monotonic() + _SPY_BEGINS_S
        while time.monotonic() < end and self._process.poll() is None:
            if b"Sampling process" in _read(log):
                return
            time.sleep(0.02)
        self._process.kill()
        self._process.wait()
        said = _read(log).decode("utf-8", "replace").strip().splitlines()[:1]
        self.notes.append("py-spy could not be used: %s" % (said[0] if said else "no answer"))
        self._instead = ThreadRecorder(self.folder)
        self.tool, self.version = self._instead.tool, self._instead.version
        self.scope = self._instead.scope
        self._instead.start()

    def stop(self, keep: bool) -> None:
        if self._instead is not None:
            self._instead.times_steps_only = self.times_steps_only
            self._instead.stop(keep)
            return
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_SPY_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError("py-spy did not end in %g s" % _SPY_ENDS_S) from None
        if not os.path.exists(self._file):
            if keep:
                raise RuntimeError("py-spy wrote nothing")
        elif keep:
            self._files.append(self._file)
        else:
            os.unlink(self._file)

    def top(self) -> List[Row]:
        if self._instead is not None:
            self._instead.most_rows = self.most_rows
            return self._instead.top()
        stacks = [one for path in self._files for one in _spied(path)]
        if self.times_steps_only:
            stacks = [one for one in stacks if _is_of_steps(one[0])]
        return largest(stacks, self.most_rows)


def _spied(path: str) -> Iterator[Tuple[Tuple[Frame, ...], float]]:
    """Yield each stack of a file of py-spy's with its seconds."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    named = [
        (frame["name"], "%s:%s" % (frame.get("file"), frame.get("line")))
        for frame in document["shared"]["frames"]
    ]
    for profile in document["profiles"]:
        for sample, weight in zip(profile["samples"], profile["weights"]):
            yield tuple(named[index] for index in sample), weight


def _may_be_read_by(pid: int) -> None:
    """Allow our child to read our memory, where Yama allows only ancestors."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
    except (OSError, AttributeError):
        pass


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)

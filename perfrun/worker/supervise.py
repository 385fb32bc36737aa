"""The first program of a trial's container: it starts the worker, watches it and ends it.

It runs as `python -I entry.py --supervise ORDER` and is process 1, which no process in there can
kill, stop or trace, and without which none goes on. It talks with the harness through its
standard streams, which the engine carries. It writes lines of JSON: `{"worker": pid}`;
`{"ended": pid}` when the worker has ended; `{"exit": {...}}` when none of its processes is left. It
reads single letters: T and Q signal the worker, K kills all. When its input ends, the harness is
gone, and the supervisor kills every process of the container.

After the benchmark has begun, the supervisor starts no thread and no process, and imports nothing:
a benchmark may have used up the means for these.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from perfrun.worker.cgroups import find_cgroup
from perfrun.worker.procfs import (
    CHILD_GRACE_S,
    HELPER_GRACE_S,
    hide_from_equals,
    is_pythons_own,
    last_io_counts,
    state_and_flags,
    usage_counts,
)

TERM_GRACE_S = 2.0  # for the worker when the container is stopped from outside
_ENDED = ("Z", "X", "")  # states of a process that is gone, or only waits to be reaped
MOST_NAMED = 20  # of the processes left behind; a fork bomb leaves thousands


class Supervisor:
    """The supervisor of one worker, from its start to the report on its end."""

    def __init__(self, order_path: str) -> None:
        self.order_path = order_path
        with open(order_path, encoding="utf-8") as file:
            self.settings: Dict[str, Any] = json.load(file)["supervision"]
        self.pid = 0
        self.ended: Optional[Tuple[int, Any, float]] = None  # status, rusage, seconds
        self.moved: Dict[str, int] = {}  # `io_counts` of the worker
        self.told_from_outside: Optional[str] = None
        self.harness_is_gone = False
        self.listens = True

    def run(self) -> int:
        """Start the worker, wait for its end, and report it."""
        _require_own_container()
        wake = _wake_on_signals()
        home = os.environ.get("HOME", "/")
        try:
            os.makedirs(home, exist_ok=True)
        except OSError:
            pass
        cgroup = find_cgroup()
        if self.settings.get("cpus"):
            os.sched_setaffinity(0, self.settings["cpus"])  # where no cgroup can limit it to these
        begin = time.perf_counter()
        self._start()
        _say({"worker": self.pid})
        self._watch(wake, begin)
        _say({"ended": self.pid})  # before the processes that it left behind are waited for
        left_behind = self._end_left_behind()
        assert self.ended is not None
        report = self._report(self.ended, left_behind)
        report["cgroup"] = cgroup.read() if cgroup else None
        self._write(report)
        _say({"exit": report})
        return 0

    def _start(self) -> None:
        """Fork and execute the worker; importing `subprocess` would cost every trial its time.

        The worker begins once this process is hidden from it. Its own counts are opened before,
        because a process that has not executed a program yet is as hidden as its parent.
        """
        entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py")
        out = os.open(self.settings["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        err = out
        if self.settings["stderr"] != self.settings["stdout"]:
            err = os.open(self.settings["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        null = os.open(os.devnull, os.O_RDWR)
        gate, opens = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.read(gate, 1)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_DFL)
                for target, source in enumerate((null, out, err)):
                    os.dup2(source, target)
                os.execv(sys.executable, [sys.executable, entry, self.order_path])
            finally:
                os._exit(127)
        self.last_io_counts = last_io_counts(str(self.pid))
        hide_from_equals()
        os.write(opens, b"g")
        for handle in {null, out, err, gate, opens}:
            os.close(handle)

    def _watch(self, wake: int, begin: float) -> None:
        """Obey the harness until the worker has ended."""
        kill_at: Optional[float] = None
        while self.ended is None:
            sources = [wake, 0] if self.listens else [wake]
            pause = None if kill_at is None else max(0.0, kill_at - time.perf_counter())
            ready, _, _ = select.select(sources, [], [], pause)
            if wake in ready:
                numbers = os.read(wake, 4096)
                if signal.SIGTERM in numbers and self.told_from_outside is None:
                    self.told_from_outside = "SIGTERM"
                    self._signal_worker(signal.SIGTERM)
                    kill_at = time.perf_counter() + TERM_GRACE_S
            if 0 in ready:
                self._obey(_read_stdin())
            if kill_at is not None and time.perf_counter() >= kill_at:
                kill_at = None
                _kill_all()
            self._reap(begin)

    def _obey(self, letters: bytes) -> None:
        if not letters:
            self.listens = False
            self.harness_is_gone = True
            _kill_all()
        for letter in letters:
            if letter == ord("K"):
                _kill_all()
            elif self.ended is not None:
                continue  # too late: another process may have its pid
            elif letter == ord("T"):
                self._signal_worker(signal.SIGTERM)
            elif letter == ord("Q"):
                _signal(os.kill, self.pid, signal.SIGQUIT)

    def _signal_worker(self, number: int) -> None:
        """Send a signal to the worker's whole process group, as a terminal does."""
        _signal(os.killpg, self.pid, number)

    def _reap(self, begin: float) -> None:
        """Reap the processes that have ended: the worker, and all orphans of the container."""
        if self.ended is None and _is_zombie(self.pid):
            self.moved = self.last_io_counts()  # gone once the zombie is reaped
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.ended = (status, usage, time.perf_counter() - begin)

    def _end_left_behind(self) -> List[str]:
        """Kill the processes that the worker left behind, and return their commands.

        multiprocessing's helpers come last: a helper ends and frees shared memory when no process
        holds its pipe any more, and the processes that the worker has forked hold it, too.
        """
        begin = time.perf_counter()
        while _others() and time.perf_counter() - begin < CHILD_GRACE_S:
            self._pause()
        found: Dict[int, str] = {}
        begin = time.perf_counter()
        while time.perf_counter() - begin < HELPER_GRACE_S:
            others = _others()
            helpers = {pid for pid in others if is_pythons_own(pid)}
            if not helpers:
                break
            _name(others - helpers, found)
            for pid in others - helpers:
                _signal(os.kill, pid, signal.SIGKILL)
            self._pause()
        _name(_others(), found)
        limit = time.perf_counter() + 5.0
        while _others() and time.perf_counter() < limit:
            _kill_all()
            self._reap(0.0)
            time.sleep(0.001)
        for pid in _others() & set(found):
            found[pid] += ", which could not be ended"
        names = list(found.values())[:MOST_NAMED]
        if len(found) > MOST_NAMED:
            names.append("%d more" % (len(found) - MOST_NAMED))
        return names

    def _pause(self) -> None:
        """Obey the harness for a moment."""
        if select.select([0] if self.listens else [], [], [], 0.01)[0]:
            self._obey(_read_stdin())
        self._reap(0.0)

    def _report(self, ended: Tuple[int, Any, float], left_behind: List[str]) -> Dict[str, Any]:
        status, usage, elapsed_s = ended
        exited = os.WIFEXITED(status)
        return {
            "exit_code": os.WEXITSTATUS(status) if exited else None,
            "signal_number": None if exited else os.WTERMSIG(status),
            "elapsed_s": elapsed_s,
            "user_cpu_s": usage.ru_utime,
            "system_cpu_s": usage.ru_stime,
            "max_rss_bytes": usage.ru_maxrss * 1024,
            "resources": dict(usage_counts(usage), **self.moved),
            "strays": left_behind,
            "told_from_outside": self.told_from_outside,
            "harness_is_gone": self.harness_is_gone,
        }

    def _write(self, report: Dict[str, Any]) -> None:
        """Write the report to disk, too: the engine, which carries our output, may have ended."""
        path = self.settings["exit"]
        aside = path + ".next"
        try:
            # A trial may have left anything by this name: a pipe that nobody reads, a link.
            if os.path.lexists(aside):
                os.unlink(aside)
            file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                json.dump(report, stream)
            os.replace(aside, path)
        except OSError:
            pass


def _require_own_container() -> None:
    """Exit outside a fresh container: the supervisor kills every process that it can see."""
    if os.getpid() != 1 or _others():
        sys.exit("perfrun's supervisor runs in a container of its own, as its first process")


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable on the end of a child or on SIGTERM."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return read


def _is_zombie(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except OSError:
        return False


def _say(message: Dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(message).encode("ascii") + b"\n")
    except OSError:
        pass  # the harness has ended


def _read_stdin() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:
        return b""


def _signal(send: Any, pid: int, number: int) -> None:
    try:
        send(pid, number)
    except OSError:
        pass  # it has just ended


def _kill_all() -> None:
    """Kill all processes but this one: in one call, so that none escapes by forking."""
    _signal(os.kill, -1, signal.SIGKILL)


def _others() -> Set[int]:
    """Return the living processes besides this one. Zombies do not count."""
    found = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
    return {pid for pid in found if state_and_flags(pid)[0] not in _ENDED}


def _name(pids: Set[int], found: Dict[int, str]) -> None:
    """Add the commands of processes to `found`; the first `MOST_NAMED` suffice."""
    for pid in sorted(pids - set(found)):
        command = _command(pid) if len(found) < MOST_NAMED else ""
        if state_and_flags(pid)[0] not in _ENDED:  # else it has ended by itself
            found[pid] = command


def _command(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        words = "?"
    return "%s (pid %d in the container)" % (words[:80], pid)

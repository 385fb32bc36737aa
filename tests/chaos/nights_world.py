"""The world of a simulated night: a clock, an engine and a disk that do as its plan says.

All else is perfrun's own code and real: git, files, locks, the index, HTTP. What stands in for the
world is put in place in the process of one night (`enter`), which can then really be killed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

REAL_SLEEP = time.sleep
REAL_OPEN, REAL_WRITE, REAL_CLOSE = os.open, os.write, os.close
NOISE = 0.01  # of a trial's time, one standard deviation
SLOWED = 1.2  # a disturbed trial
STEAL = 0.3  # of its time: how perfrun knows that it is disturbed
IMAGE_ID = "sha256:" + "5" * 64
DAY_S = 86400.0
FATES = (
    *("failed", "exited", "crashed", "hung", "no_outcome", "garbage", "half", "wrong_types"),
    *("links", "garbage_report", "huge", "not_started", "oom"),
)


@dataclass(frozen=True, kw_only=True)
class Script:
    """What happens in one call of `perfrun nightly`; every number is drawn before it begins."""

    seed: str
    fates: float = 0.0  # the share of trials that end badly
    disturbed: float = 0.03
    slow: float = 1.0  # what the machine does to every trial
    kill_at: int | None = None  # the number of the event (call, return) at which it is killed
    kill_in_trial: int | None = None  # the number of the trial in which it is killed
    signal_in_trial: int | None = None
    jump: tuple[int, float] | None = None  # from this trial on the clock is so much later
    disk: tuple[int, int, bool] | None = None  # number of the call, errno, from then on
    engine_gone: int | None = None  # from so many starts of the engine on there is none
    image_gone: bool = False
    broken: str | None = None  # what a throw-away worker does instead of answering
    trial_s: float = 60.0  # of a trial, process and all; the figure is what it measures


@dataclass
class Shared:
    """What a night says to the simulation, in memory that outlives its process."""

    memory: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 4096))

    def put(self, now: float, mono: float, events: int, disk: int, hit: int) -> None:
        struct.pack_into("ddqqq", self.memory, 0, now, mono, events, disk, hit)

    def get(self) -> tuple[float, float, int, int, int]:
        return struct.unpack_from("ddqqq", self.memory, 0)


class Clock:
    """Time that passes when a trial runs or somebody sleeps, and a moment at every look."""

    def __init__(self, now: float, mono: float) -> None:
        self.now, self.mono = now, mono
        self._timer: float | None = None
        self._main = threading.main_thread()

    def _look(self) -> None:
        if threading.current_thread() is self._main:
            self.now += 1e-4
            self.mono += 1e-4

    def time(self) -> float:
        self._look()
        return self.now

    def monotonic(self) -> float:
        self._look()
        return self.mono

    def sleep(self, seconds: float) -> None:
        # Other threads, and who waits for git, wait for something that really happens.
        waits = sys._getframe(1).f_globals.get("__name__") == "subprocess"
        if waits or threading.current_thread() is not self._main:
            REAL_SLEEP(seconds)
        else:
            self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass, up to the moment at which a timer rings."""
        passed = seconds
        rings = self._timer is not None and self._timer <= self.mono + seconds
        if rings and self._timer is not None:
            passed, self._timer = max(0.0, self._timer - self.mono), None
        self.now += passed
        self.mono += passed
        if rings:
            signal.raise_signal(signal.SIGALRM)

    def setitimer(self, _which: int, seconds: float, interval: float = 0.0) -> tuple[float, float]:
        left = 0.0 if self._timer is None else max(1e-3, self._timer - self.mono)
        self._timer = self.mono + seconds if seconds > 0 else None
        return left, interval


class Disk:
    """The calls that change or read files of the workspace; one of them fails, or all from it on.

    What the engine does is no call of the harness, so it does not count.
    """

    NAMES = ("open", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "listdir", "scandir")

    def __init__(self, place: Path, fault: tuple[int, int, bool] | None) -> None:
        self._place, self._fault = str(place), fault
        self.calls = self.hit = 0
        self.paused = False

    def install(self) -> None:
        for name in self.NAMES:
            setattr(os, name, self._wrapped(getattr(os, name)))
        io.open = self._wrapped(io.open)  # what pathlib opens files with

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*words: Any, **named: Any) -> Any:
            if not self.paused and self._is_ours(words, named):
                self._count(words, named)
            return call(*words, **named)

        return wrapper

    def _is_ours(self, words: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        if any(named.get(name) is not None for name in ("dir_fd", "src_dir_fd")):
            return True
        first = words[0] if words else "."
        if isinstance(first, int):
            with contextlib.suppress(OSError):
                first = Path(f"/proc/self/fd/{first}").readlink()
        return str(first).startswith(self._place)

    def _count(self, words: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        self.calls += 1
        if self._fault is None:
            return
        at, number, ever = self._fault
        if self.calls == at or (ever and self.calls > at):
            self.hit += 1
            name = os.fspath(words[0]) if not isinstance(words[0], int) else None
            raise OSError(number, os.strerror(number), name)


class Killer:
    """Kills this process at a given call or return of its main thread."""

    def __init__(self, at: int | None) -> None:
        self.events, self._at = 0, at

    def install(self) -> None:
        sys.setprofile(self._event)

    def _event(self, _frame: object, _event: str, _argument: object) -> None:
        self.events += 1
        if self.events == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


class Running:
    """A trial; it takes its time, and writes what a worker would, or something else."""

    def __init__(self, engine: Engine, order: Mapping[str, Any], fate: str, number: int) -> None:
        self._engine, self._order, self._fate, self._number = engine, order, fate, number
        self._stopped: str | None = None
        self._begun = engine.clock.mono

    pid = None
    own_cgroup = False

    def wait(self, timeout_s: float | None) -> Any:
        engine, clock = self._engine, self._engine.clock
        script = engine.script
        if self._stopped is None:
            own_s = math.inf if self._fate == "hung" else script.trial_s
            if script.signal_in_trial == self._number:
                clock.advance(1.0)
                signal.raise_signal(signal.SIGTERM)
            clock.advance(min(own_s, timeout_s or math.inf, 3 * DAY_S))
            if self._fate == "hung":
                self._stopped = "deadline"
        if script.kill_in_trial == self._number:
            if engine.random.random() < 0.5:  # the worker came to its end before
                self._write("ok")
            os.kill(os.getpid(), signal.SIGKILL)
        engine.pausing(self._write, "half" if self._stopped else self._fate)
        engine.note(self._order, "ended", self._stopped or self._fate)
        return self._exit()

    def stop(self, why: str) -> None:
        self._stopped = why
        self._engine.clock.advance(2.0)

    def kill(self) -> None:
        self._stopped = self._stopped or "interrupt"

    def close(self) -> Mapping[str, Any]:
        return {}

    def _exit(self) -> Any:
        from perfrun.launchers.launcher import Exit

        signals = {"crashed": 11, "oom": 9}
        number = 15 if self._stopped else signals.get(self._fate)
        spent = self._engine.clock.mono - self._begun
        return Exit(
            exit_code=None if number else (3 if self._fate == "exited" else 0),
            signal_number=number,
            stopped_for=self._stopped,
            elapsed_s=spent,
            user_cpu_s=0.9 * spent,
            system_cpu_s=0.05 * spent,
            max_rss_bytes=18_000_000,
            strays=(),
        )

    def _write(self, fate: str) -> None:
        order, draw = self._order, self._engine.random
        private, folder = Path(order["private_dir"]), Path(order["output_dir"])
        value = self._engine.value_of(order)
        outcome = outcome_of(order, self._engine.clock.now, value, draw)
        if fate in ("no_outcome", "oom"):
            return
        if fate in ("half", "crashed"):
            outcome["complete"] = False
        if fate in ("failed", "huge"):
            message = "x" * 10**6 if fate == "huge" else "no \x1b[31mluck\n::error::here"
            outcome["error"] = {
                "kind": "exception",
                "type": "ValueError",
                "message": message,
                "traceback": "Traceback: ValueError\n",
            }
        if fate == "exited":
            outcome["error"] = {"kind": "exit", "exit_code": 3, "message": "exit"}
        if fate == "wrong_types":
            key = draw.choice(sorted(outcome))
            outcome[key] = draw.choice([None, "x", [], {"a": math.nan}, 10**400, -1.5])
        if fate == "links":
            for name in ("stderr.log", "stdout.log", "proto_x"):
                with contextlib.suppress(OSError):
                    (folder / name).unlink(missing_ok=True)
                    (folder / name).symlink_to("/etc/passwd")
            os.mkfifo(private / "series_1.json")
        else:
            write_report(folder, order["method"], value, garbage=fate == "garbage_report")
        text = json.dumps(outcome).encode()
        if fate == "garbage":
            text = draw.randbytes(draw.randrange(1, 5000))
        place = private / ("outcome.next" if fate in ("half", "crashed") else "outcome.json")
        place.write_bytes(text.ljust(4096))


class Serving:
    """A throw-away worker."""

    def __init__(self, engine: Engine, order: Mapping[str, Any], log: Path) -> None:
        self._engine, self._order, self._log = engine, order, log

    def wait(self, timeout_s: float) -> int | None:
        broken = self._engine.script.broken
        if broken == "hangs":
            self._engine.clock.advance(timeout_s)
            return None
        self._engine.clock.advance(0.5)
        answer = Path(self._order["answer"])
        if broken == "dies":
            self._log.write_bytes(b"Segmentation fault\n")
            return -11
        if broken == "garbage":
            answer.write_bytes(self._engine.random.randbytes(200))
            return 0
        answer.write_text(json.dumps(self._engine.description), encoding="utf-8")
        return 0

    def end(self) -> None:
        pass


class Launcher:
    """Starts trials of one environment: an interpreter, or an image of the engine."""

    def __init__(self, engine: Engine, image: str | None) -> None:
        self._engine, self._image = engine, image
        self.name = f"--image={image}" if image else f"--python={sys.executable}"

    def start(self, order: Mapping[str, Any], folder: Path, private: Path) -> Running:
        return self._engine.started(order, self._image)

    def serve(self, order: Mapping[str, Any], folder: Path, log: Path) -> Serving:
        self._engine.check_there(self._image)
        return Serving(self._engine, order, log)

    def set_variables(self, variables: Mapping[str, str]) -> None:
        pass

    def container_facts(self) -> Mapping[str, Any] | None:
        if self._image is None:
            return None
        return {"image": self._image, "image_id": IMAGE_ID, "interpreter": "/usr/bin/python3"}


class Engine:
    """What starts trials. Its log has each, begun and ended, also of a night that was killed."""

    def __init__(
        self, script: Script, clock: Clock, disk: Disk, log: Path, description: Mapping[str, Any]
    ) -> None:
        self.script, self.clock, self.disk = script, clock, disk
        self.description = description
        self.random = random.Random(f"engine {script.seed}")
        self._log = REAL_OPEN(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._trials = self._starts = 0
        self.is_disturbed = False

    def pausing(self, call: Callable[..., Any], *words: Any) -> Any:
        """Do something that is not the harness's: the disk does not count it."""
        self.disk.paused = True
        try:
            return call(*words)
        finally:
            self.disk.paused = False

    def launcher(self, plan: Any, _run_id: str, _notify: Callable[[str], None]) -> Launcher:
        from perfrun.errors import UsageError

        if plan.container is None:
            return Launcher(self, None)
        self.check_there(plan.container.image)
        if self.script.image_gone:
            raise UsageError(f"--image={plan.container.image}: the engine has no such image")
        return Launcher(self, plan.container.image)

    def check_there(self, image: str | None) -> None:
        from perfrun.errors import UsageError

        self._starts += 1
        gone = self.script.engine_gone
        if image is not None and gone is not None and self._starts > gone:
            raise UsageError(f"--image={image}: no engine answers at unix:///var/run/docker.sock")

    def started(self, order: Mapping[str, Any], image: str | None) -> Running:
        self._trials += 1
        script, draw = self.script, self.random
        if script.jump is not None and script.jump[0] == self._trials:
            self.clock.now += script.jump[1]
        fate = draw.choice(FATES) if draw.random() < script.fates else "ok"
        self.is_disturbed = draw.random() < script.disturbed
        if image is not None and script.engine_gone is not None:
            self._starts += 1
            if self._starts > script.engine_gone:
                fate = "not_started"
        self.note(order, "begun", fate)
        if fate == "not_started":
            raise OSError(errno.ECONNREFUSED, "the engine does not answer")
        return Running(self, order, fate, self._trials)

    def note(self, order: Mapping[str, Any], event: str, fate: str) -> None:
        line = {"event": event, "folder": order["output_dir"], "fate": fate}
        REAL_WRITE(self._log, json.dumps(line).encode() + b"\n")

    def value_of(self, order: Mapping[str, Any]) -> float:
        """Return what the trial measures: the level of its method in the checkout, and noise."""
        levels = json.loads((Path(order["first_paths"][0]) / "levels.json").read_text())
        name = order["method"]["name"]
        slow = self.script.slow * (SLOWED if self.is_disturbed else 1.0)
        return float(levels[name]) * slow * math.exp(self.random.gauss(0.0, NOISE))


def outcome_of(
    order: Mapping[str, Any], now: float, value: float, draw: random.Random
) -> dict[str, Any]:
    """Return the outcome of a trial that went well, as a worker writes it."""
    rss = round(18_000_000 * math.exp(draw.gauss(0.0, 0.002)))
    counts = {"user_s": 0.06, "system_s": 0.01, "minor_faults": 2000, "major_faults": 0}
    method = order["method"]
    file = Path(order["first_paths"][0]).joinpath(*method["module"].split(".")).with_suffix(".py")
    return {
        "complete": True,
        "phase": "method",
        "pid": 4242,
        "error": None,
        "phases": {
            "import": {"wall_s": 0.09, "cpu_s": 0.03},
            "construct": {"wall_s": 6e-5, "cpu_s": 6e-5},
            "method": {"wall_s": value, "cpu_s": 0.97 * value},
        },
        "timestamp": now,
        "memory": {
            "before_method": {"peak_rss_bytes": rss - 10**6, "peak_vms_bytes": 20_000_000},
            "reset": True,
            "end": {"peak_rss_bytes": rss, "peak_vms_bytes": 22_000_000},
        },
        "resources": {"before": counts, "after": {**counts, "user_s": 0.06 + 0.97 * value}},
        "allocators": [],
        "allocator": {"name": "glibc", "library": None, "libc": "glibc 2.36", "settings": {}},
        "module_file": str(file),
        "framework": None,
        "frameworks": [],
        "unsaved_reports": [],
        "profiles": [],
        "notes": [],
    }


def write_report(
    folder: Path, method: Mapping[str, Any], value: float, *, garbage: bool = False
) -> None:
    from perfrun.worker.test_log import encode_entry

    name = f"{method['class_name']}.{method['name']}"
    entry = encode_entry(name, iters=10, wall_time=value)
    (folder / f"proto_{name}").write_bytes(entry[: len(entry) // 2] if garbage else entry)


class NoKills:
    """The kernel kills nobody for lack of memory."""

    def __enter__(self) -> NoKills:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def of(self, _pid: int | None) -> tuple[int, bool]:
        return 0, True


def _watch_class(engine: Engine, state: Any) -> type:
    """Return what stands in for the watching of this machine, on which others are at work."""
    from perfrun.probes.accelerators import DevicesUsage
    from perfrun.probes.watch import Energy, Watched

    class Watch:
        def __init__(self, _pid: int | None, _folder: Path, *, own_cgroup: bool) -> None:
            self._before = self._state(0.0, 0.0)
            self._begun = engine.clock.mono

        def _state(self, elapsed_s: float, stolen_s: float) -> Any:
            old = state.snapshot.counters
            counters = replace_all(
                old,
                elapsed_s=old.elapsed_s + elapsed_s,
                wall_clock_s=old.wall_clock_s + elapsed_s,
                idle_s=(old.idle_s or 0.0) + elapsed_s * state.cpus,
                steal_s=(old.steal_s or 0.0) + stolen_s,
            )
            return replace_all(state, snapshot=replace_all(state.snapshot, counters=counters))

        def finish(self) -> Watched:
            spent = engine.clock.mono - self._begun
            stolen = STEAL * spent * state.cpus if engine.is_disturbed else 0.0
            return Watched(
                tree=None,
                devices=DevicesUsage(reason="none here"),
                energy=Energy(),
                before=self._before,
                after=self._state(spent, stolen),
                own_cgroup=False,
            )

    return Watch


def replace_all(value: Any, **changes: Any) -> Any:
    from perfrun.dataclass import replace as replaced

    return replaced(value, **changes)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is the same in every night, read once from this machine."""

    description: Mapping[str, Any]  # of this interpreter, by a real worker
    machine: Any
    state: Any  # of the machine


def enter(
    script: Script, place: Path, now: float, mono: float, shared: Shared, facts: Facts
) -> Iterator[None]:
    """Put the world of a night in place; this process must end after it."""
    import perfrun.probes.machine
    import perfrun.run.rounds
    import perfrun.run.runner
    import perfrun.run.trial
    import perfrun.workspace.worktree
    from perfrun.nightly.webhook import post

    clock = Clock(now, mono)
    disk = Disk(place / "workspace", script.disk)
    engine = Engine(script, clock, disk, place / "engine.jsonl", facts.description)
    killer = Killer(script.kill_at)

    class Dates(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.fromtimestamp(clock.time(), tz)

    for module in (perfrun.run.runner, perfrun.run.rounds):
        module.datetime = Dates  # type: ignore[attr-defined]
    perfrun.run.runner.make_launcher = engine.launcher  # type: ignore[attr-defined]
    perfrun.run.trial.Watch = _watch_class(engine, facts.state)  # type: ignore[misc,attr-defined]
    perfrun.run.trial.OomKills = NoKills  # type: ignore[misc,assignment,attr-defined]
    perfrun.probes.machine.machine = lambda: facts.machine
    perfrun.workspace.worktree.harness_git_info = lambda _folder: {}  # type: ignore[assignment]
    time.time, time.monotonic, time.perf_counter = clock.time, clock.monotonic, clock.monotonic
    time.sleep = clock.sleep
    post.__defaults__ = (clock.advance,)  # it keeps the sleep that it was defined with
    signal.setitimer = clock.setitimer  # type: ignore[assignment]
    os.urandom = random.Random(f"urandom {script.seed}").randbytes  # type: ignore[assignment]
    disk.install()
    if script.kill_at is not None or script.seed.endswith("/count"):
        killer.install()
    try:
        yield
    finally:
        sys.setprofile(None)
        shared.put(clock.now, clock.mono, killer.events, disk.calls, disk.hit)

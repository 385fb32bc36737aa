"""Random accidents in a run: kills, full disks, clocks that jump, locks that are held.

A fault's name has its seed, from which all of it is drawn: what happens, when, and to whom.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from accidents import killed, later
from subject import ROOT, Subject

KINDS = ("harness", "worker", "signal", "two", "locked", "disk", "clock")
_LATEST_S = 1.6  # of an accident; a run takes about half of that
_FAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"
_DAY_S = 86400


def scenario_of(name: str) -> str:
    """Return the scenario that a fault is made in."""
    kind, _, seed = name.partition("/")
    if kind in ("locked", "disk"):
        return "index"
    return random.Random(f"scenario {seed}").choice(("plain", "index", "resume"))


def make_fault(subject: Subject, name: str) -> tuple[bool, list[str]]:
    """Make one fault; True when it could be made here, and what was wrong afterwards."""
    kind, _, seed = name.partition("/")
    draw = random.Random(seed)
    subject.restore()
    made = _MAKERS[kind](subject, draw)
    return (False, []) if made is None else (True, made)


def _kill(subject: Subject, draw: random.Random) -> list[str]:
    """Kill the harness."""
    at_s = draw.uniform(0, _LATEST_S)
    return subject.problems(subject.run(watched=partial(later, at_s, killed)))


def _kill_worker(subject: Subject, draw: random.Random) -> list[str]:
    """Kill one of the processes that the harness has started."""
    at_s = draw.uniform(0, _LATEST_S)

    def kill(pid: int) -> None:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            os.kill(int(draw.choice(children)), draw.choice((signal.SIGKILL, signal.SIGSEGV)))

    return subject.problems(subject.run(watched=partial(later, at_s, kill)))


def _signal(subject: Subject, draw: random.Random) -> list[str]:
    """Send signals that end a run in good order, one or two of them."""
    at_s = draw.uniform(0, _LATEST_S)
    numbers = draw.choices((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), k=draw.choice((1, 2)))

    def send(pid: int) -> None:
        for number in numbers:
            os.kill(pid, number)
            time.sleep(0.02)

    return subject.problems(subject.run(watched=partial(later, at_s, send)))


def _two(subject: Subject, draw: random.Random) -> list[str]:
    """Two harnesses in one workspace, one of them killed."""
    at_s = draw.uniform(0, 2 * _LATEST_S)
    other = subject.start(tag="-other")
    ended = subject.run(watched=partial(later, at_s, killed))
    return subject.problems(ended, other.end())


def _locked(subject: Subject, draw: random.Random) -> list[str]:
    """Somebody else writes into the index for a while, and may be killed in it."""
    at_s, held_s = draw.uniform(0, _LATEST_S / 2), draw.uniform(0.05, 2.0)
    how = draw.choice(("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"))

    def hold(_: int) -> None:
        database = sqlite3.connect(subject.workspace / "perfrun.db")
        with contextlib.closing(database), contextlib.suppress(sqlite3.OperationalError):
            database.execute(how)
            time.sleep(held_s)

    return subject.problems(subject.run(watched=partial(later, at_s, hold)))


def _disk(subject: Subject, draw: random.Random) -> list[str] | None:
    """A disk that is full after some kilobytes; later there is room again."""
    if os.geteuid() != 0:
        return None  # mounts need root
    place = subject.workspace
    shutil.rmtree(place)
    place.mkdir()
    size_kib = draw.choice((draw.randint(160, 1400), draw.randint(1024, 1500)))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(place)]
    subprocess.run(mount, check=True)
    try:
        shutil.copytree(subject.template, place, dirs_exist_ok=True)
        ended = subject.run()
        subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
        return subject.problems(ended)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _clock(subject: Subject, draw: random.Random) -> list[str] | None:
    """The clock jumps by up to a day in the middle of a run, and the run is killed or not."""
    libraries = sorted(Path("/").glob(_FAKETIME.lstrip("/")))
    if not libraries:
        return None
    rule = subject.folder / "clock"
    jump_s = draw.choice((-_DAY_S, -3600, -5, 5, 3600, _DAY_S))
    at_s, dies = draw.uniform(0, _LATEST_S), draw.random() < 0.5
    rule.write_text("+0\n")
    env = {
        **os.environ,
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(rule),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "TMPDIR": str(subject.temporary),
    }
    words = [sys.executable, str(ROOT / "perfrun" / "benchmark.py"), *subject.words()]
    process = subprocess.Popen(
        words, env=env, cwd=subject.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )

    def turn(pid: int) -> None:
        aside = rule.with_suffix(".next")
        aside.write_text(f"{jump_s:+d}\n")
        aside.replace(rule)
        if dies:
            time.sleep(draw.uniform(0, 0.5))
            os.kill(pid, signal.SIGKILL)

    with later(at_s, turn, process.pid):
        ended = subject.ended(process)
    return subject.problems(ended)


_MAKERS: dict[str, Callable[[Subject, random.Random], list[str] | None]] = {
    "harness": _kill,
    "worker": _kill_worker,
    "signal": _signal,
    "two": _two,
    "locked": _locked,
    "disk": _disk,
    "clock": _clock,
}

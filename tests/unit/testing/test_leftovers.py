"""What a failing test leaves running is ended and heard."""

from __future__ import annotations

import subprocess
import sys

import psutil
from leftovers import Started
from worlds import wait_until

CHILD = "import time; time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
print("about to hang", flush=True)
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdin=subprocess.DEVNULL)
print(child.pid, file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_a_process_that_hangs_is_ended_with_its_children_and_what_it_said_is_shown() -> None:
    started = Started()
    with started.watching():
        hangs = subprocess.Popen([sys.executable, "-c", PARENT], stdout=-1, stderr=-1, text=True)
        ends = subprocess.Popen([sys.executable, "-c", "print('gone')"], stdout=-1)
        subprocess.run(["true"], check=True)
        assert hangs.stderr is not None
        child = int(hangs.stderr.readline())
        ends.wait()
    subprocess.run(["true"], check=True)
    assert len(started.processes) == 3
    said = started.end_all()
    assert "was running still\nabout to hang" in said
    assert "had ended with 0\ngone" in said
    assert "'true'" not in said
    assert hangs.returncode == -9
    wait_until(lambda: not _runs(child))
    assert hangs.stdout is not None
    assert hangs.stdout.closed
    assert ends.stdout is not None
    assert ends.stdout.closed


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

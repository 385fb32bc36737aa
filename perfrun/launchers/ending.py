"""When a worker is to be ended, and how it is asked to: the same wherever it runs.

A launcher brings a function that waits for the end in its own way, for so many seconds at most, and
says whether it has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from perfrun.worker.files import OUTCOME, STACK

TERM_GRACE_S = 2.0  # between SIGTERM and the dump
DUMP_LOOK_S = 0.05  # whether the dump is written, which takes a millisecond of the processor
DUMP_STILL_LOOKS = 10  # in a row without a byte more: it is written line by line
DUMP_LOOKS = 100  # for one that does not get the processor, or cannot dump
# For a process that was sent SIGKILL. To give back much memory, or a GPU, takes seconds; one that
# waits for a driver or a file server that does not answer never ends, and is left behind.
KILL_GRACE_S = 60.0
EXIT_GRACE_S = 30.0  # for a worker that has written its outcome to end
LOOK_EVERY_S = 1.0  # for the outcome; the end itself is waited for, and wakes at once

Ended = Callable[[float], bool]
Due = Literal["deadline", "exit", "disk"]


def wait_until_due(
    ended: Ended,
    private: Path,
    deadline: float | None,
    *,
    look_every_s: float = LOOK_EVERY_S,
    fills_the_disk: Callable[[], bool] | None = None,
) -> Due | None:
    """Wait for the end; return why it has to be brought about, or None when it came by itself.

    `deadline` is a time of `time.perf_counter`. A worker whose outcome is in `private` has
    `EXIT_GRACE_S` left to end.
    """
    outcome_at: float | None = None
    while not ended(_pause_s(deadline, look_every_s)):
        now = time.perf_counter()
        if fills_the_disk is not None and fills_the_disk():
            return "disk"
        if deadline is not None and now >= deadline:
            return "deadline"
        if outcome_at is None and has_said_last_word(private):
            outcome_at = now
        if outcome_at is not None and now - outcome_at > EXIT_GRACE_S:
            return "exit"
    return None


def ask_to_end(
    ended: Ended, private: Path, terminate: Callable[[], None], dump: Callable[[], None]
) -> bool:
    """SIGTERM, and a dump of the stacks of one that does not obey; whether it has ended by then.

    The dump goes into `private`. Looks are counted, not seconds: a machine that stood still has not
    let anybody write.
    """
    terminate()
    if ended(TERM_GRACE_S):
        return True
    stacks = private / STACK
    begun = size = _bytes_in(stacks)
    still = 0
    dump()
    for _ in range(DUMP_LOOKS):
        if ended(DUMP_LOOK_S):
            return True
        before, size = size, _bytes_in(stacks)
        still = still + 1 if begun < size == before else 0
        if still == DUMP_STILL_LOOKS:
            return False
    return False


def _bytes_in(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def has_said_last_word(private: Path) -> bool:
    """Whether its outcome stands.

    What is written after SIGTERM says what that made of the method, so this is asked before.
    """
    return (private / OUTCOME).exists()


def _pause_s(deadline: float | None, look_every_s: float) -> float:
    left_s = look_every_s if deadline is None else deadline - time.perf_counter()
    return max(0.0, min(look_every_s, left_s))

"""The pipe that ends a worker with its harness when a wrapper script stands between them.

An interpreter may be a script that starts the real one and waits for it. Then the harness is not
the worker's parent, and the kernel does not tell the worker of its end. So the harness holds the
writing end of a pipe in its folder open for as long as it lives, and never writes. When that end is
closed, the kernel sends SIGKILL to the worker's process group, which includes the script. See
fcntl(2), F_SETSIG, and fifo(7).
"""

from __future__ import annotations

import os
import signal
from typing import List, Optional

PIPE = "lifeline"
PID = "worker.pid"  # written by a worker that is not the harness's child
_held: List[int] = []  # open for as long as this process lives


def end_with_harness(folder: Optional[str]) -> Optional[str]:
    """Make this process end with the harness, and write its pid; return why not, or None.

    `folder` has the pipe; it is None where the harness could make none, or expected no wrapper.
    """
    if not folder:
        return (
            "its parent is not perfrun, so it would not end with perfrun: a wrapper around the "
            "interpreter must start it with `exec`, or its workspace be where a pipe can be made"
        )
    try:
        import fcntl

        pipe = os.open(os.path.join(folder, PIPE), os.O_RDONLY | os.O_NONBLOCK)
        _held.append(pipe)
        if hasattr(fcntl, "F_SETSIG"):  # Linux; other systems do not tell of a parent's end, either
            # The group has no number here when its leader is in another pid namespace.
            fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpgrp() or os.getpid())
            fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_RDONLY | os.O_NONBLOCK | os.O_ASYNC)
        if _has_no_writer(pipe):
            return "perfrun has ended before it began"
        aside = os.path.join(folder, PID + ".next")
        with open(aside, "w") as file:
            file.write("%d\n" % os.getpid())
        os.replace(aside, os.path.join(folder, PID))
    except (ImportError, OSError) as error:
        return "its parent is not perfrun, and perfrun's end cannot be watched: %s" % error
    return None


def _has_no_writer(pipe: int) -> bool:
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        return False

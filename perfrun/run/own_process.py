"""Another command of perfrun in a process of its own, which ends with the process that began it.

A run takes signals, adopts the orphans of its trials, watches /proc and may fail in any way: a
night or a notebook that begins one goes on whatever becomes of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from perfrun.shown import line

_ROOT = Path(__file__).resolve().parents[2]
# The kernel kills it when the process that began it ends, even by SIGKILL; its guard then ends the
# trial. A checkout comes last in the path, so that nothing beside it hides a module. What a script
# began in the background ignores Ctrl-C, which is how its commands are ended.
_CODE = """
import sys
sys.path[:1] = []
sys.path.append(sys.argv.pop(1))
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from perfrun.worker.procfs import die_with_parent
die_with_parent()
import os
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(130)
from perfrun.benchmark import main
sys.exit(main())
"""


def begin(words: Sequence[str], stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Begin `perfrun WORDS` in a session of its own, so that a Ctrl-C reaches it once: by us.

    Raises OSError.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, str(_ROOT), str(os.getpid()), *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a command that still runs, as Ctrl-C does, with its trial; if it stays, kill it."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(grace_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # its guard ends its trial
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)


def said_lines(data: bytes) -> list[str]:
    """Return what a command has said on standard error, without its name, fit to be shown."""
    lines = data.decode("utf-8", "replace").splitlines()
    return [line(one.removeprefix("perfrun: ")) for one in lines if one.strip()]

"""Carry out another command of perfrun in a process of its own, and read the JSON that it prints.

A bisection or an explanation takes signals, adopts the orphans of its trials and may fail in any
way: a night that begins one goes on whatever becomes of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.run.interruption import Interruption
from perfrun.shown import line
from perfrun.untrusted import Refused, parse_json, read_file

_ROOT = Path(__file__).resolve().parents[2]
_GRACE_S = 60.0  # for its trial to end, and for what it writes then
_LARGEST_ANSWER = 1 << 26
_MOST_SAID = 1 << 16
# The kernel kills it when the night's process ends, even by SIGKILL; its guard then ends the trial.
# A checkout comes last in the path, so that nothing beside it hides a module. A night that a script
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


@dataclass(frozen=True, kw_only=True)
class Carried:
    """How a command ended."""

    status: int  # its exit status, minus the signal that ended it
    late: bool  # it was interrupted, as its time was spent
    document: Any | None  # what it printed; None for nothing, and for what is no JSON
    said: str  # the last line of its standard error


def carry_out(words: Sequence[str], limit_s: float, interruption: Interruption) -> Carried:
    """Carry out `perfrun WORDS` for at most so long; then it is interrupted, as by Ctrl-C.

    Raises OSError where it cannot be started, and Interrupted when a signal ends the night.
    """
    command = [sys.executable, "-c", _CODE, str(_ROOT), str(os.getpid()), *words]
    with tempfile.TemporaryDirectory(prefix="perfrun-answer-") as folder:
        answer, errors = Path(folder, "answer.json"), Path(folder, "stderr")
        with answer.open("wb") as stdout, errors.open("wb") as stderr:
            # In a session of its own, so that a Ctrl-C reaches it once: by us.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            late = False
            try:
                with interruption.allowed():
                    process.wait(limit_s)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                _end(process)
        return Carried(
            status=-signal.SIGKILL if process.returncode is None else process.returncode,
            late=late,
            document=_document(answer),
            said=_last_line(errors),
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs as Ctrl-C does; if it stays, kill it."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:  # its guard ends its trial
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _document(path: Path) -> Any | None:
    try:
        return parse_json(read_file(path, _LARGEST_ANSWER))
    except (OSError, Refused, ValueError):
        return None


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_SAID))
        lines = file.read().decode("utf-8", "replace").splitlines()
    said = [line(one.removeprefix("perfrun: ")) for one in lines if one.strip()]
    return said[-1] if said else ""

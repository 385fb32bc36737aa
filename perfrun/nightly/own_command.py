"""Carry out a bisection or an explanation for a night, and read the JSON that it prints."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.run import own_process
from perfrun.run.interruption import Interruption
from perfrun.untrusted import Refused, parse_json, read_file

_GRACE_S = 60.0  # for its trial to end, and for what it writes then
_LARGEST_ANSWER = 1 << 26
_MOST_SAID = 1 << 16


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
    with tempfile.TemporaryDirectory(prefix="perfrun-answer-") as folder:
        answer, errors = Path(folder, "answer.json"), Path(folder, "stderr")
        with answer.open("wb") as stdout, errors.open("wb") as stderr:
            process = own_process.begin(words, stdout, stderr)
            late = False
            try:
                with interruption.allowed():
                    process.wait(limit_s)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                own_process.end(process, _GRACE_S)
        return Carried(
            status=-signal.SIGKILL if process.returncode is None else process.returncode,
            late=late,
            document=_document(answer),
            said=_last_line(errors),
        )


def _document(path: Path) -> Any | None:
    try:
        return parse_json(read_file(path, _LARGEST_ANSWER))
    except (OSError, Refused, ValueError):
        return None


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_SAID))
        said = own_process.said_lines(file.read())
    return said[-1] if said else ""

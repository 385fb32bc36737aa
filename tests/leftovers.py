"""What a test that fails leaves running is ended, and what it said is shown with the failure.

Else an innocent test gets the warning of an abandoned process, and nobody learns why the other
waited in vain.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil

_PATIENCE_S = 10.0  # for processes that were killed
_SHOWN = 20_000  # characters of each process's output, the last ones


class Started:
    """The processes that were started while it watches."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[Any]] = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Remember every process that this one starts."""
        begin = subprocess.Popen.__init__

        def remembered(process: subprocess.Popen[Any], *args: Any, **kwargs: Any) -> None:
            begin(process, *args, **kwargs)
            self.processes.append(process)

        subprocess.Popen.__init__ = remembered  # type: ignore[method-assign]
        try:
            yield
        finally:
            subprocess.Popen.__init__ = begin  # type: ignore[method-assign]

    def end_all(self) -> str:
        """Kill those that run, with all that they have started; return what was not read yet."""
        return "\n".join(filter(None, (_end(process) for process in self.processes)))


def _end(process: subprocess.Popen[Any]) -> str:
    """One of them; empty when there is nothing to be said of it."""
    running = process.poll() is None
    if running:
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in family:
                with contextlib.suppress(psutil.Error):
                    child.kill()
    said = _rest(process)
    if not running and not said:
        return ""
    how = "was running still" if running else f"had ended with {process.returncode}"
    return f"{process.args!r} {how}\n{said}"


def _rest(process: subprocess.Popen[Any]) -> str:
    """What stands in its pipes, which are closed."""
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe and not pipe.closed]
    if not pipes and process.returncode is not None:
        return ""
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdin = None
    try:
        parts: list[Any] = list(process.communicate(timeout=_PATIENCE_S))
    except subprocess.TimeoutExpired as late:  # somebody else holds the pipe
        parts = [late.output, late.stderr]
        for pipe in pipes:
            pipe.close()
    except ValueError:  # a pipe that the test has closed
        parts = []
        process.wait(_PATIENCE_S)
    texts = [part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in parts]
    return "\n".join(text[-_SHOWN:] for text in texts if text)

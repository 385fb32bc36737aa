"""Interpreters of an environment, and the programs that make one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.workspace.programs import carry_out, fitting_python, variables


def test_a_broken_interpreter_does_not_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = {"python3.99": "exit 127", "python3": "echo 3.99 cpython"}
    for name, what in says.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{what}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert fitting_python("3.99", "cpython", "") == str(tmp_path / "python3")
    with pytest.raises(UsageError, match=r"there is no Python 3\.98"):
        fitting_python("3.98", "cpython", "")


class _Stop(Exception):  # noqa: N818 - caught in this module
    """A signal has come."""


def test_what_a_program_has_started_ends_with_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # The one that it starts holds the pipe open for as long as it lives.
    inner = 'exec 3>"$0"; echo begun >&3; exec sleep 600'
    words = ["sh", "-c", f"sh -c '{inner}' \"$0\" & wait", str(pipe)]
    told: list[str] = []
    main = threading.get_ident()

    def interrupt() -> None:
        with pipe.open(encoding="utf-8") as file:
            told.append(file.readline())
            while sys._current_frames()[main].f_code.co_name != "select":
                time.sleep(0.001)  # until the program is waited for
            signal.pthread_kill(main, signal.SIGUSR1)  # or another thread might get it
            told.append(file.read())  # ends when nobody has the pipe open any more

    def on_signal(*_: object) -> None:
        raise _Stop

    before = signal.signal(signal.SIGUSR1, on_signal)
    reader = threading.Thread(target=interrupt)
    reader.start()
    try:
        with pytest.raises(_Stop):
            carry_out(words, "it", 600.0, variables())
    finally:
        signal.signal(signal.SIGUSR1, before)
        reader.join()
    assert told == ["begun\n", ""]


def test_a_program_has_a_limit() -> None:
    with pytest.raises(UsageError, match=r"it: no end within 0\.1 s"):
        carry_out(["sleep", "600"], "it", 0.1, variables())

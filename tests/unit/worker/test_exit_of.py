"""`sys.exit` with anything: the status is what Python makes of it, and the words are readable."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from perfrun.run.worker_words import outcome_of
from perfrun.worker.method import exit_of


class Wordless:
    def __str__(self) -> str:
        raise ValueError("never")


@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        (None, 0, "None"),
        (-1, 255, "-1"),
        (10**30, 255, str(10**30)),
        (-(2**63) - 1, 255, str(-(2**63) - 1)),
        (10**5000, 255, "a value of type int"),
        (Wordless(), 1, "a value of type Wordless"),
    ],
    ids=["nothing", "minus one", "large", "below", "digits", "wordless"],
)
def test_the_status_of_any_call_of_sys_exit_is_known(code: Any, status: int, says: str) -> None:
    message, found = exit_of(code)
    assert (found & 0xFF, message) == (status, says)
    error = {"kind": "exit", "message": message, "exit_code": found}
    words = {"complete": True, "phase": "method", "error": error}
    assert outcome_of(words, "outcome.json", [])["error"]["exit_code"] == found


def test_python_itself_ends_with_that_status() -> None:
    program = "import sys; sys.exit(10**30)"
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == exit_of(10**30)[1] & 0xFF

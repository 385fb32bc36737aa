"""Interpreters of an environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfrun.errors import UsageError
from perfrun.workspace.programs import fitting_python


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

"""The entry point: whatever goes wrong, the user reads one line."""

from __future__ import annotations

import sys

import pytest

from perfrun import benchmark


def test_an_error_that_cannot_be_named_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When no file can be opened any more, nothing can be imported for the log."""

    def fail(words: list[str]) -> int:
        raise RuntimeError("first")

    monkeypatch.setattr(benchmark, "_command", fail)
    monkeypatch.setitem(sys.modules, "traceback", None)
    assert benchmark.main(["list"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("perfrun: internal error: ModuleNotFoundError: ")
    assert said.endswith("; no log could be written\n")
    assert said.count("\n") == 1

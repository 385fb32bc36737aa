"""Wheels of an environment."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from perfrun.replay import wheels
from perfrun.replay.installed import Distribution


def installed(folder: Path, name: str) -> Distribution:
    """A distribution that no index has."""
    info = folder / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(f"{info.name}/WHEEL,,\n{info.name}/RECORD,,\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    return Distribution(name=name, version="1", metadata=info, prefix=folder)


class Index(ThreadingHTTPServer):
    """An index without a distribution, which answers so or hangs up."""

    answers = True
    asked: Counter[str]


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.asked[self.path] += 1
        if self.server.answers:
            self.send_error(404)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with Index(("127.0.0.1", 0), Handler) as server:
        server.asked = Counter()
        thread = Thread(target=server.serve_forever)
        thread.start()
        for name in [one for one in os.environ if one.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("answers", [True, False])
def test_an_index_that_does_not_answer_is_soon_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Index, answers: bool
) -> None:
    monkeypatch.setattr(wheels, "_MOST_SILENT", 1)
    index.answers = answers
    found = {name: installed(tmp_path / "env", name) for name in ("no_such", "none_such")}
    notes: list[str] = []
    made = wheels.collect(
        found, tmp_path / "wheels", python=sys.executable, use_index=True, notify=notes.append
    )
    assert [one.origin for one in made] == [wheels.INSTALLED] * 2
    # No matching distribution, says pip both times.
    assert bool(index.asked["/none-such/"]) == answers
    assert any("the index does not answer" in one for one in notes) != answers

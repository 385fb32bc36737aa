"""Delivery of reports: a webhook that answers late or never, files that cannot be written."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perfrun.errors import UsageError
from perfrun.nightly.command import nightly_command, post, run_night, write_reports
from perfrun.nightly.night_state import Nights
from perfrun.nightly.report import NightReport
from perfrun.nightly.retention import Policy
from perfrun.nightly.suite import Outputs, Suite
from perfrun.reports.terminal import Terminal

REPORT = NightReport(
    night="n-2026-11-21",
    suite="n",
    owner=None,
    begun=1795255200.0,
    ended=1795258800.0,
    deadline=None,
    commits={},
    methods=(),
    errors=(),
    notes=(),
)


@contextmanager
def server(*answers: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield a server that gives these answers in turn, and the requests that it got."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(answers[min(len(got), len(answers) - 1)])
            got.append((self.headers["Content-Type"], json.loads(body)))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{one.server_address[1]}/hook?token=s3cret", got
        one.shutdown()


def test_a_webhook_gets_the_report_as_json() -> None:
    with server(204) as (url, got):
        assert post(url, REPORT) is None
    assert [kind for kind, _ in got] == ["application/json"]
    assert got[0][1]["night"] == "n-2026-11-21"
    assert got[0][1]["ok"] is True


def test_a_server_that_fails_is_asked_again() -> None:
    pauses: list[float] = []
    with server(503, 429, 200) as (url, got):
        assert post(url, REPORT, pauses.append) is None
    assert len(got) == 3
    assert pauses == [0.0, 1.0, 4.0]


def test_a_refusal_is_final_and_secrets_are_not_told() -> None:
    with server(404) as (url, got):
        why = post(url, REPORT, lambda _: None)
    assert len(got) == 1
    assert why is not None
    assert why.endswith("did not take the report: HTTP 404")
    assert "s3cret" not in why


def test_a_report_that_was_taken_is_not_sent_again_after_a_kill(tmp_path: Path) -> None:
    # Killed between the server's answer and the end of the night: all its runs are done.
    own = Suite(
        path=tmp_path / "s.toml",
        name="n",
        digest="d",
        workspace=tmp_path,
        methods=(),
        environments=(),
    )
    with server(204) as (url, got):
        suite = replace(own, webhook=url)
        nights = Nights(tmp_path)
        nights.save(replace(nights.begin(suite, time.time()), delivered=True))
        screen = Terminal(io.StringIO(), io.StringIO(), quiet=True)
        again = run_night(suite, screen)
        assert got == []
        first = run_night(suite, screen)
    assert [told["night"] for _, told in got] == [first.night]
    assert again.notes == ("The night was interrupted, and went on after 0 of 0 runs.",)
    taken = [json.loads(path.read_text()) for path in tmp_path.glob("nights/*/night.json")]
    assert all(night["delivered"] and night["ended"] for night in taken)


@pytest.mark.parametrize(
    ("folder", "said"),
    [("output", "the index could not be brought up to date"), ("", "not all was pruned: ")],
)
def test_a_disk_that_fails_once_the_trials_are_run_costs_no_report(
    folder: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = Policy(keep_nights=3)
    own = Suite(
        path=tmp_path / "s.toml",
        name="n",
        digest="d",
        workspace=tmp_path,
        methods=(),
        environments=(),
        retention=retention,
    )
    (tmp_path / "output").mkdir()
    listed, err = os.scandir, io.StringIO()

    def failing(path: Any = ".") -> Any:
        if str(path) == str(tmp_path / folder):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", failing)
    report = run_night(own, Terminal(err, err, quiet=False))
    assert said in " ".join((*report.errors, err.getvalue()))
    assert report.is_ok == (folder == "")
    (written,) = tmp_path.glob("nights/*/night.json")
    assert json.loads(written.read_text())["told"] == (folder == "")


def test_nobody_there_is_a_note() -> None:
    with server(200) as (url, _):
        pass
    why = post(url, REPORT, lambda _: None)
    assert why is not None
    assert "ConnectionError" in why
    assert "s3cret" not in why


def test_reports_are_written_twice_and_what_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outputs = Outputs(junit=tmp_path / "out" / "j.xml", json=tmp_path / "file" / "r.json")
    notes = write_reports(REPORT, tmp_path / "night", outputs)
    names = {path.name for path in (tmp_path / "night").iterdir()}
    assert names == {"report.md", "report.json", "junit.xml", "metrics.prom"}
    assert (tmp_path / "out" / "j.xml").read_text().startswith("<?xml")
    assert len(notes) == 1
    assert "r.json could not be written" in notes[0]


def test_a_format_for_a_webhook_that_is_not_there_is_refused(tmp_path: Path) -> None:
    suite = tmp_path / "s.toml"
    suite.write_text('[[methods]]\nname = "pkg.cases.Cases.spin"\n')
    with pytest.raises(UsageError, match="names no webhook; add webhook = URL"):
        nightly_command([str(suite), "--webhook_format=slack"])
    with pytest.raises(UsageError, match="must be one of json, slack, teams, discord"):
        nightly_command([str(suite), "--webhook_format=irc"])

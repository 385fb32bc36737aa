"""The supervisor outside of a container: it refuses, since it ends by killing all it can see.

What it does inside is tested where there is an engine (tests/docker).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfrun.launchers.container_launcher import write_order
from perfrun.launchers.launcher import ENTRY
from perfrun.worker import supervise
from perfrun.worker.supervise import Supervisor


def test_it_does_not_run_among_other_peoples_processes(tmp_path: Path) -> None:
    order = write_order({"action": "run"}, tmp_path, tmp_path / "out", tmp_path / "err", None)
    assert json.loads(order.read_text())["parent_pid"] is None
    bystander = subprocess.Popen(["sleep", "600"])
    argv = [sys.executable, "-I", str(ENTRY), "--supervise", str(order)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1
    assert "runs in a container of its own" in done.stderr
    assert bystander.poll() is None
    assert not (tmp_path / "out").exists()
    bystander.kill()
    bystander.wait()


class Processes:
    """Stands in for the container: processes left behind, and a helper that lives as long."""

    def __init__(self, strays: set[int], helpers: set[int]) -> None:
        self.strays, self.helpers = strays, helpers

    def others(self) -> set[int]:
        return self.strays | self.helpers

    def signal(self, send: object, pid: int, number: int) -> None:
        if pid == -1:
            self.strays = self.helpers = set()
        self.strays = self.strays - {pid}
        if not self.strays and 99 not in self.helpers:
            self.helpers = set()


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    order = write_order({"action": "run"}, tmp_path, tmp_path / "out", tmp_path / "err", None)
    # Whatever becomes of the code: nothing outside of this test may be signalled.
    monkeypatch.setattr(os, "kill", None)
    monkeypatch.setattr(os, "killpg", None)
    monkeypatch.setattr(supervise, "CHILD_GRACE_S", 0.0)
    monkeypatch.setattr(supervise, "HELPER_GRACE_S", 60.0)
    monkeypatch.setattr(supervise, "_command", lambda pid: f"command {pid}")
    monkeypatch.setattr(Supervisor, "_reap", lambda *_: None)
    return Supervisor(str(order))


def put(monkeypatch: pytest.MonkeyPatch, processes: Processes) -> None:
    monkeypatch.setattr(supervise, "_others", processes.others)
    monkeypatch.setattr(supervise, "_signal", processes.signal)
    monkeypatch.setattr(supervise, "state_and_flags", lambda _: ("S", 0))
    monkeypatch.setattr(supervise, "is_pythons_own", lambda pid: pid in processes.helpers)


def test_what_keeps_a_helper_alive_is_killed_and_named_and_the_helper_is_not(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.listens = False
    put(monkeypatch, Processes({7, 8}, {5}))
    assert supervisor._end_left_behind() == ["command 7", "command 8"]


def test_a_helper_that_does_not_end_is_named_after_all(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.listens = False
    monkeypatch.setattr(supervise, "HELPER_GRACE_S", 0.05)
    put(monkeypatch, Processes({100}, {99}))
    assert set(supervisor._end_left_behind()) == {"command 99", "command 100"}
    assert not supervise._others()


def test_of_thousands_left_behind_the_first_are_named_and_the_others_counted(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, Processes(set(range(1000, 4000)), set()))
    names = supervisor._end_left_behind()
    assert names[0] == "command 1000"
    assert names[supervise.MOST_NAMED :] == [f"{3000 - supervise.MOST_NAMED} more"]


@pytest.mark.parametrize("letters", [b"TQK", b""])
def test_the_harness_is_heard_while_helpers_are_waited_for(
    letters: bytes, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, Processes(set(), {99}))
    supervisor.ended = (0, None, 1.0)
    own, (read, write) = os.dup(0), os.pipe()
    os.dup2(read, 0)
    try:
        os.write(write, letters)
        os.close(write)
        assert supervisor._end_left_behind() == []
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(read)
    assert supervisor.harness_is_gone is not bool(letters)


@pytest.mark.parametrize("name", ["exit.json.next", "exit.json"])
@pytest.mark.parametrize("kind", ["a pipe", "a link", "a folder", "a file of nobody's to write"])
def test_what_a_trial_left_by_the_name_of_the_report_is_neither_waited_for_nor_written_to(
    supervisor: Supervisor, tmp_path: Path, name: str, kind: str
) -> None:
    mine, other = tmp_path / name, tmp_path / "other"
    other.write_text("another's")
    if kind == "a pipe":
        os.mkfifo(mine)
    elif kind == "a link":
        mine.symlink_to(other)
    elif kind == "a folder":
        mine.mkdir()
    else:
        mine.write_text("forged")
        mine.chmod(0o400)
    supervisor._write({"exit_code": 0})
    assert other.read_text() == "another's"
    if kind != "a folder":  # then it is said on standard output alone
        assert json.loads((tmp_path / "exit.json").read_text()) == {"exit_code": 0}

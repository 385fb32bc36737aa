"""The exit of a trial in a container whose engine or supervisor is late.

Containers that behave are tested where there is an engine (tests/docker).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfrun.launchers import container as container_process
from perfrun.launchers import launcher
from perfrun.launchers.container import ContainerProcess
from perfrun.launchers.launcher import REPORT
from perfrun.worker.procfs import HELPER_GRACE_S

REPORTED = {"exit_code": 3, "signal_number": None, "elapsed_s": 1.5, "strays": ["sleep 600"]}


class Lagging:
    """A container that has one piece of news a poll; `None` is a poll without news."""

    id, create_s, worker, last_error_line = "c0", 0.1, 7, ""
    notes: tuple[str, ...] = ()

    def __init__(self, *news: str | None, states: tuple[dict[str, Any] | None, ...] = ()) -> None:
        self.news, self.states = list(news), list(states)
        self.worker_has_ended = self.silent = False
        self.report: dict[str, Any] | None = None
        self.sent = b""

    @property
    def is_over(self) -> bool:
        return self.silent or self.report is not None

    def listen(self, seconds: float) -> bool:
        word = self.news.pop(0) if self.news else None
        self.worker_has_ended = self.worker_has_ended or word == "ended"
        self.silent = self.silent or word == "silent"
        self.report = REPORTED if word == "exit" else self.report
        return self.is_over

    def send(self, letter: bytes) -> None:
        self.sent += letter

    def state(self) -> dict[str, Any] | None:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def host_pid(self) -> None:
        return None


def started(container: Lagging, folder: Path) -> ContainerProcess:
    made: Any = container
    return ContainerProcess(made, folder, folder, 0.0, no_cgroup=None)


def test_no_deadline_is_for_what_a_worker_left_behind(tmp_path: Path) -> None:
    container = Lagging("ended", None, None, "exit")
    end = started(container, tmp_path).wait(0.0)
    assert (end.exit_code, end.stopped_for, end.elapsed_s) == (3, None, 1.5)
    assert end.strays == ("sleep 600",)
    assert container.sent == b""


def test_an_interrupt_does_not_speak_for_a_worker_that_had_ended(tmp_path: Path) -> None:
    container = Lagging("ended", None, "exit")
    process = started(container, tmp_path)
    container.listen(0.0)
    process.stop("interrupt")
    assert container.sent == b""
    process.kill()
    assert container.sent == b"K"
    assert process.wait(None).stopped_for is None


def test_a_report_that_is_written_while_the_end_is_waited_for_is_read(tmp_path: Path) -> None:
    class Late(Lagging):
        def state(self) -> dict[str, Any] | None:
            if len(self.states) == 1:
                (tmp_path / REPORT).write_text(json.dumps({**REPORTED, "harness_is_gone": True}))
            return super().state()

    states = ({"Running": True}, {"Running": False, "ExitCode": 0})
    end = started(Late("silent", states=states), tmp_path).wait(None)
    assert (end.exit_code, end.elapsed_s, end.strays) == (3, 1.5, ("sleep 600",))
    assert end.disturbance == "the container engine went away"


@pytest.mark.parametrize(
    "words",
    [
        b"", b"null", b"[1]", b"{}", b"[" * 100_000, b"9" * 10_000, b"\xff" * 100,
        b'{"exit_code": [3], "signal_number": null}', b'{"exit_code": 0, "signal_number": 9}',
        b'{"exit_code": null, "signal_number": null}',
        b'{"exit_code": true, "signal_number": null}',
        b'{"exit_code": 0, "signal_number": null, "strays": "' + b"x" * 1_000_000 + b'"}',
    ],
    ids=lambda words: repr(words[:50]),
)  # fmt: skip
def test_a_report_that_is_none_is_as_if_there_were_none(tmp_path: Path, words: bytes) -> None:
    (tmp_path / REPORT).write_bytes(words)
    states = ({"Running": False, "ExitCode": 5},)
    end = started(Lagging("silent", states=states), tmp_path).wait(None)
    assert (end.exit_code, end.signal_number) == (5, None)
    assert end.disturbance == "the container ended with status 5"
    assert all(note.startswith("exit.json") for note in end.notes)


def test_a_container_that_does_not_end_is_not_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_process, "KILL_GRACE_S", 0.0)
    end = started(Lagging("silent", states=({"Running": True},)), tmp_path).wait(None)
    assert (end.exit_code, end.signal_number) == (None, None)
    assert end.disturbance == "the container fell silent and did not end within 0 s"
    assert end.unended == "container c0 could not be ended within 0 s"


def test_a_container_that_was_killed_and_does_not_end_is_not_waited_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM_GRACE_S", "DUMP_POLL_S"):
        monkeypatch.setattr(launcher, name, 0.0)
    monkeypatch.setattr(container_process, "KILL_GRACE_S", 0.0)
    process = started(Lagging(states=({"Running": True},)), tmp_path)
    process.stop("interrupt")
    end = process.wait(None)
    assert (end.exit_code, end.signal_number, end.stopped_for) == (None, None, "interrupt")
    assert end.unended == "container c0 could not be ended within 0 s"


def test_a_supervisor_without_an_engine_has_time_for_its_helpers_to_end() -> None:
    assert container_process.REPORT_GRACE_S >= HELPER_GRACE_S + 2

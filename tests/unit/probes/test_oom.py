"""Processes that the kernel killed for lack of memory, with a stand-in for its log."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from perfrun.probes import oom, sysfs
from perfrun.probes.oom import OomKills

KILLED = "3,31994,511845,-;Memory cgroup out of memory: Killed process {} (python) total-vm:1kB"
NETWORK = "6,30647,446916,-;veth (unregistering): left allmulticast mode\n SUBSYSTEM=net\n"
WRITTEN = "12,30648,446917,-;Killed process 100 (python)"  # by somebody who may write to the log


class Kernel:
    """A kernel that kills processes and logs it, one record a read."""

    def __init__(self) -> None:
        self.log, self._end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log.setblocking(False)
        self.count = 90

    def says(self, record: str) -> None:
        self._end.send(record.encode())

    def kills(self, *pids: int) -> None:
        self.count += len(pids)
        for pid in pids:
            self.says(KILLED.format(pid))

    def close(self) -> None:
        self._end.close()
        self.log.close()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    made = Kernel()
    monkeypatch.setattr(oom, "_opened_at_its_end", lambda: made.log.detach())
    monkeypatch.setattr(oom, "_count", lambda: made.count)
    yield made
    made.close()


def test_a_process_that_the_log_names_was_killed_for_want_of_memory(kernel: Kernel) -> None:
    with OomKills() as killed:
        kernel.says(NETWORK)
        kernel.kills(7, 100, 8)
        assert killed.of(100) == (1, True)


def test_a_process_that_the_log_does_not_name_was_not(kernel: Kernel) -> None:
    with OomKills() as killed:
        kernel.kills(1000, 10)
        kernel.says(WRITTEN)
        assert killed.of(100) == (0, True)


def test_where_nothing_was_killed_the_log_is_not_asked(kernel: Kernel) -> None:
    with OomKills() as killed:
        kernel.says(KILLED.format(100))
        assert killed.of(100) == (0, True)
        assert killed.of(None) == (0, True)


def test_a_victim_that_is_counted_and_not_yet_named_is_waited_for(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oom, "_PATIENCE_S", 60.0)
    with OomKills() as killed:
        kernel.kills(7)
        kernel.count += 1
        later = threading.Timer(0.1, kernel.says, [KILLED.format(100)])
        later.start()
        assert killed.of(100) == (1, True)
        later.join()


def test_without_all_victims_in_the_log_it_may_have_been_any(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oom, "_PATIENCE_S", 0.05)
    with OomKills() as killed:
        kernel.kills(7)
        kernel.count += 2
        assert killed.of(100) == (3, False)
        assert killed.of(7) == (1, True)
        assert killed.of(None) == (3, False)


def test_a_log_that_cannot_be_read_leaves_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [5, 7]
    monkeypatch.setattr(oom, "_LOG", "/no/such/log")
    monkeypatch.setattr(oom, "_count", lambda: counts.pop(0))
    with OomKills() as killed:
        assert killed.of(100) == (2, False)


def test_a_log_that_no_longer_has_all_records_leaves_the_count(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overrun(file: int, size: int) -> bytes:
        raise BrokenPipeError

    with OomKills() as killed, monkeypatch.context() as patch:
        kernel.kills(7)
        patch.setattr(oom.os, "read", overrun)
        assert killed.of(100) == (1, False)


def test_the_logs_of_other_pids_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysfs, "_HOST_PID_NAMESPACE", 1)
    assert oom._opened_at_its_end() is None

"""perfrun.launchers.launcher: why a worker has to be ended, and how it is asked to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from perfrun.launchers import launcher
from perfrun.launchers.launcher import ask_to_end, wait_until_due
from perfrun.worker.outcome_file import OUTCOME, STACK


def never(seconds: float) -> bool:
    assert seconds <= launcher.POLL_S
    return False


def test_one_that_ends_by_itself_is_left_alone_though_its_time_is_over(tmp_path: Path) -> None:
    (tmp_path / OUTCOME).touch()
    assert wait_until_due(lambda _: True, tmp_path, 0.0, fills_the_disk=lambda: True) is None


def test_a_full_disk_comes_before_a_deadline(tmp_path: Path) -> None:
    past = time.perf_counter() - 1
    assert wait_until_due(never, tmp_path, past, fills_the_disk=lambda: True) == "disk"
    assert wait_until_due(never, tmp_path, past, fills_the_disk=lambda: False) == "deadline"


def test_nobody_waits_beyond_the_deadline_nor_longer_than_between_two_looks(tmp_path: Path) -> None:
    asked: list[float] = []

    def ended(seconds: float) -> bool:
        asked.append(seconds)
        return True

    wait_until_due(ended, tmp_path, time.perf_counter() + 100, poll_s=0.25)
    wait_until_due(ended, tmp_path, time.perf_counter() + 100, poll_s=200)
    wait_until_due(ended, tmp_path, time.perf_counter() - 100)
    wait_until_due(ended, tmp_path, None)
    assert asked[0] == 0.25
    assert 0 < asked[1] <= 100
    assert asked[2:] == [0.0, launcher.POLL_S]


def test_an_outcome_gives_a_grace_from_when_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "EXIT_GRACE_S", 0.05)
    looks = 0

    def ended(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            (tmp_path / OUTCOME).touch()
        time.sleep(0.02)
        return False

    assert wait_until_due(ended, tmp_path, None) == "exit"
    assert looks > 3


@pytest.mark.parametrize(
    ("ends_after", "said"),
    [("terminate", ["terminate"]), ("dump", ["terminate", "dump"]), ("", ["terminate", "dump"])],
)
def test_stacks_are_dumped_only_of_one_that_does_not_obey(
    ends_after: str, said: list[str], tmp_path: Path
) -> None:
    heard: list[str] = []
    obeyed = ask_to_end(
        lambda _: heard[-1] == ends_after,
        tmp_path,
        terminate=lambda: heard.append("terminate"),
        dump=lambda: heard.append("dump"),
    )
    assert heard == said
    assert obeyed is bool(ends_after)


@pytest.mark.parametrize(
    ("writes", "looks"),
    [
        ({}, launcher.DUMP_POLLS),  # it cannot dump
        ({1: "thread 1\n"}, 1 + launcher.DUMP_STILL_POLLS),
        ({30: "thread 1\n", 31: "thread 2\n"}, 31 + launcher.DUMP_STILL_POLLS),  # it came late
        # The processor was taken from it between two lines.
        ({1: "thread 1\n", 10: "thread 2\n"}, 10 + launcher.DUMP_STILL_POLLS),
    ],
)
def test_a_dump_is_waited_for_until_it_is_written(
    writes: dict[int, str], looks: int, tmp_path: Path
) -> None:
    (tmp_path / STACK).write_text("of SIGTERM, before\n")
    seen = 0

    def ended(seconds: float) -> bool:
        nonlocal seen
        if seconds == launcher.DUMP_POLL_S:
            seen += 1
            with (tmp_path / STACK).open("a") as file:
                file.write(writes.get(seen, ""))
        return False

    assert not ask_to_end(ended, tmp_path, terminate=lambda: None, dump=lambda: None)
    assert seen == looks

"""Output of a benchmark is passed on as it comes, whole characters at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perfrun.run import progress
from perfrun.run.progress import Follower


class Collector:
    """A writer that remembers."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def __call__(self, text: str) -> None:
        self.parts.append(text)

    @property
    def text(self) -> str:
        return "".join(self.parts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "std out\n.log"
    made.touch()
    return made


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited for 20 s"
        time.sleep(0.01)


def followed(path: Path, data: bytes | None) -> str:
    collector = Collector()
    follower = Follower({path: collector})
    follower.start()
    if data is not None:
        path.write_bytes(data)
    follower.finish()
    return collector.text


def test_text_is_shown_before_the_end(path: Path) -> None:
    collector = Collector()
    follower = Follower({path: collector})
    follower.start()
    with path.open("ab", buffering=0) as file:
        file.write(b"one\n")
        wait_until(lambda: collector.text == "one\n")
        file.write(b"two")
        wait_until(lambda: collector.text == "one\ntwo")
    follower.finish()
    assert collector.text == "one\ntwo"


def test_a_character_that_comes_in_pieces_is_shown_whole(path: Path) -> None:
    collector = Collector()
    follower = Follower({path: collector})
    follower.start()
    with path.open("ab", buffering=0) as file:
        for byte in "x€\U0001f600".encode():
            file.write(bytes([byte]))
            time.sleep(0.03)
        wait_until(lambda: len(collector.text) == 3)
    follower.finish()
    assert collector.text == "x€\U0001f600"


def test_what_came_last_is_passed_on_at_the_end(path: Path) -> None:
    data = b"".join(b"line %d\n" % number for number in range(200_000))
    assert followed(path, data) == data.decode()


def test_bytes_that_are_no_text_are_replaced(path: Path) -> None:
    assert (
        followed(path, b"a\xff\xfeb\n") == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b\n"
    )


def test_a_character_cut_off_by_a_crash_is_not_lost_silently(path: Path) -> None:
    assert followed(path, b"end\xe2\x82") == "end\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("I/O on closed file")])
def test_a_writer_that_fails_stops_neither_itself_nor_the_other(
    tmp_path: Path, error: Exception
) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text("out")
    err.write_text("err")
    collector = Collector()

    def fails(text: str) -> None:
        raise error

    follower = Follower({out: fails, err: collector})
    follower.start()
    wait_until(lambda: collector.text == "err")
    with err.open("a") as file:
        file.write(" more")
    follower.finish()
    assert collector.text == "err more"


def test_a_file_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("text")
    collector, other = Collector(), Collector()
    follower = Follower({tmp_path / "missing": other, there: collector})
    follower.start()
    follower.finish()
    assert (collector.text, other.text) == ("text", "")


def test_with_no_file_at_all_it_ends_at_once(tmp_path: Path) -> None:
    follower = Follower({tmp_path / "missing": Collector()})
    follower.start()
    follower.join(10)
    assert not follower.is_alive()
    follower.finish()


def test_of_a_sparse_file_only_what_was_written_is_passed_on(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"one\n")
        file.truncate(2**43)
        file.seek(2**43)
        file.write(b"two\n")
    assert followed(path, None).replace("\0", "") == "one\ntwo\n"


def test_of_much_that_came_last_the_end_is_passed_on_and_a_line_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PERIOD_S", 60.0)  # all of it comes last, however slow we are
    data = b"".join(b"line %08d\n" % number for number in range(1_500_000))
    text = followed(path, data)
    assert len(text) < len(data) / 2  # a period may pass before the end, which shows a megabyte
    assert text.endswith(data[-60_000:].decode())
    assert f"bytes are not shown here; they are in {path}\n" in text


def test_the_output_of_a_stream_has_a_limit_in_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_MOST_BYTES", 100)
    collector = Collector()
    follower = Follower({path: collector})
    follower.start()
    with path.open("ab", buffering=0) as file:
        file.write(b"x" * 99 + b"\n")
        wait_until(lambda: len(collector.text) == 100)
        file.write(b"y" * 500)
        time.sleep(0.3)
        assert "y" not in collector.text
    follower.finish()
    assert collector.text.endswith("y" * 500)

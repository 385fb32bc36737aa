"""What comes from another machine is data: nothing outside, no links, whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from perfrun.errors import PerfrunError, WorkspaceError
from perfrun.fleet.transfer import (
    LARGEST_RESULTS,
    REMOTE,
    WHOLE,
    Limits,
    receive_plan,
    receive_results,
    send_plan,
    send_results,
    with_result,
)
from perfrun.shards.collect import collect
from perfrun.shards.places import Ended, ShardPlace
from perfrun.shards.plan_file import read_plan
from tests.submissions import SUMMARY, attempt, finished, plan


def test_a_submission_and_its_results_go_there_and_back(tmp_path: Path) -> None:
    here = plan(tmp_path / "here")
    (here.folder / "code" / "0" / "deep").mkdir(parents=True)
    (here.folder / "code" / "0" / "deep" / "cases.py").write_text("code")
    (here.folder / "code" / "0" / "secret").symlink_to("/etc/passwd")
    sent = io.BytesIO()
    send_plan(here, sent)
    there = tmp_path / "there" / "lab-1"
    for _ in range(2):  # a second time is no matter
        sent.seek(0)
        receive_plan(there, sent)
    assert read_plan(there).shards == here.shards
    assert [path.name for path in there.rglob("code/**/*") if path.is_file()] == ["cases.py"]
    assert not [path for path in there.parent.iterdir() if path != there]

    over_there = finished(read_plan(there), 0, trial="A")
    (over_there.folder / "output" / "trial" / "logs").mkdir()
    (over_there.folder / "output" / "trial" / "logs" / "log").write_text("lines")
    back = io.BytesIO()
    send_results(over_there, back, Limits())
    back.seek(0)
    own = attempt(here, 0)
    received = receive_results(own, back, Limits())
    assert ShardPlace(here, 0).end(own, received.ended)
    assert received.left_out == ""
    (summary,) = collect(here, [0], print).new
    assert summary.read_text() == "A"
    assert (summary.parent / "logs" / "log").read_text() == "lines"


def packed(*members: tuple[str, bytes, str]) -> bytes:
    """An archive of members: name, kind, and content or target."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.GNUTYPE_SPARSE:  # a header alone: a file without a block
                member.size = 0
                header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
                header[483:495] = b"\x80" + (2 * LARGEST_RESULTS).to_bytes(11, "big")
                header[148:156] = f"{tarfile.calc_chksums(bytes(header))[0]:06o}\0 ".encode()  # type: ignore[attr-defined]
                tar.fileobj.write(header)  # type: ignore[union-attr]
                tar.offset += len(header)
            elif kind == tarfile.REGTYPE:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
            else:
                member.linkname = text
                tar.addfile(member)
    return stream.getvalue()


FILE = tarfile.REGTYPE
GOOD = (REMOTE, FILE, '{"how": "ran", "ended": 1, "trials": []}')
LAST = (WHOLE, FILE, "{}")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense" * 200,
        packed(GOOD)[:700],
        packed(),
        packed(GOOD),  # cut short between two members
        packed(GOOD, (WHOLE, FILE, "[]")),
        packed((REMOTE, FILE, '{"how": "ran", "ended": 1, "seconds": -1}'), LAST),
        packed(LAST, (REMOTE, FILE, "{}")),
        packed(GOOD, LAST, ("../../outside", FILE, "x")),
        packed(GOOD, LAST, ("output", tarfile.SYMTYPE, "/etc")),
        packed(GOOD, LAST, ("output", tarfile.SYMTYPE, "../.."), ("output/x", FILE, "x")),
        packed(LAST, (REMOTE, tarfile.SYMTYPE, "begun.json")),
        packed(GOOD, LAST, ("output/t/evil", tarfile.SYMTYPE, "../../submissions/lab-1/plan.json")),
        packed(
            GOOD, LAST, ("output/t/x", FILE, "x"), ("output/t/y", tarfile.LNKTYPE, "output/t/x")
        ),
        gzip.compress(packed(GOOD, LAST, ("output/t/x", FILE, "x"))),
        packed(GOOD, LAST, ("output/t/x", tarfile.GNUTYPE_SPARSE, "")),
    ],
)
def test_what_a_host_may_not_send_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    own = attempt(plan(tmp_path), 0)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(WorkspaceError):
        receive_results(own, io.BytesIO(data), Limits())
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


def test_only_trials_of_what_a_host_sends_stay(tmp_path: Path) -> None:
    own = attempt(plan(tmp_path), 0)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    members = [(name, FILE, "x") for name in ("begun.json", "collected", "/etc/x", "output/a/b")]
    receive_results(own, io.BytesIO(packed(GOOD, *members, LAST)), Limits())
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert after - before == {own.folder / "output" / "a" / "b"}
    linked = packed(GOOD, LAST, ("x/y", FILE, "x"), ("output", tarfile.SYMTYPE, "x"))
    other = attempt(read_plan(tmp_path / "submissions/lab-1"), 1)
    with pytest.raises(WorkspaceError, match="is a link"):
        receive_results(other, io.BytesIO(linked), Limits())
    assert {path for path in tmp_path.rglob("*") if path.is_symlink()} == set()


def test_a_submission_that_is_none_is_not_put_in_place(tmp_path: Path) -> None:
    there = tmp_path / "lab-1"
    for data in (b"", packed(("plan.json", FILE, "{}")), packed(("other", FILE, SUMMARY))):
        with pytest.raises(PerfrunError):
            receive_plan(there, io.BytesIO(data))
        assert list(tmp_path.iterdir()) == []


def test_what_is_too_large_stays_there_and_is_named_while_the_rest_comes(tmp_path: Path) -> None:
    here = plan(tmp_path / "here")
    there = finished(plan(tmp_path / "there"), 0, trial="A" * 5000)
    for name, size in (("small", 10), ("middle", 600), ("large", 800), ("huge", 3000)):
        (there.folder / "output" / "trial" / name).write_bytes(b"x" * size)

    def come(limits: Limits, index: int) -> tuple[set[str], str]:
        sent = io.BytesIO()
        send_results(there, sent, limits)
        sent.seek(0)
        own = attempt(here, index)
        ended = with_result(own, receive_results(own, sent, limits), 2.0, "which stays")
        assert isinstance(ended, Ended)
        assert ended.ended == 2.0
        folder = own.folder / "output" / "trial"
        return {path.name for path in folder.iterdir()}, ended.reason

    everything = {SUMMARY, "small", "middle", "large", "huge"}
    assert come(Limits(), 0) == (everything, "")
    reason = "too large to come: trial/huge (2.9 KiB), which stays"
    assert come(Limits(file=2000), 0) == (everything - {"huge"}, reason)
    # Summaries always come, whatever their size; of a total, the largest files stay.
    few = {SUMMARY, "small", "middle"}
    reason = "too large to come: trial/huge (2.9 KiB) and 1 more, 3.7 KiB in all, which stays"
    assert come(Limits(results=5700), 1) == (few, reason)
    assert come(Limits(file=5, results=100), 1)[0] == {SUMMARY}


def test_a_name_that_is_no_utf8_comes_and_is_named_when_it_cannot(tmp_path: Path) -> None:
    here = plan(tmp_path / "here")
    there = finished(plan(tmp_path / "there"), 0, trial="A")
    name = os.fsdecode(b"\xff\xfe")
    (there.folder / "output" / "trial" / name).write_bytes(b"x" * 100)
    for index, limits in enumerate((Limits(), Limits(file=50))):
        sent = io.BytesIO()
        send_results(there, sent, limits)
        sent.seek(0)
        own = attempt(here, index)
        received = receive_results(own, sent, limits)
        assert (own.folder / "output" / "trial" / name).exists() is (index == 0)
    assert received.left_out == "trial/\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} (100 B)"


def test_a_file_whose_path_is_too_long_does_not_keep_the_others(tmp_path: Path) -> None:
    here = plan(tmp_path / "here")
    there = finished(plan(tmp_path / "there"), 0, trial="A")
    long = there.folder.joinpath("output", "trial", *(["d" * 200] * 6))
    long.mkdir(parents=True)
    (long / "log").write_bytes(b"x" * 100)
    sent = io.BytesIO()
    send_results(there, sent, Limits())
    sent.seek(0)
    own = attempt(here, 0)
    ended = with_result(own, receive_results(own, sent, Limits()), 2.0, "which stays")
    assert isinstance(ended, Ended)
    assert ended.reason.startswith("too large to come: trial/ddd")
    assert [path.name for path in own.folder.rglob("output/**/*") if path.is_file()] == [SUMMARY]


def test_a_folder_of_many_files_is_sent_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = plan(tmp_path / "here")
    (here.folder / "code" / "0").mkdir(parents=True)
    for number in range(6):
        (here.folder / "code" / "0" / f"m{number}.py").touch()
    monkeypatch.setattr("perfrun.untrusted.MOST_NAMES", 5)
    sent = io.BytesIO()
    send_plan(here, sent)
    sent.seek(0)
    receive_plan(tmp_path / "there", sent)
    assert len(list(tmp_path.glob("there/code/0/*.py"))) == 6
    monkeypatch.setattr("perfrun.fleet.transfer.MOST_ENTRIES", 5)
    with pytest.raises(WorkspaceError, match="more than 5 files"):
        send_plan(here, io.BytesIO())

"""What a server that is downloaded from could do to the host, tried."""

from __future__ import annotations

import contextlib
import gzip
import os
import resource
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfrun.errors import WorkspaceError
from perfrun.image import saved
from perfrun.workspace import http_client, http_transfer
from tests.attack.data_sets import provide, sum_of


class Server(threading.Thread):
    """Sends what it is told to, one entry for each connection; the last one again and again.

    An entry is sent in its parts, and a part that is a number is a pause of so many seconds.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked: list[str] = []
        self._answers: list[Callable[[], Iterable[bytes]]] = []

    def says(self, *answers: bytes | Callable[[], Iterable[bytes]]) -> None:
        self._answers = [(lambda a=a: [a]) if isinstance(a, bytes) else a for a in answers]  # type: ignore[misc]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.asked.append(connection.recv(65536).decode("latin-1"))
            answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
            for part in answer():
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65536)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http_transfer, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(http_transfer, "_TRIES_WITHOUT_PROGRESS", 2)
    monkeypatch.setattr(http_transfer, "_ANSWER_S", 0.5)
    monkeypatch.setattr(http_transfer, "_SILENCE_S", 0.5)
    monkeypatch.setattr(http_client, "_LOOK_S", 0.05)
    server = Server()
    server.start()
    yield server
    server.close()
    server.join()


def ok(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1")


def drip(begin: bytes, part: bytes) -> Callable[[], Iterable[bytes]]:
    """Send a begin, and then a part every tenth of a second, for ever."""

    def answer() -> Iterator[bytes]:
        yield begin
        while True:
            time.sleep(0.1)
            yield part

    return answer


def flood(begin: bytes, part: bytes) -> Callable[[], Iterable[bytes]]:
    """Send a begin, and then a part as fast as it is taken, for ever."""

    def answer() -> Iterator[bytes]:
        yield begin
        while True:
            yield part

    return answer


def to(location: str, status: str = "302 Found") -> bytes:
    return head(f"Location: {location}", "Content-Length: 0", status=status)


CHUNKED = head("Transfer-Encoding: chunked")
MIB = bytes(1 << 20)
SERVERS: dict[str, tuple[bytes | Callable[[], Iterable[bytes]], str]] = {
    # Lengths
    "a superscript as length": (head("Content-Length: ²") + b"x", "no number: '\\\\xb2'"),
    "a length below zero": (head("Content-Length: -5") + b"x", "no number: '-5'"),
    "a length with a sign": (head("Content-Length: +1") + b"x", "no number: '\\+1'"),
    "a length in hexadecimal": (head("Content-Length: 0x5") + b"12345", "no number"),
    "a length with an underscore": (head("Content-Length: 1_0") + b"x" * 10, "no number"),
    "a length of 5,000 digits": (head("Content-Length: " + "9" * 5000), "no number: '9{40}'"),
    "two lengths": (head("Content-Length: 1", "Content-Length: 2") + b"xx", "tries|no number"),
    "a length of an exabyte": (
        head("Content-Length: " + "9" * 18),
        "announces 9+ bytes, and .* room",
    ),
    "fewer bytes than said": (head("Content-Length: 9") + b"x", "2 tries"),
    # Chunks
    "a chunk below zero": (flood(CHUNKED + b"-5\r\n", MIB), "2 tries"),
    "a chunk of no number": (CHUNKED + b"zz\r\nxx\r\n", "2 tries"),
    "a chunk without an end": (CHUNKED + b"5\r\nabc", "2 tries"),
    "a chunk's size without an end": (flood(CHUNKED, b"1" * 65536), "2 tries"),
    "a chunk's extension without an end": (flood(CHUNKED + b"5;", b"a" * 65536), "2 tries"),
    "chunks of a byte, slowly": (drip(CHUNKED, b"1\r\nx\r\n"), "too slow"),
    "trailers without an end": (
        flood(CHUNKED + b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 1000),
        "too slow",
    ),
    "chunks without the last": (CHUNKED + b"1\r\nx\r\n", "2 tries"),
    # Time
    "nothing at all": (lambda: [time.sleep(2) or b""], "timed out|too slow|2 tries"),  # type: ignore[func-returns-value]
    "a status, slowly": (drip(b"HTTP/1.1 2", b"0"), "too slow|2 tries"),
    "a header, slowly": (drip(b"HTTP/1.1 200 OK\r\nX: ", b"a"), "too slow"),
    "headers, slowly": (drip(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n"), "too slow"),
    "a body, slowly": (drip(head("Content-Length: 999"), b"x"), "too slow"),
    "a body without length, slowly": (drip(head(), b"x"), "too slow"),
    "go on, for ever": (flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), "too slow|2 tries"),
    # Size
    "a header without an end": (flood(b"HTTP/1.1 200 OK\r\nX: ", b"a" * 65536), "2 tries"),
    "headers without an end": (flood(b"HTTP/1.1 200 OK\r\n", b"X: a\r\n" * 1000), "2 tries"),
    "a status without an end": (flood(b"HTTP/1.1 200 ", b"a" * 65536), "2 tries"),
    "a redirect with a body without an end": (
        flood(head("Location: /x", status="302 Found"), MIB),
        "redirects",
    ),
    "a refusal with a body without an end": (flood(head(status="404 No"), MIB), "answers 404"),
    "a refusal that is a bomb": (
        head("Content-Encoding: gzip", status="403 No") + gzip.compress(MIB * 16),
        "answers 403",
    ),
    # Redirects
    "a loop": (to("/x"), "more than 10 redirects"),
    "to a file": (to("file:///etc/passwd"), "redirects to 'file:///etc/passwd'"),
    "to ftp": (to("ftp://127.0.0.1/x"), "redirects to 'ftp:"),
    "to another scheme of no name": (to("javascript:alert(1)"), "redirects to"),
    "to a host that is none": (to("http://[::1/x"), "redirects to|tries|Invalid"),
    "to a host of too long a name": (to(f"http://{'a' * 300}.example/x"), "download"),
    "to an empty host": (to("http:///x"), "Invalid|no host|download"),
    "to a port that is none": (to("http://127.0.0.1:99999999/x"), "download"),
    "to bytes that are no text": (to("file:///\xff\xfe"), "redirects to"),
    "to escapes": (to("file:///\x1b[31mred"), r"redirects to 'file:///\\x1b\[31mred'"),
    "with a password": (to("ftp://joe:s3cr3t@host/x"), r"redirects to 'ftp://"),
    "nowhere": (head(status="302 Found"), "answers 302"),
    # Ranges and states
    "a range that was not asked for": (
        head("Content-Range: bytes 5-9/10", "Content-Length: 5", status="206 Partial") + b"12345",
        "another range",
    ),
    "a range of superscripts": (
        head("Content-Range: bytes 0-²/²", status="206 Partial") + b"12345",
        "another range",
    ),
    "a range beyond its file": (
        head("Content-Range: bytes 0-9/5", status="206 Partial") + b"12345",
        "another range",
    ),
    "more than the range": (
        flood(head("Content-Range: bytes 0-4/5", status="206 Partial"), MIB),
        "more than 5 bytes",
    ),
    "later, a superscript": (head("Retry-After: ²", status="503 Later"), "answers 503"),
    "later, in a million years": (head(f"Retry-After: {10**400}", status="429 Later"), "429"),
    "no http": (b"SSH-2.0-OpenSSH_9.2\r\n", "2 tries"),
    "a status that is none": (b"HTTP/1.1 999999999999 x\r\n\r\n", "tries|answers"),
    "zero bytes": (bytes(1000), "tries"),
}


@pytest.mark.parametrize(("answer", "says"), SERVERS.values(), ids=SERVERS)
def test_a_server_that_lies_is_one_line_and_leaves_no_data(
    tmp_path: Path, server: Server, answer: Any, says: str
) -> None:
    server.says(answer)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WorkspaceError, match=says) as told:
        provide(tmp_path / "data", f"{server.url}/x")
    assert told.value.exit_code == 2
    assert told.value.line.isprintable()
    assert len(told.value.line) < 500
    assert "s3cr3t" not in told.value.line
    assert not (tmp_path / "data" / "x").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000  # KiB


def test_a_body_without_an_end_does_not_fill_the_disk(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(http_transfer, "_RESERVE", 4 << 20)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=free if not big(path) else 1000)
    )

    def big(path: Path) -> bool:
        return any(p.stat().st_size > 8 << 20 for p in path.glob("*.partial"))

    server.says(flood(head(), MIB))
    with pytest.raises(WorkspaceError, match=r"does not say how large it is, and .* has room for"):
        provide(tmp_path / "data", f"{server.url}/x")
    assert not list((tmp_path / "data").glob("x*"))


def test_a_slow_transfer_ends_though_each_try_brings_something(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that breaks off after 100 KB each time made progress for ever."""
    monkeypatch.setattr(http_transfer, "_LONGEST_S", 0.3)
    whole, part = 10**12, bytes(100_000)
    server.says(
        head(f"Content-Length: {whole}", 'ETag: "x"') + part,
        *(
            head(
                f"Content-Range: bytes {start}-{whole - 1}/{whole}",
                'ETag: "x"',
                status="206 Partial Content",
            )
            + part
            for start in range(100_000, 100_000_000, 100_000)
        ),
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**60))
    with pytest.raises(WorkspaceError, match="not complete after"):
        provide(tmp_path / "data", f"{server.url}/x")


def test_passwords_do_not_go_to_the_host_that_a_redirect_names(
    tmp_path: Path, server: Server
) -> None:
    other = Server()
    other.start()
    other.says(ok(b"good"))
    server.says(to(f"{other.url.replace('127.0.0.1', 'localhost')}/y"))
    url = server.url.replace("//", "//joe:s3cr3t@")
    assert provide(tmp_path / "data", f"{url}/x").sha256 == sum_of(b"good")
    other.close()
    assert "Authorization: Basic" in server.asked[0]
    assert "uthorization" not in other.asked[0]


def test_a_name_that_a_server_gives_is_not_used(tmp_path: Path, server: Server) -> None:
    server.says(ok(b"good", 'Content-Disposition: attachment; filename="../../evil"'))
    assert provide(tmp_path / "data", f"{server.url}/x").path == str(tmp_path / "data" / "x")
    assert sorted(p.name for p in tmp_path.rglob("*") if "evil" in p.name) == []


@pytest.mark.parametrize("tag", ['"a"\x01', "é" * 10, "x" * 5000])
def test_a_tag_that_cannot_be_sent_back_is_not_kept(
    tmp_path: Path, server: Server, tag: str
) -> None:
    """It made each later try fail before it was sent, until the file was removed by hand."""
    cut = head("Content-Length: 9", f"ETag: {tag}") + b"12"
    server.says(cut, ok(b"123456789"))
    assert provide(tmp_path / "data", f"{server.url}/x").sha256 == sum_of(b"123456789")
    assert "If-Range" not in server.asked[1]


@pytest.mark.parametrize("plant", ["link", "dangling link", "pipe", "folder", "second name"])
@pytest.mark.parametrize("name", ["x.partial", ".x.perfrun.lock"])
def test_what_lies_under_a_name_that_a_download_uses_is_not_written_through(
    tmp_path: Path, name: str, plant: str, server: Server
) -> None:
    """A trial, or an archive, has put it into the folder of the data before."""
    root, key = tmp_path / "data", tmp_path / "key"
    root.mkdir()
    key.write_bytes(b"private")
    if plant == "link":
        (root / name).symlink_to(key)
    elif plant == "dangling link":
        (root / name).symlink_to(tmp_path / "new")
    elif plant == "pipe":
        os.mkfifo(root / name)
    elif plant == "folder":
        (root / name).mkdir()
    else:
        os.link(key, root / name)
    server.says(ok(b"good"))
    may_lock = name != ".x.perfrun.lock" or plant in ("second name", "pipe")
    # A lock is not replaced, because others may wait for it.
    with contextlib.nullcontext() if may_lock else pytest.raises(WorkspaceError, match="lock file"):
        assert provide(root, f"{server.url}/x").sha256 == sum_of(b"good")
    assert key.read_bytes() == b"private"
    assert not (tmp_path / "new").exists()


# setup.py, which has only the standard library


IMAGES: dict[str, tuple[bytes | Callable[[], Iterable[bytes]], str]] = {
    "a superscript as length": (head("Content-Length: ²") + b"x", "no number"),
    "a length below zero": (head("Content-Length: -1") + b"x", "no number"),
    "fewer bytes than said": (head("Content-Length: 9") + b"x", "broke off: 1 of 9|IncompleteRead"),
    "a body, slowly": (drip(head("Content-Length: 999"), b"x"), "too slow"),
    "a redirect to a file": (to("file:///etc/passwd"), "not allowed|redirects to 'file"),
    "a redirect to ftp": (to("ftp://127.0.0.1/x"), "redirects to 'ftp"),
    "a redirect with a body without an end": (
        flood(head("Location: /x", status="302 Found"), MIB),
        "infinite loop",
    ),
    "a loop": (to("/x"), "infinite loop"),
    "a chunk below zero": (CHUNKED + b"-5\r\n" + MIB, "could not be fetched"),
    "no http": (b"SSH-2.0-OpenSSH_9.2\r\n", "could not be fetched"),
}


@pytest.mark.parametrize(("answer", "says"), IMAGES.values(), ids=IMAGES)
def test_a_server_of_images_that_lies_is_one_line(
    tmp_path: Path, server: Server, answer: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "_SILENCE_S", 0.3)
    server.says(answer)
    with pytest.raises(saved.LoadError, match=says) as told:
        saved.load_image(f"{server.url}/x", "", tmp_path / "w", None)
    assert "\n" not in told.value.line
    assert list((tmp_path / "w").iterdir()) == []

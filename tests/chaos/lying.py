"""An http server whose answers are cut off, slow, too long, of other bytes, or no answers at all.

A site gives the right answer to a request; a way of answering spoils it. The ways are drawn, one
for each request, until the right answers come for good.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from listener import Listener

_PART_S = 0.01  # between the bytes of a slow answer
_REQUEST_S = 30.0  # for a request to come
_LARGEST = 1 << 24


@dataclass(frozen=True)
class Request:
    """What a client has asked for."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What a site says."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bytes:
        """As it goes over the wire."""
        headers = {"Content-Length": str(len(self.body)), "Connection": "close", **self.headers}
        lines = [f"HTTP/1.1 {self.status} x", *(f"{k}: {v}" for k, v in headers.items() if v)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body

    def but(self, **headers: str) -> Answer:
        """The same with other headers; those that are empty are left out."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return replace(self, headers={**self.headers, **names})


Site = Callable[[Request], Answer]
Way = Callable[["Exchange"], None]


@dataclass(frozen=True)
class Exchange:
    """One request that is answered."""

    connection: socket.socket
    request: Request
    answer: Answer
    draw: random.Random
    over: threading.Event

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def part(self) -> bytes:
        """The first bytes of the answer, most often some of the body."""
        whole = self.answer.whole
        least = self.draw.choice((0, len(whole) - len(self.answer.body)))
        return whole[: self.draw.randrange(least, len(whole) + 1)]

    def hold(self) -> None:
        """Say no more until the client hangs up."""
        while not self.over.is_set():
            if select.select([self.connection], [], [], 0.05)[0] and not self.connection.recv(4096):
                return


def right(one: Exchange) -> None:
    one.send(one.answer.whole)


def hangs_up(one: Exchange) -> None:
    one.send(one.part())


def resets(one: Exchange) -> None:
    one.send(one.part())
    one.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stalls(one: Exchange) -> None:
    one.send(one.part())
    one.hold()


def is_silent(one: Exchange) -> None:
    one.hold()


def drips(one: Exchange) -> None:
    for byte in one.answer.whole:
        one.send(bytes([byte]))
        if one.over.wait(_PART_S):
            return


def says_longer(one: Exchange) -> None:
    length = len(one.answer.body) + one.draw.choice((1, 17, 10**6))
    one.send(one.answer.but(Content_Length=str(length)).whole)


def says_shorter(one: Exchange) -> None:
    length = one.draw.randrange(len(one.answer.body) + 1)
    one.send(one.answer.but(Content_Length=str(length)).whole)


def says_nonsense_of_length(one: Exchange) -> None:
    length = one.draw.choice(("\xb2", "-1", "1e3", "0x10", "9" * 400, "1, 2", str(2**63)))
    one.send(one.answer.but(Content_Length=length).whole)


def says_no_length(one: Exchange) -> None:
    whole = one.answer.but(Content_Length="").whole
    one.send(whole[: len(whole) - one.draw.choice((0, 0, 1, len(one.answer.body) // 2))])


def has_other_bytes(one: Exchange) -> None:
    body = bytearray(one.answer.body)
    for _ in range(one.draw.randint(1, 8) if body else 0):
        body[one.draw.randrange(len(body))] ^= one.draw.randint(1, 255)
    one.send(replace(one.answer, body=bytes(body)).whole)


def says_too_much(one: Exchange) -> None:
    one.send(one.answer.whole + one.answer.body[:5000] + b"x")


def fails(one: Exchange) -> None:
    after = one.draw.choice(("", "0", "1", "-1", "\xb2", "Wed, 21 Oct 2099 07:28:00 GMT", "9" * 30))
    status = one.draw.choice((408, 429, 500, 502, 503, 504))
    one.send(replace(Answer(b"sorry"), status=status).but(Retry_After=after).whole)


def refuses(one: Exchange) -> None:
    one.send(Answer(b"<p>no", one.draw.choice((400, 401, 403, 404, 410, 451, 501, 999))).whole)


def goes_in_a_circle(one: Exchange) -> None:
    status = one.draw.choice((301, 302, 303, 307, 308))
    one.send(Answer(b"", status, {"Location": one.request.path}).whole)


def leads_away(one: Exchange) -> None:
    places = ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://127.0.0.1:1/x", "//[", "\x1b[31m")
    one.send(Answer(b"", 302, {"Location": one.draw.choice(places)}).whole)


def sends_another_range(one: Exchange) -> None:
    texts = ("bytes 7-19/99", "bytes 0-/*", "bytes \xb2-3/9", "", "bytes 0-9/5", "none")
    one.send(replace(one.answer, status=206).but(Content_Range=one.draw.choice(texts)).whole)


def has_no_such_range(one: Exchange) -> None:
    one.send(Answer(b"", 416, {"Content-Range": "bytes */3"}).whole)


def talks_nonsense(one: Exchange) -> None:
    one.send(one.draw.choice((one.draw.randbytes(3000), b"HTTP/1.1 x\r\n\r\n", b"\r\n" * 2000)))


def has_headers_without_end(one: Exchange) -> None:
    lines = one.draw.choice((b"X: y\r\n" * 20000, b"X: " + b"y" * 2_000_000))
    one.send(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\n" + one.answer.body)


def says_packed(one: Exchange) -> None:
    one.send(one.answer.but(Content_Encoding=one.draw.choice(("gzip", "br", "zstd"))).whole)


def sends_broken_chunks(one: Exchange) -> None:
    head = one.answer.but(Content_Length="", Transfer_Encoding="chunked").whole
    head = head[: len(head) - len(one.answer.body)]
    size = one.draw.choice((b"-5", b"fffffffff", b"zz", b"5" * 5000))
    one.send(head + b"a\r\n" + one.answer.body[:10].ljust(10) + b"\r\n" + size + b"\r\n")


# With these a client knows that the answer is not whole, without the sum of the right one.
SEEN: tuple[Way, ...] = (
    *(hangs_up, resets, stalls, is_silent, drips, says_longer, says_nonsense_of_length),
    *(fails, refuses, goes_in_a_circle, leads_away, sends_another_range, has_no_such_range),
    *(talks_nonsense, has_headers_without_end, sends_broken_chunks),
)
WAYS: tuple[Way, ...] = (
    *SEEN,
    *(says_shorter, says_no_length, has_other_bytes, says_too_much, says_packed),
)


class Server:
    """Serves a site in spoilt ways."""

    def __init__(self, site: Site, ways: tuple[Way, ...], draw: random.Random) -> None:
        self._site, self._ways, self._draw = site, ways, draw
        self._left = draw.choice((1, 1, 2, 3, 4, 6, 10**6))  # requests that are answered wrongly
        self._guard = threading.Lock()
        self.asked: list[tuple[Request, str]] = []  # and the way in which each was answered
        self._listener = Listener(self._serve)
        self.url = f"http://127.0.0.1:{self._listener.port}"

    def be_honest(self) -> None:
        """Answer rightly from now on."""
        self._left = 0

    @contextlib.contextmanager
    def serving(self) -> Iterator[Server]:
        """Serve within the block."""
        with self._listener.serving():
            yield self

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_REQUEST_S)
            request = _read(connection)
            if request is None:
                return
            with self._guard:
                way = self._draw.choice(self._ways) if self._left > 0 else right
                self._left -= 1
                draw = random.Random(self._draw.random())
                self.asked.append((request, way.__name__))
            way(Exchange(connection, request, self._site(request), draw, self._listener.over))
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)


def _read(connection: socket.socket) -> Request | None:
    with connection.makefile("rb") as stream:
        words = stream.readline(65536).decode("latin-1").split()
        if len(words) != 3:
            return None
        headers = {}
        while line := stream.readline(65536).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(stream.readline(100), 16):
                body += stream.read(min(size, _LARGEST))
                stream.readline(100)
        else:
            body = stream.read(min(int(headers.get("content-length", "0")), _LARGEST))
    return Request(words[0], words[1], headers, body)

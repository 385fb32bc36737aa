"""Requests by http(s) that end, whatever a server does; imports `requests`, so only when needed.

`requests` limits each read and never the whole, and a server that sends a byte now and then holds
its caller for ever. So a thread hangs up when the time is over. Redirects are followed by hand,
because `requests` reads the body of each into memory, however large it is, even to follow none.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from perfrun.text import redact

CONNECT_S = 20.0  # for each address of a host
MOST_REDIRECTS = 10
_LOOK_S = 0.25  # between two looks at the clock
_FINISH_S = 5.0
_SHOWN = 200  # characters


class NoAnswer(Exception):  # noqa: N818 - an answer of its own; always caught
    """A server gave no answer that can be used; `is_final` when to try again cannot help."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class TooSlow(NoAnswer):
    """A server that did not come to an end in its time."""


class Client:
    """A session of requests with a limit to the time that they take; a context manager."""

    def __init__(self) -> None:
        self._watch = _Watch()
        self._session = _Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(self._watch))

    def __enter__(self) -> Client:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()
        self._watch.end()

    @contextlib.contextmanager
    def get(
        self, url: str, headers: Mapping[str, str], *, answer_s: float
    ) -> Iterator[requests.Response]:
        """Yield the answer of the server that redirects lead to; its body is not read yet.

        Raises NoAnswer, inside the block, too.
        """
        with self._translated():
            for _ in range(MOST_REDIRECTS + 1):
                with self._asked("GET", url, answer_s, headers=dict(headers)) as response:
                    to = _redirected(response, url)
                    if to is None:
                        yield response
                        return
                    url = to
            raise NoAnswer(f"more than {MOST_REDIRECTS} redirects", is_final=True)

    def read(self, response: requests.Response, size: int, *, within_s: float) -> bytes:
        """Return the next bytes of a body as they came, fewer only at its end. Raises NoAnswer."""
        self._watch.allow(within_s)
        # Not iter_content: that would unpack a .gz which a server calls "encoded". Not stream: of
        # urllib3's own reader of chunks, a line may be of any length.
        data: bytes = response.raw.read(size, decode_content=False)
        self._watch.check()
        return data

    def post(
        self, url: str, document: Any, *, within_s: float, most: int = 0
    ) -> tuple[int, str | None, bytes]:
        """Send a JSON document; return the status, where a redirect leads to, and what was said.

        That is the begin of the body: at most `most` bytes, none if they do not come in time. No
        redirect is followed. Raises NoAnswer.
        """
        with self._translated(), self._asked("POST", url, within_s, json=document) as response:
            to = _location(response) if response.is_redirect else None
            said = b""
            if most and to is None:
                with contextlib.suppress(NoAnswer), self._translated():
                    said = self.read(response, most, within_s=within_s)
            return response.status_code, to, said

    def _asked(self, method: str, url: str, within_s: float, **values: Any) -> requests.Response:
        self._watch.allow(within_s)
        response = self._session.request(
            *(method, url),
            stream=True,
            allow_redirects=False,
            timeout=(min(CONNECT_S, within_s), within_s),
            **values,
        )
        try:
            self._watch.check()  # headers that were cut short look complete
        except TooSlow:
            response.close()
            raise
        return response

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the errors of all layers into NoAnswer."""
        try:
            yield
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise NoAnswer(redact(str(error))[:_SHOWN], is_final=True) from None
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
        ) as error:
            self._watch.check()
            raise NoAnswer(_reason(error)) from None
        except UnicodeError as error:  # of a host's name
            raise NoAnswer(redact(str(error))[:_SHOWN], is_final=True) from None


class _Watch(threading.Thread):
    """Hangs up when the time of a request is over."""

    def __init__(self) -> None:
        super().__init__(name="perfrun-http-watch", daemon=True)
        self._ended = threading.Event()
        self._guard = threading.Lock()
        self._connections: list[socket.socket] = []
        self._allowed_s = 0.0
        self._until = float("inf")
        self._is_over = False

    def allow(self, seconds: float) -> None:
        """Give what is waited for now so many seconds."""
        self._allowed_s, self._until = seconds, time.monotonic() + seconds

    def check(self) -> None:
        """Raise TooSlow when it has hung up: what came then is cut short, and may not look so."""
        if self._is_over:
            raise TooSlow(f"the server is too slow: not done within {self._allowed_s:g} s")

    def add(self, connection: socket.socket) -> None:
        """Watch a connection; a copy of it is held, as TLS takes the original."""
        with self._guard:
            self._connections.append(connection.dup())

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join(_FINISH_S)
        for connection in self._connections:
            connection.close()

    def run(self) -> None:
        """Look at the clock until the end."""
        while not self._ended.wait(_LOOK_S):
            if time.monotonic() < self._until:
                continue
            self._is_over = True
            with self._guard:
                for connection in self._connections:
                    with contextlib.suppress(OSError):  # it may have been closed by the other side
                        connection.shutdown(socket.SHUT_RDWR)


class _Session(requests.Session):
    def resolve_redirects(self, *_: Any, **__: Any) -> Iterator[Any]:
        """Follow none: see the module."""
        return iter(())


class _Response(http.client.HTTPResponse):
    def _read_next_chunk_size(self) -> int:
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]
        if size < 0:  # the standard library would read all that follows, at once
            raise ValueError
        return size


class _Adapter(HTTPAdapter):
    """Opens connections that the watch knows."""

    def __init__(self, watch: _Watch) -> None:
        self._pools = _pools(watch)
        super().__init__()

    def init_poolmanager(self, *args: Any, **values: Any) -> None:
        """Make the pools of direct connections."""
        super().init_poolmanager(*args, **values)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **values: Any) -> Any:
        """Return the pools of connections by a proxy."""
        manager = super().proxy_manager_for(*args, **values)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(watch: _Watch) -> dict[str, Any]:
    class Watched:
        response_class: Any = _Response

        def _new_conn(self) -> socket.socket:
            made = cast("socket.socket", super()._new_conn())  # type: ignore[misc]
            watch.add(made)
            return made

    class Plain(Watched, HTTPConnection):
        pass

    class Secure(Watched, HTTPSConnection):
        pass

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _redirected(response: requests.Response, url: str) -> str | None:
    """Return the url that an answer leads to; None when it is no redirect. Raises NoAnswer."""
    if not response.is_redirect:
        return None
    location = _location(response)
    try:
        to = urljoin(url, location)
        old, new = urlsplit(url).scheme.lower(), urlsplit(to).scheme.lower()
    except ValueError:
        old, new = "", "?"
    if new not in ("http", "https") or (old, new) == ("https", "http"):
        raise NoAnswer(f"the server redirects to {shown_location(location)}", is_final=True)
    return to


def _location(response: requests.Response) -> str:
    return response.headers["Location"].encode("latin-1", "replace").decode("utf-8", "replace")


def shown_location(location: str) -> str:
    """Return where a redirect leads to, for a message."""
    return ascii(redact(location[: 2 * _SHOWN])[:_SHOWN])


def _reason(error: BaseException) -> str:
    """Return the innermost cause, which says most under the layers of requests and urllib3."""
    while True:
        inner = getattr(error, "reason", None) or next(
            (part for part in error.args if isinstance(part, BaseException)), None
        )
        if not isinstance(inner, BaseException):
            text = redact(f"{str(error).rpartition('>: ')[2] or type(error).__name__}")[:_SHOWN]
            # A server's own words are in some of them.
            return text if text.isprintable() else f"{text!a}"[:_SHOWN]
        error = inner

"""Run the application until a signal ends it: at once, with streams open or not."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from perfrun.errors import PerfrunError
from perfrun.serve.app import application
from perfrun.serve.events import Events
from perfrun.serve.guard import LARGEST_HEAD, App, Guard, Rules
from perfrun.serve.journals import Journals
from perfrun.serve.questions import Index
from perfrun.serve.refused import Refused
from perfrun.serve.results import Results
from perfrun.serve.threads import Threads
from perfrun.shown import say

MOST_CONNECTIONS = 128
_REQUEST_S = 10.0  # for a client to send a whole request, from its connection or its last answer
_SEND_S = 30.0  # for a client to take a part of an answer
_KEEP_ALIVE_S = 5
_GRACE_S = 1  # for answers that are under way when the server ends


class Protocol(H11Protocol):
    """HTTP/1.1 that hangs up on a client which does not come to the end of its request.

    And on one that does not take the answer.
    """

    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.loop.call_later(_REQUEST_S, self._hang_up, None)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        done = self.cycle
        super().on_response_complete()
        if not self.transport.is_closing():
            self.loop.call_later(_REQUEST_S, self._hang_up, done)

    def pause_writing(self) -> None:
        """Begin to wait for a client that has taken too little yet."""
        super().pause_writing()
        self._stuck = self.loop.call_later(_SEND_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client has taken enough."""
        super().resume_writing()
        self._let_be()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        self._let_be()

    def _let_be(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _hang_up(self, last: object) -> None:
        if self.cycle is last and not self.transport.is_closing():
            self.transport.abort()


class Server(uvicorn.Server):
    """A server that does nothing while nobody asks, and ends without an error."""

    def __init__(self, app: App, on_exit: Callable[[], None], on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
                h11_max_incomplete_event_size=2 * LARGEST_HEAD,
            )
        )
        self._on_exit, self._on_ready = on_exit, on_ready
        self._over = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for the end; uvicorn's own loop wakes ten times a second, for its date header."""
        await self.on_tick(0)
        self._on_ready()
        await self._over.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGINT and SIGTERM; uvicorn would send them to this process once more."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        self.should_exit = True
        self._on_exit()
        self._over.set()


def serve(
    listener: socket.socket,
    index: Index,
    *,
    workspace: Path,
    title: str,
    token: str | None,
    names: frozenset[str],
    on_ready: Callable[[], None],
) -> bool:
    """Serve an index at a socket that listens already, until a signal ends it.

    `on_ready` is called when a signal ends it in order, and not before. Return True when a thread
    still works on an answer that nobody waits for any more.
    """
    results = Results(index, workspace, title)
    rules = Rules(names=names, token=token, cookie=f"perfrun_{listener.getsockname()[1]}")

    async def main() -> bool:
        threads = Threads()
        events = Events(results, Journals(workspace / "runs"), threads)
        guard = Guard(application(results, events, threads), rules)
        first = asyncio.create_task(_first_page(results, threads))
        await Server(guard, events.close, on_ready).serve([listener])
        first.cancel()
        return threads.are_at_work

    return asyncio.run(main())


async def _first_page(results: Results, threads: Threads) -> None:
    """Make the page once before anybody asks: of a million trials it takes seconds."""
    try:
        await threads.run(results.page)
    except (PerfrunError, Refused):
        pass  # whoever asks is told
    except Exception as error:  # whoever asks may get it all the same
        say(f"the first page: {type(error).__name__}: {error}")

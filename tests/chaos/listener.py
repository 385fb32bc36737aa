"""A listening socket of localhost whose connections are each served by a thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


class Listener:
    """Serves connections within a block; `over` is set when the block ends."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self.over, self._threads = threading.Event(), list[threading.Thread]()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve within the block, and wait for all threads after it."""
        accepting = threading.Thread(target=self._accept)
        accepting.start()
        try:
            yield
        finally:
            self.over.set()
            self._socket.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *self._threads):
                thread.join()
            self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._socket.accept()[0]
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

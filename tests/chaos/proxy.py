"""A way to a server that breaks: after some bytes it hangs up, stands still, or lets bytes drip."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
from collections.abc import Iterator

from listener import Listener

HOW = ("hangs up", "resets", "stands still", "drips")
_MOST_BYTES = 60_000  # of what a run reads from an index, about


class Proxy:
    """Passes connections on to a port; what comes back breaks off after a number of bytes."""

    def __init__(self, port: int, draw: random.Random) -> None:
        self._port = port
        self.how = draw.choice(HOW)
        self._left = int(_MOST_BYTES ** draw.random())
        self._wanted = draw.choice((1, 1, 2, 10**6))  # so many connections break
        self._breaks = 0
        self._listener = Listener(self._pass)
        self._over, self.port = self._listener.over, self._listener.port

    @contextlib.contextmanager
    def breaking(self, _: int) -> Iterator[None]:
        """Break connections within the block; those that stand still are ended with it."""
        self._breaks = self._wanted
        try:
            yield
        finally:
            self._breaks = 0

    @contextlib.contextmanager
    def passing(self) -> Iterator[Proxy]:
        """Pass connections on within the block."""
        with self._listener.serving():
            yield self

    def _pass(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), self._far() as far:
            other = {near: far, far: near}
            while not self._over.is_set():
                for one in select.select([near, far], [], [], 0.05)[0]:
                    if not (data := one.recv(65536)):
                        return
                    if one is far and self._breaks > 0 and len(data) > self._left:
                        other[one].sendall(data[: self._left])
                        self._break(near, data[self._left :])
                        return
                    if one is far and self._breaks > 0:
                        self._left -= len(data)
                    other[one].sendall(data)

    def _far(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), 10)

    def _break(self, near: socket.socket, rest: bytes) -> None:
        if self.how == "resets":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        while self.how == "stands still" and self._breaks > 0 and not self._over.is_set():
            if select.select([near], [], [], 0.05)[0] and not near.recv(4096):
                break
        self._breaks -= 1
        for byte in rest if self.how == "drips" else b"":
            near.sendall(bytes([byte]))
            if self._over.wait(0.005):
                return

"""The standard streams of a container, as the engine carries them: frames of lines of JSON."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

_HEADER = 8  # stream number, three zeros, length (big-endian): the engine's `attach` protocol
_STDOUT = 1
_MOST_STDERR = 4096


class Streams:
    """One attached connection. Closing it ends the container's input, and so what runs there."""

    def __init__(self, connection: Any) -> None:
        self._wrapped = connection  # holds the SDK's response, which would close the socket
        self._socket: socket.socket = connection._sock
        self._socket.settimeout(None)
        self._frames = b""
        self._line = b""
        self.messages: list[dict[str, Any]] = []
        self.stderr = ""  # of the supervisor, or of the engine; empty unless something is wrong
        self.ended = False

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def receive(self) -> None:
        """Take in what is there; to be called when select says so."""
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        self._frames += data
        while len(self._frames) >= _HEADER:
            length = int.from_bytes(self._frames[4:_HEADER], "big")
            if len(self._frames) < _HEADER + length:
                return
            number = self._frames[0]
            payload = self._frames[_HEADER : _HEADER + length]
            self._frames = self._frames[_HEADER + length :]
            self._take(number, payload)

    def _take(self, number: int, payload: bytes) -> None:
        if number != _STDOUT:
            self.stderr = (self.stderr + payload.decode("utf-8", "replace"))[-_MOST_STDERR:]
            return
        *lines, self._line = (self._line + payload).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self.messages.append(message)

    def send(self, letter: bytes) -> None:
        """Tell the supervisor something; one that has ended hears nothing."""
        with contextlib.suppress(OSError):
            self._socket.sendall(letter)

    def close(self) -> None:
        """End the connection."""
        self.ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        response = getattr(self._wrapped, "_response", None)
        if response is not None:
            response.close()
        self._wrapped.close()
        self._socket.close()

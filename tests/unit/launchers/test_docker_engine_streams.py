"""The engine's frames, over a real socket, cut wherever they may be."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from perfrun.launchers.docker_engine import Streams


class Connection:
    """The SDK's connection: an object around a socket."""

    def __init__(self, own: socket.socket) -> None:
        self._sock = own

    def close(self) -> None:
        """As io objects have it."""


@pytest.fixture
def pair() -> Iterator[tuple[Streams, socket.socket]]:
    ours, engines = socket.socketpair()
    streams = Streams(Connection(ours))
    yield streams, engines
    streams.close()
    engines.close()


def frame(number: int, payload: bytes) -> bytes:
    return bytes([number, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


def test_messages_are_whole_however_they_arrive(pair: tuple[Streams, socket.socket]) -> None:
    streams, engine = pair
    data = frame(1, b'{"worker"') + frame(1, b': 7}\n{"exit"') + frame(1, b': {"a": 1}}\nnoise\n')
    for byte in data:
        engine.send(bytes([byte]))
        streams.receive()
    assert streams.messages == [{"worker": 7}, {"exit": {"a": 1}}]


def test_who_else_writes_into_the_stream_neither_fills_it_nor_hides_a_report(
    pair: tuple[Streams, socket.socket],
) -> None:
    streams, engine = pair
    for noise in (b'{"a": 1}\n' * 3000, b'{"worker": 1}\n' * 3000, b"[" * 20_000 + b"\n"):
        engine.send(frame(1, noise))
        while len(noise) > 0:
            streams.receive()
            noise = noise[65536:]
    for _ in range(40):
        engine.send(frame(1, b"x" * 20_000))  # a line without an end
        streams.receive()
    engine.send(frame(1, b"\n" + b'{"exit": {"exit_code": 0}}\n'))
    streams.receive()
    assert len(streams.messages) < 200
    assert streams.messages[-1] == {"exit": {"exit_code": 0}}


def test_what_is_said_on_standard_error_is_kept_apart(
    pair: tuple[Streams, socket.socket],
) -> None:
    streams, engine = pair
    engine.send(frame(2, b"exec /no: no such file\n") + frame(1, b"{}\n"))
    streams.receive()
    assert streams.stderr == "exec /no: no such file\n"
    assert streams.messages == [{}]


def test_the_end_is_seen_and_letters_go_through_until_then(
    pair: tuple[Streams, socket.socket],
) -> None:
    streams, engine = pair
    streams.send(b"T")
    assert engine.recv(10) == b"T"
    engine.close()
    streams.receive()
    assert streams.ended
    streams.send(b"K")  # nobody hears it, and it is no error

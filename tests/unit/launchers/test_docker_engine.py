"""perfrun.launchers.docker_engine against an engine that misbehaves: one of this test's own."""

from __future__ import annotations

import json
import queue
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest

from perfrun.launchers.docker_engine import ContainerError, DockerEngine

REFUSAL = json.dumps({"error": "denied: no such thing"}).encode() + b"\r\n"


class Engine(ThreadingUnixStreamServer):
    """Refuses an image in the first line of its answer, which it then never ends."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Handler)
        self.heard: queue.Queue[bytes] = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        answer = json.dumps({"ApiVersion": "1.41"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(REFUSAL), REFUSAL))
        self.server.heard.put(self.rfile.read(1))
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="pfe-") as folder:  # a socket's path must be short
        server = Engine(Path(folder) / "socket")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_answer_to_a_pull_is_closed_at_its_first_error(engine: Engine) -> None:
    address = engine.server_address
    client = DockerEngine(f"unix://{address if isinstance(address, str) else address[0]!s}")
    with pytest.raises(ContainerError) as caught:
        client.pull("example.invalid/none:1", lambda _: None)
    # The error is alive, and with it whatever the method had in its hands.
    assert engine.heard.get(timeout=60) == b""
    assert "no such image or wants a login" in str(caught.value)
    client._client.close()

"""A server that answers as `perfrun serve` does, for the page's side of their talk."""

from __future__ import annotations

import json
import queue
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rendering import render


class Server(ThreadingHTTPServer):
    """Answers as `perfrun serve` does: the page, its data, and the events that a test puts in."""

    daemon_threads = True

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = data
        self.events: queue.Queue[str | None] = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == "/api/events":
            self.answer("text/event-stream", None)
            while (event := self.server.events.get()) is not None:
                self.wfile.write(event.encode())
        elif self.path == "/api/page":
            self.answer("application/json", json.dumps(self.server.data).encode())
        elif self.path == "/":
            self.answer("text/html", render(self.server.data, live=True).encode())
        else:
            self.answer("image/x-icon", b"")

    def answer(self, kind: str, content: bytes | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if content is not None:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: Any) -> None:
        pass

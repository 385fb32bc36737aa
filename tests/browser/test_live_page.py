"""The served page in a real Chromium: it follows the events of its server."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import example_page
import pytest
from rendering import render

pytest.importorskip("jinja2")


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


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(example_page.report(20, 60, now=time.time() - 7200)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.events.put(None)
        server.shutdown()
        thread.join()


def test_page_shows_what_runs_and_what_is_new_and_leaves_the_reader_alone(
    browser: Any, server: Server
) -> None:
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.server_port}/#q=bench-01")
    page.locator(".live.on").wait_for()
    page.locator("#search").focus()
    trial = {"state": "started", "method": "a.b.Model.step"}
    server.events.put(f"event: trial\ndata: {json.dumps(trial)}\n\n")
    page.locator("#live", has_text="Model.step runs").wait_for()
    server.data["title"] = "After <b>one</b> more run"
    server.data["newest"] = time.time()
    server.events.put("event: index\ndata: {}\n\n")
    page.locator("#title", has_text="After <b>one</b> more run").wait_for()
    assert page.locator(".age").text_content() == "Newest trial just now"
    assert page.evaluate("document.activeElement.id") == "search"
    assert page.locator("#search").input_value() == "bench-01"
    server.events.put('event: store\ndata: {"state": "gone", "text": "the store is gone"}\n\n')
    page.locator(".live.off", has_text="the store is gone").wait_for()
    assert said == []
    page.close()

"""Messages of a night for chats, sent to a server that checks them by the documented rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from perfrun.nightly.chat import message
from perfrun.nightly.report import NightReport
from perfrun.nightly.webhook import post
from tests.unit.nightly.test_trends import report_of, timed

HOSTILE = "@everyone <!channel> [x](http://evil/) {{DATE(x)}} `*_~ \u202e\x1b[2J " + "w" * 900


# Block Kit: the kinds of text in a block and the most characters of each.
SLACK_BLOCKS = {
    "header": (("plain_text",), 150),
    "section": (("plain_text", "mrkdwn"), 3000),
    "context": (("plain_text", "mrkdwn"), 3000),
}


def wrong_for_slack(body: bytes) -> str | None:
    """At most 50 blocks of known kinds and lengths, and a text for notifications."""
    message = json.loads(body)
    if not message.get("text"):
        return "no_text"
    blocks = message.get("blocks", [])
    if not 0 < len(blocks) <= 50 or {block["type"] for block in blocks} - set(SLACK_BLOCKS):
        return "invalid_blocks"
    for block in blocks:
        kinds, most = SLACK_BLOCKS[block["type"]]
        texts = block["elements"] if block["type"] == "context" else [block["text"]]
        if not 0 < len(texts) <= 10:
            return "invalid_blocks"
        for text in texts:
            keys = {"type", "text", "emoji" if text["type"] == "plain_text" else "verbatim"}
            if text["type"] not in kinds or set(text) - keys or not 0 < len(text["text"]) <= most:
                return "invalid_blocks"
    return None


def wrong_for_teams(body: bytes) -> str | None:
    """A message of 28 KiB with one Adaptive Card, each element of a known type."""
    if len(body) > 28 * 1024:
        return "too large"
    message = json.loads(body)
    if message.get("type") != "message" or len(message["attachments"]) != 1:
        return "no message"
    (attachment,) = message["attachments"]
    card = attachment["content"]
    if attachment["contentType"] != "application/vnd.microsoft.card.adaptive":
        return "no card"
    if card["type"] != "AdaptiveCard" or float(card["version"]) > 1.5 or not card["body"]:
        return "no card"
    for element in card["body"]:
        if element["type"] != "RichTextBlock" or set(element) != {"type", "inlines"}:
            return "an unknown element"
        for run in element["inlines"]:
            if not set(run) <= {"type", "text", "size", "weight", "color", "isSubtle"}:
                return "an unknown property"
            if run["type"] != "TextRun" or not run["text"]:
                return "an empty run"
    return None


def wrong_for_discord(body: bytes) -> str | None:
    """Title 256, description 4,096, footer 2,048, 6,000 in all, 10 embeds, nobody mentioned."""
    message = json.loads(body)
    embeds = message.get("embeds", [])
    if not (message.get("content") or embeds) or len(embeds) > 10:
        return "Cannot send an empty message"
    total = 0
    for embed in embeds:
        texts = (embed["title"], embed["description"], embed["footer"]["text"])
        for text, most in zip(texts, (256, 4096, 2048), strict=True):
            length = len(text.encode("utf-16-le")) // 2
            total += length
            if not 0 < length <= most:
                return "Invalid Form Body"
        if not 0 <= embed["color"] <= 0xFFFFFF:
            return "Invalid Form Body"
    if total > 6000 or message["allowed_mentions"] != {"parse": []}:
        return "Invalid Form Body"
    return None


Answer = tuple[int, bytes]
RULES: dict[str, tuple[Callable[[bytes], str | None], Answer, Callable[[str], Answer]]] = {
    "slack": (wrong_for_slack, (200, b"ok"), lambda why: (400, why.encode())),
    "teams": (wrong_for_teams, (202, b""), lambda why: (400, why.encode())),
    "discord": (
        wrong_for_discord,
        (204, b""),
        lambda why: (400, json.dumps({"message": why, "code": 50035}).encode()),
    ),
}
each_chat = pytest.mark.parametrize("form", RULES)


@contextmanager
def chat(answer: Callable[[bytes], Answer]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the url of a server that answers each message so, and the messages."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            status, body = answer(got[-1])
            assert self.headers["Content-Type"] == "application/json"
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if status != 204:
                self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{one.server_address[1]}/services/T0/B0/s3cret", got
        one.shutdown()


def sent(report: NightReport, form: str) -> tuple[str | None, str]:
    """Send to a server that checks it: why it was not taken, and what was sent."""
    check, taken, refused = RULES[form]

    def answer(body: bytes) -> Answer:
        why = check(body)
        return taken if why is None else refused(why)

    with chat(answer) as (url, got):
        why = post(url, report, lambda _: None, form=form)
    return why, got[0].decode()


def texts_of(form: str, body: str) -> str:
    """All that a reader sees of a message."""
    found = json.loads(body)
    if form == "slack":
        blocks = [b["text"]["text"] for b in found["blocks"] if "text" in b]
        return "\n".join([found["text"], *blocks])
    if form == "teams":
        runs = found["attachments"][0]["content"]["body"]
        return "\n".join(run["inlines"][0]["text"] for run in runs)
    return "\n".join((found["embeds"][0]["title"], found["embeds"][0]["description"]))


@each_chat
def test_a_night_is_taken_and_begins_with_the_verdict(form: str) -> None:
    bad = timed(2.0, 0.1, method="a.B.slow_one", state="out_of_bounds", why="2 is above 1")
    report = replace(report_of(bad, timed(1.0)), errors=("the index is broken",))
    why, body = sent(report, form)
    assert why is None
    shown = texts_of(form, body).replace("\\", "").replace("\u2060", "")
    lines = shown.splitlines()
    assert lines[0].startswith("n: 1 out of bounds, 1 error")
    assert "the index is broken" in shown
    assert "a.B.slow_one in e: out of bounds: 2 is above 1" in shown
    assert "a.B.c in e: wall_time 1 s" in shown


@each_chat
@pytest.mark.parametrize("count", [1, 30, 300])
def test_no_night_is_beyond_the_limits_and_what_is_cut_is_said(form: str, count: int) -> None:
    methods = [
        timed(1.0, 0.1, method=f"a.B.m{number}{HOSTILE}", state="failed", why=HOSTILE)
        for number in range(count)
    ]
    report = replace(
        report_of(*methods),
        errors=(HOSTILE * 20, "\U0001f600" * 3000),
        notes=tuple([HOSTILE] * count),
        commits={HOSTILE: HOSTILE},
    )
    why, body = sent(report, form)
    assert why is None
    shown = texts_of(form, body)
    assert "(cut)" in shown
    assert ("left out: see the report of" in shown.replace("\\", "")) == (count > 1)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    if form == "slack":
        assert "<" not in shown


@each_chat
def test_an_empty_night_is_a_message_too(form: str) -> None:
    if form == "discord":
        assert message(report_of(), form)["embeds"][0]["description"] == "No method was run."
    assert sent(report_of(), form)[0] is None


@pytest.mark.parametrize(
    ("form", "answer", "why"),
    [
        ("slack", (404, b"no_service"), "HTTP 404: no_service"),
        ("slack", (403, b"invalid_token"), "HTTP 403: invalid_token"),
        ("slack", (400, b"invalid_blocks\n"), "HTTP 400: invalid_blocks"),
        ("slack", (200, b"<html>Sign in</html>"), "HTTP 200"),
        ("slack", (200, b"no_text"), "HTTP 200: no_text"),
        ("discord", (404, b'{"message": "Unknown Webhook", "code": 1}'), ": Unknown Webhook"),
        ("discord", (400, b'{"embeds": ["0"]}'), "HTTP 400"),
        ("discord", (400, b"[" * 1999), "HTTP 400: [["),
        ("teams", (200, b"Webhook message delivery failed with error: 413"), "error: 413"),
        ("teams", (400, b'{"error": {"message": "no\\u001b[2Jt"}}'), "HTTP 400: no\\x1b[2Jt"),
        ("teams", (401, b"\xff\x00\x9b2J"), "HTTP 401: "),
        ("json", (404, b"not read"), "the report: HTTP 404"),
    ],
)
def test_what_a_chat_answers_is_understood(form: str, answer: Answer, why: str) -> None:
    with chat(lambda _: answer) as (url, got):
        found = post(url, report_of(), lambda _: None, form=form)
    assert len(got) == 1
    assert found is not None
    assert why in found
    assert found.isprintable()
    assert "s3cret" not in found
    if why.startswith("the report"):
        assert found.endswith(why)


def test_a_busy_chat_is_asked_again() -> None:
    answers = iter([(429, b'{"retry_after": 0.1}'), (503, b""), (204, b"")])
    with chat(lambda _: next(answers)) as (url, got):
        assert post(url, report_of(), lambda _: None, form="discord") is None
    assert len(got) == 3

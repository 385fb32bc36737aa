"""The door of the server: who may ask, what may be asked, and what every answer says to a browser.

It stands before all routes. A page of another site in the user's own browser can reach a server on
loopback; it is kept out by the `Host` that it names, by `Sec-Fetch-Site`, and by the headers that
forbid a browser to give it an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST_TARGET = 4096  # bytes of path and query
LARGEST_HEAD = 16 * 1024  # bytes of all headers
_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[0-9A-Za-z._-]{1,253})(?::\d{1,5})?")
_MOST_FIELDS = 30  # of a query
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Who may ask."""

    names: frozenset[str]  # that `Host` may have, besides addresses in numbers
    token: str | None  # None: everybody who can reach the port
    cookie: str  # its name; cookies of a host are shared by its ports


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An answer of the door itself."""

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it in."""
        if scope["type"] != "http":
            return
        answered = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, answered)
        else:
            await _answer(refusal, answered)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        return self._wrong_request(scope, headers) or self._stranger(scope, headers)

    def _wrong_request(self, scope: Scope, headers: dict[str, list[str]]) -> Refusal | None:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_TARGET:
            return Refusal(status=414, text="the address is too long")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEAD:
            return Refusal(status=431, text="the headers are too long", headers=_CLOSE)
        if not self._is_ours(headers.get("host", [])):
            return Refusal(
                status=421,
                text="this server does not have that name; `perfrun serve --server_name=NAME` "
                "gives it another one",
            )
        if scope["method"] not in ("GET", "HEAD"):
            return Refusal(status=405, text="it is read only", headers=(("allow", "GET, HEAD"),))
        if "transfer-encoding" in headers or headers.get("content-length", ["0"]) != ["0"]:
            return Refusal(status=413, text="a question has no body", headers=_CLOSE)
        is_foreign = headers.get("sec-fetch-site", ["none"])[0] not in ("none", "same-origin")
        if is_foreign and not (scope["path"] == "/" and _is_visit(headers)):
            return Refusal(status=403, text="another site asks")
        return None

    def _is_ours(self, hosts: list[str]) -> bool:
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            return False
        name = found[1].lower().rstrip(".")
        return name in self._rules.names or _is_address(name)

    def _stranger(self, scope: Scope, headers: dict[str, list[str]]) -> Refusal | None:
        rules = self._rules
        if rules.token is None:
            return None
        kind, _, given = headers.get("authorization", [""])[0].partition(" ")
        if kind.lower() == "bearer" and same(given.strip(), rules.token):
            return None
        given_cookies = _cookies(headers.get("cookie", []), rules.cookie)
        if any(same(one, cookie_of(rules.token)) for one in given_cookies):
            return None
        asked = _query(scope).get("token", [])
        if scope["path"] == "/" and len(asked) == 1 and same(asked[0], rules.token):
            return self._let_in(headers)
        return Refusal(
            status=401,
            text="a token is needed: open the address that `perfrun serve` printed, or send "
            "`Authorization: Bearer TOKEN`",
            headers=(("www-authenticate", "Bearer"),),
        )

    def _let_in(self, headers: dict[str, list[str]]) -> Refusal:
        """Turn the token of an address, which would stay in the history, into a cookie."""
        token = cookie_of(self._rules.token or "")
        cookie = f"{self._rules.cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
        if headers.get("sec-fetch-site", ["none"])[0] == "cross-site":
            # Of a link on another site a redirect belongs to that site, and gets no cookie.
            return Refusal(
                status=200, text="", headers=(("set-cookie", cookie), ("refresh", "0; url=/"))
            )
        return Refusal(status=303, text="", headers=(("set-cookie", cookie), ("location", "/")))


_CLOSE = (("connection", "close"),)


def same(given: str, wanted: str) -> bool:
    """Compare two secrets; it takes as long for a wrong one as for the right one."""
    hashes = (hashlib.sha256(one.encode("utf-8", "replace")).digest() for one in (given, wanted))
    return hmac.compare_digest(*hashes)


def cookie_of(token: str) -> str:
    """Return the cookie's value, from which the token cannot be told."""
    return hmac.new(token.encode(), b"perfrun serve", "sha256").hexdigest()


def _is_visit(headers: dict[str, list[str]]) -> bool:
    """Return True when a browser goes to the page itself, and not another page into this one."""
    return headers.get("sec-fetch-dest") == ["document"]


def _is_address(name: str) -> bool:
    """Return True for an address in numbers: no name that a stranger's server could give out."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _cookies(headers: list[str], name: str) -> Iterator[str]:
    """Yield the cookies of that name, whatever other programs of this host have put beside them."""
    for header in headers:
        for part in header.split(";"):
            own, _, value = part.strip().partition("=")
            if own == name:
                yield value


def _query(scope: Scope) -> dict[str, list[str]]:
    try:
        return parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return {}


def _with_headers(send: Send) -> Send:
    """Return a `send` with the headers of every answer."""

    async def answered(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", ()))
            there = {name.lower() for name, _ in own}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [*own, *(one for one in more if one[0] not in there)]
        await send(message)

    return answered


async def _answer(refusal: Refusal, send: Send) -> None:
    body = json.dumps({"error": refusal.text}).encode() + b"\n" if refusal.text else b""
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        *refusal.headers,
    ]
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": refusal.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})

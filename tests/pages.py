"""A report read back as a browser reads it: its elements, and the data in it."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass
class ReadPage(HTMLParser):
    """The scripts, styles and policy of a page, and its data."""

    scripts: list[tuple[dict[str, str | None], str]] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    policy: str = ""
    links: list[str] = field(default_factory=list)  # whatever could make a request
    handlers: list[str] = field(default_factory=list)  # onload= and the like
    _open: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._open = tag
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        self.links += [str(given[name]) for name in ("src", "href", "action") if name in given]
        if tag == "script":
            self.scripts.append((given, ""))
        elif tag == "style":
            self.styles.append("")
        elif tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(given["content"])

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self._open == "style":
            self.styles[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    @property
    def data(self) -> dict[str, Any]:
        """The data, refusing what strict JSON does not have."""
        ((_, text),) = [one for one in self.scripts if one[0].get("id") == "data"]
        found: dict[str, Any] = json.loads(text, parse_constant=_refuse)
        return found


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def read_page(html: str) -> ReadPage:
    """Read a page; it makes no request, and its policy allows just its own scripts and styles."""
    page = ReadPage()
    page.feed(html)
    page.close()
    assert page.links == []
    assert page.handlers == []
    code = [text for given, text in page.scripts if given.get("id") != "data"]
    for text in (*code, *page.styles):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.policy
    assert page.policy.count("sha256-") == len(code) + len(page.styles)
    assert "default-src 'none'" in page.policy
    assert "unsafe" not in page.policy
    return page


def unpack(data: dict[str, Any], column: Any) -> list[float | None]:
    """The numbers of a packed column, as the page's script unpacks them."""
    if isinstance(column, int):
        column = data["shared"][column]
    content = base64.b64decode(column["b64"])
    steps = [int.from_bytes(content[at : at + 2], "little") for at in range(0, len(content), 2)]
    assert len(steps) == column["n"]
    return [None if q == 65535 else column["min"] + q * column["step"] for q in steps]

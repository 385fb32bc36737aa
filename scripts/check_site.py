"""Check a built site: every page is there, and no page loads anything from another server.

    python scripts/check_site.py site

Links that a reader may follow are no loads. Exit status: 0, or 1 with a line for each fault.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

# The attributes through which a browser fetches by itself; `link` also has others (canonical).
_LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}
_LOADING_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch"}


class Loads(HTMLParser):
    """The addresses that a browser fetches when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the address of an element that loads something."""
        values = {name: value or "" for name, value in attrs}
        if tag in _LOADS:
            self.found.append(values.get(_LOADS[tag], ""))
        elif tag == "link" and _LOADING_LINKS & set(values.get("rel", "").split()):
            self.found.append(values.get("href", ""))


def loads(page: str) -> list[str]:
    """Return the addresses on other servers that a page loads from."""
    reader = Loads()
    reader.feed(page)
    return [address for address in reader.found if "//" in address]


def faults(site: Path, docs: Path) -> list[str]:
    """Return a line for each page that is missing, and for each load from another server."""
    found = []
    for source in sorted(docs.rglob("*.md")):
        name = source.relative_to(docs).with_suffix(".html")
        if not (site / (name.with_name("index.html") if name.stem == "README" else name)).exists():
            found.append(f"{source}: no page of the site")
    for page in sorted(site.rglob("*.html")):
        for address in loads(page.read_text(encoding="utf-8")):
            found.append(f"{page}: loads {address}")
    return found


def main() -> int:
    """Print the faults of the site in the folder that is named."""
    found = faults(Path(sys.argv[1]), Path("docs"))
    print(*found, sep="\n", end="\n" if found else "")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

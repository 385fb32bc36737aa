"""Markdown as GitHub renders it, by the parser that GitHub wrote for it."""

from __future__ import annotations

import cmarkgfm
from cmarkgfm.cmark import Options


def rendered(text: str) -> str:
    """Return the HTML of a text, with tables and links made of plain addresses.

    GitHub takes dangerous HTML out of it afterwards; here it stays, so that a test can see it.
    """
    return str(cmarkgfm.github_flavored_markdown_to_html(text, Options.CMARK_OPT_UNSAFE))

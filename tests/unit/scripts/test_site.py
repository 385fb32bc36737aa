"""The site of docs/ asks no other server for anything; pictures of terminals are as drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import add_story, check_site, terminal_picture

README = Path(__file__).parents[3] / "docs" / "README.md"
PAGE = """
<link rel="canonical" href="https://host/page.html">
<link rel="stylesheet" href="../assets/site.css">
<a href="https://host/elsewhere">a link</a>
<script src="assets/a.js"></script>
"""


def test_a_page_that_loads_from_another_server_is_named(tmp_path: Path) -> None:
    docs, site = tmp_path / "docs", tmp_path / "site"
    (docs / "guides").mkdir(parents=True)
    (site / "guides").mkdir(parents=True)
    for name in ("README.md", "guides/one.md", "guides/lost.md"):
        (docs / name).touch()
    (site / "index.html").write_text(PAGE)
    (site / "guides" / "one.html").write_text(
        PAGE + '<script src="https://unpkg.com/x"></script><link rel="preconnect" href="//fonts/">'
    )
    assert check_site.faults(site, docs) == [
        f"{docs / 'guides' / 'lost.md'}: no page of the site",
        f"{site / 'guides' / 'one.html'}: loads https://unpkg.com/x",
        f"{site / 'guides' / 'one.html'}: loads //fonts/",
    ]


def test_the_picture_of_the_first_page_opens_the_page_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "index.html"
    picture = '<img alt="a page" src="assets/report.png" />'
    monkeypatch.setattr(sys, "argv", ["add_story.py", str(tmp_path), "night.html"])
    index.write_text(f"<p>{picture}</p>")
    assert add_story.main() == 1
    (tmp_path / "night.html").touch()
    assert add_story.main() == 0
    assert index.read_text() == f'<p><a href="night.html">{picture}</a></p>'
    index.write_text("<p></p>")
    assert add_story.main() == 1
    assert "there is no night.html" in (told := capsys.readouterr().out)
    assert "has the picture 0 times" in told
    # The first page of the documents has it, once.
    assert README.read_text(encoding="utf-8").count("(assets/report.png)") == 1


def test_a_picture_shows_the_last_screen_and_needs_no_font_from_elsewhere() -> None:
    program = r"print('\x1b[2K[1/2] waits\r\x1b[2K[2/2] \x1b[32mdone\x1b[0m')"
    raw = terminal_picture.output_of([sys.executable, "-c", program], 60)
    shown = terminal_picture.screen(raw)
    assert "waits" not in shown
    drawn = terminal_picture.picture(shown, 60, "perfrun")
    assert "done" in drawn
    assert "[2/2]" in drawn
    assert "@font-face" not in drawn
    assert "url(http" not in drawn

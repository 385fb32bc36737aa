"""The files that a page is made of, without a browser."""

import hashlib
import json
import re
from pathlib import Path

import perfrun

ASSETS = Path(perfrun.__file__).parent / "page" / "assets"


def test_the_vendored_library_is_the_file_that_its_checksum_names() -> None:
    vendor = json.loads((ASSETS / "vendor" / "uPlot.json").read_text())
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ASSETS / "vendor").iterdir()
        if path.name != "uPlot.json"
    }
    assert found == vendor["files"]
    assert f"(v{vendor['version']})" in (ASSETS / "vendor" / "uPlot.iife.min.js").read_text()[:100]


def test_scripts_make_no_markup_of_texts_and_are_short() -> None:
    for path in (ASSETS / "js").iterdir():
        text = path.read_text(encoding="utf-8")
        assert text.startswith('"use strict";')
        assert len(text.splitlines()) <= 600, path.name
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createObjectURL|https?://(?!www\.w3\.org/2000/svg)"
        assert not re.search(forbidden, text), path.name
        # A closing tag in a script would end the element that holds it.
        assert "</script" not in text

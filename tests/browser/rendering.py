"""A page of data, rendered from the assets with nothing else of perfrun."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2

import perfrun

ASSETS = Path(perfrun.__file__).parent / "page" / "assets"


def render(data: dict[str, Any], *, live: bool = False) -> str:
    parts = {
        "style": (ASSETS / "page.css").read_text("utf-8"),
        "uplot_style": (ASSETS / "vendor" / "uPlot.min.css").read_text("utf-8"),
        "uplot_script": (ASSETS / "vendor" / "uPlot.iife.min.js").read_text("utf-8"),
        "script": "\n".join(p.read_text("utf-8") for p in sorted((ASSETS / "js").glob("*.js"))),
    }
    hashes = {
        name: "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for name, text in parts.items()
    }
    csp = (
        f"default-src 'none'; script-src {hashes['uplot_script']} {hashes['script']}; "
        f"style-src {hashes['uplot_style']} {hashes['style']}; img-src data:; base-uri 'none'; "
        "form-action 'none'" + ("; connect-src 'self'" if live else "")
    )
    text = json.dumps(data, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((ASSETS / "page.html.j2").read_text("utf-8"))
    rows = {
        "age": "",
        "changes": [[data["methods"][c["method"]]["name"], c["metric"], f"{c['ratio']:.3f}",
                     c["text"], c["night"]] for c in data["changes"][:50]],
        "methods": [[m["name"], m["environment"], m["state"], "", ""]
                    for m in data["methods"][:50]],
    }  # fmt: skip
    return template.render(
        title=data["title"], csp=csp, data=text, live=live, summary=rows, **parts
    )

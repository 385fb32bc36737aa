"""The page that is served: HTML made of its data, and the policy that goes with it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from typing import Any

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_META = re.compile(rb"<meta http-equiv=\"Content-Security-Policy\" content=\"([^\"]{0,8000})\"")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } td, th { padding: .2rem .6rem; text-align: left }
.number { text-align: right; font-variant-numeric: tabular-nums }
"""
_SCRIPT = """
"use strict";
const show = (data) => {
  document.title = data.title;
  document.querySelector("h1").textContent = data.title;
  const newest = data.newest ? new Date(data.newest * 1000).toLocaleString() : "none";
  document.querySelector("#newest").textContent = "newest trial: " + newest;
  const rows = data.methods.map((method) => {
    const row = document.createElement("tr");
    const ratio = method.against_baseline;
    const cells = [method.name, method.environment, method.state, method.trials,
                   ratio === null ? "-" : ratio.toFixed(3)];
    cells.forEach((text, place) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (place > 2) cell.className = "number";
      row.append(cell);
    });
    return row;
  });
  document.querySelector("tbody").replaceChildren(...rows);
};
show(JSON.parse(document.querySelector("#data").textContent));
const events = new EventSource("/api/events");
events.addEventListener("index", async () => {
  const answer = await fetch("/api/page");
  if (answer.ok) show(await answer.json());
});
events.addEventListener("run", (event) => {
  const run = JSON.parse(event.data);
  document.querySelector("#run").textContent =
    `${run.run_id}: ${run.state}, ${run.finished} of ${run.planned} trials`;
});
"""


def render(data: Mapping[str, Any], *, live: bool) -> str:
    """Return the page. Texts of others are in its JSON only, in which no tag can begin."""
    text = json.dumps(data, allow_nan=False)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    policy = (
        f"default-src 'none'; script-src '{_hash(_SCRIPT)}'; style-src '{_hash(_STYLE)}'"
        + ("; connect-src 'self'" if live else "")
        + "; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(str(data['title']))}</title><style>{_STYLE}</style></head><body>"
        f'<h1></h1><p id="newest"></p><p id="run" role="status"></p>'
        "<table><thead><tr><th>method<th>environment<th>outcome<th>trials<th>against the baseline"
        "</thead><tbody></tbody></table>"
        f'<script type="application/json" id="data">{text}</script><script>{_SCRIPT}</script>'
        "</body></html>"
    )


def policy_of(page: bytes) -> str:
    """Return the page's own policy as a header, in which it can also forbid to be framed."""
    found = _META.search(page)
    own = html.unescape(found[1].decode("ascii", "replace")) if found else "default-src 'none'"
    return f"{' '.join(own.split())}; frame-ancestors 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

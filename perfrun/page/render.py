"""The page as one HTML file, made of its data: no request, no script of others, no style of others.

A Content-Security-Policy names the hash of each script and style in the file, so a text that got
out of its place could still start nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from perfrun.errors import UsageError
from perfrun.page.packed import MISSING
from perfrun.reports.figures import percent
from perfrun.text import redacted, with_unit

if TYPE_CHECKING:
    from jinja2 import Template

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_MOST_ROWS = 50  # of a table for readers without JavaScript
_SUMMARY_BYTES = 25_000  # both of these tables
_UNITS = ((86400 * 2, 86400, "days"), (7200, 3600, "hours"), (120, 60, "minutes"))


def render(data: Mapping[str, Any], *, live: bool = False) -> str:
    """Return the page. `live` is the served one, which fetches new data by itself."""
    blocks = _blocks()
    return template().render(
        title=data["title"],
        style=blocks["style"],
        uplot_style=blocks["uplot_style"],
        uplot_script=blocks["uplot_script"],
        script=blocks["script"],
        csp=policy(live=live),
        data=script_json(data),
        live=live,
        summary=_summary(data),
    )


@lru_cache(1)
def template() -> Template:
    """Return the template. Raises UsageError when the library that fills it is not installed."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UsageError("a page needs jinja2: pip install 'perfrun[report]'") from None
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(_asset("page.html.j2"))


def fixed_bytes() -> int:
    """Return the size of the page without its data; of what follows from these, the most."""
    return _SUMMARY_BYTES + sum(
        len(text.encode()) for text in (*_blocks().values(), _asset("page.html.j2"))
    )


def script_json(data: Mapping[str, Any]) -> str:
    """Return JSON that can stand in a script element: no text of it ends the element.

    It is ASCII: all other characters, the ends of lines of Unicode among them, are escaped.
    """
    text = json.dumps(redacted(data), separators=(",", ":"), allow_nan=False)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def policy(*, live: bool = False) -> str:
    """Return the Content-Security-Policy: the file's own scripts and styles, and nothing else."""
    blocks = _blocks()
    scripts = " ".join(_hash(blocks[name]) for name in ("uplot_script", "script"))
    styles = " ".join(_hash(blocks[name]) for name in ("uplot_style", "style"))
    parts = [
        "default-src 'none'",
        f"script-src {scripts}",
        f"style-src {styles}",
        "img-src data:",  # a chart that is saved as a picture
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*parts, "connect-src 'self'"] if live else parts)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@lru_cache(1)
def _blocks() -> Mapping[str, str]:
    """Return what stands between the tags of scripts and styles, exactly as it is hashed."""
    folder = files("perfrun.page") / "assets" / "js"
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".js"))
    return {
        "style": _asset("page.css"),
        "uplot_style": _asset("vendor/uPlot.min.css"),
        "uplot_script": _asset("vendor/uPlot.iife.min.js"),
        "script": "\n".join(_asset(f"js/{name}") for name in names),
    }


@lru_cache(32)
def _asset(name: str) -> str:
    return (files("perfrun.page") / "assets" / name).read_text(encoding="utf-8")


def _summary(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown where there is no JavaScript."""
    methods: Sequence[Mapping[str, Any]] = data["methods"]
    changes = [one for one in data["changes"] if one["method"] is not None]
    return {
        "age": _age(data),
        "fleet": [
            [one["submission"], f"{one['states'].get('done', 0)} of {one['shards']}", one["left"]]
            for one in data["fleet"]
        ],
        "changes": [
            [
                methods[one["method"]]["name"],
                one["metric"],
                f"{'+' if one['ratio'] >= 1 else '-'}{percent(abs(one['ratio'] - 1))}",
                one["text"],
                one["night"],
            ]
            for one in changes[:_MOST_ROWS]
        ],
        "methods": [
            [
                one["name"],
                one["environment"],
                one["state"],
                _latest(data, one["main"]),
                _against(one["against_baseline"]),
            ]
            for one in methods[:_MOST_ROWS]
        ],
    }


def _age(data: Mapping[str, Any]) -> str:
    if data["newest"] is None:
        return "There is no result in it."
    seconds = max(0.0, data["made"] - data["newest"])
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(data["made"]))
    size, unit = next(((s, u) for least, s, u in _UNITS if seconds >= least), (60, "minutes"))
    return f"Made {made}; its newest result was {seconds / size:.0f} {unit} old then."


def _latest(data: Mapping[str, Any], main: int | None) -> str:
    """Return the last value of a series with its unit."""
    if main is None:
        return "-"
    series = data["series"][main]
    column = series["value"]
    if isinstance(column, int):
        column = data["shared"][column]
    if column is None:
        return "-"
    content = base64.b64decode(column["b64"])
    steps = [int.from_bytes(content[at : at + 2], "little") for at in range(0, len(content), 2)]
    last = next((step for step in reversed(steps) if step != MISSING), None)
    return "-" if last is None else with_unit(column["min"] + last * column["step"], series["unit"])


def _against(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f} %"

"""What perfrun writes of a stranger's words, read back as its readers do."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

from prometheus_client.openmetrics import parser as openmetrics_parser

from perfrun import shown
from perfrun.exchange import rows
from perfrun.nightly.junit import junit
from perfrun.nightly.markdown import markdown as markdown_of
from perfrun.nightly.openmetrics import openmetrics
from perfrun.reports.table import Column, Table, markdown_text, plain_text
from perfrun.summary.record import BadSummary, parse_record
from tests.attack.test_shown_text import night
from tests.github_markdown import rendered

from .target import Target, text

_FORMULA = tuple("=+-@|%\t\r\uff1d\uff0b\uff0d\uff20")
_TAGS = re.compile(r"<(\w+)")
_LINKS = re.compile(r"(?:^|[^\w/`])@[A-Za-z0-9]|#[0-9]|\bGH-[0-9]|\b(?:https?://|mailto:|www\.)")
_OF_NIGHT = {"h1", "h2", "p", "ul", "li", "code", "table", "thead", "tbody", "tr", "th", "td"}
_COLOURS = re.compile(r"\x1b\[(?:[0-2]?K|[0-9;:]*m)")
_CONCEALED = re.compile(r"\x1b\[(?:[0-9:;]*;)?0*8[;m]")


def _is_clean(shown_text: str, ends: str = "") -> bool:
    shown_text.encode()
    return shown_text.isprintable() or all(
        c.isprintable() or c in ends or c in shown._BLANKS for c in set(shown_text)
    )


def _lines(data: bytes) -> None:
    said = text(data)
    one = shown.line(said)
    assert _is_clean(one)
    assert len(one.splitlines()) <= 1
    assert len(one) < shown.LONGEST_LINE + 100
    assert _is_clean(shown.cell(said))
    assert len(shown.cell(said)) < shown.LONGEST_CELL + 100
    assert _is_clean(shown.block(said), "\t\n")
    assert shown.page([said, said]).count("\n") == 2
    assert shown.width(one) >= 0


def _markdown(data: bytes) -> None:
    said = shown.markdown(text(data))
    assert _is_clean(said.replace(shown._JOINER, ""))
    assert not _LINKS.search(said), said
    for before, tags in (("- ", {"ul", "li"}), ("", {"p"}), ("# ", {"h1"})):
        assert set(_TAGS.findall(rendered(f"{before}{said}\n"))) <= tags, said


def _tables(data: bytes) -> None:
    said = text(data)
    cells = ((said, "b"), ("c", said))
    table = Table(columns=(Column(heading=said), Column(heading="h")), rows=cells)
    found = plain_text(table)
    assert _is_clean(found, "\n")
    assert found.count("\n") == plain_text(_ASCII).count("\n")
    page = rendered(markdown_text(table))
    assert (page.count("<td"), page.count("<th>")) == (4, 2), page
    assert set(_TAGS.findall(page)) <= _OF_NIGHT


_ASCII = Table(columns=(Column(heading="x"), Column(heading="h")), rows=(("a", "b"), ("c", "d")))


def _live(data: bytes) -> None:
    """The text comes in pieces: the first byte says how long they are."""
    said = text(data[1:])
    step = 1 + (data[0] if data else 0)
    live = shown.LiveText(on_terminal=True)
    found = "".join(live.shown(said[at : at + step]) for at in range(0, len(said), step))
    assert _is_clean(_COLOURS.sub("", found), "\t\n\r"), found
    assert not _CONCEALED.search(found)
    assert _COLOURS.sub("", live.closing()) in ("", "\n")
    to_file = shown.LiveText(on_terminal=False).shown(said)
    assert to_file.replace(shown.MARK, "") == said.replace(shown.MARK, "")


def _openmetrics(data: bytes) -> None:
    said = text(data)
    page = openmetrics(night(said))
    page.encode()
    families = list(openmetrics_parser.text_string_to_metric_families(page))
    assert [len(family.samples) for family in families] == [1, 1, 1, 1, 1, 5, 1, 1]
    (median,) = families[6].samples
    assert median.name == "perfrun_method_median"
    assert _is_clean(median.labels["metric"], "\n")
    assert set(median.labels) == _LABELS


_LABELS = {"suite", "environment", "unit_of_night", "method", "metric", "unit", "direction"}


def _night(data: bytes) -> None:
    report = night(text(data))
    page = markdown_of(report)
    assert _is_clean(page.replace(shown._JOINER, ""), "\n")
    found = rendered(page)
    assert set(_TAGS.findall(found)) <= _OF_NIGHT
    assert (found.count("<h1>"), found.count("<h2>"), found.count("<td")) == (1, 4, 9)
    cases = list(ElementTree.fromstring(junit(report).encode()).iter("testcase"))
    assert len(cases) == 3
    assert all(_is_clean(case.get("name", ""), "\n\t") for case in cases)


def _csv(data: bytes) -> None:
    """A summary with these bytes in the place of a text or, if they are one, as a whole."""
    try:
        record = parse_record(data, Path("summary.json"))
    except BadSummary:
        document = json.loads(_SUMMARY)
        said = data.decode("utf-8", "replace") or "x"
        document["benchmark_result"]["name"] = said
        document["benchmark_result"]["metrics"][0]["name"] = said
        document["benchmark_info"]["execution_label"] = said
        record = parse_record(json.dumps(document).encode(), Path("summary.json"))
    file = io.BytesIO()
    count = rows.write("csv", rows.rows_of([record], None), file)
    heads, *found = csv.reader(io.StringIO(file.getvalue().decode(), newline=""))
    assert len(found) == count > 0
    kinds = [column.kind for column in rows.COLUMNS]
    assert heads == [column.name for column in rows.COLUMNS]
    for row in found:
        assert len(row) == len(kinds)
        for kind, cell in zip(kinds, row, strict=True):
            assert _is_clean(cell)
            assert kind != "text" or not cell.lstrip().startswith(_FORMULA), cell
    file = io.BytesIO()
    rows.write("json", rows.rows_of([record], None), file)
    assert len(json.loads(file.getvalue())) == count


_SUMMARY = (Path(__file__).resolve().parent.parent / "data" / "perfzero" / "ok.json").read_bytes()
_SEEDS = (
    b"a plain text of \xc3\xa4 and \xe4\xb8\xad",
    b"\x1b[1;31mred\x1b[0m\x1b]0;owned\x07b\x1b[2J\x1b[5Ac\x1b[2Kd\x1bP1\x1b\\e\x08f\n",
    b"[well](http://evil/) ![](x) <b> @alice #12 GH-13 | a | b\n# h\n===\n- [x]\n```\n~~~ `x` $y$",
    b"=1+1\t@SUM(A1)\n-2,\"x\";'y'",
    b"perfrun: all trials passed\n[1/1] m.C.x, trial 1: passed\n\xe2\x80\xae\xe2\x80\xa8\xc2\x9b2J",
    b'https://u:p@host/x?token=abc auth=abc\\\\"{}',
)

TARGETS = (
    Target(name="lines that are shown", call=_lines, seeds=_SEEDS),
    Target(name="Markdown that is written", call=_markdown, seeds=_SEEDS),
    Target(name="tables that are shown", call=_tables, seeds=_SEEDS),
    Target(name="output that is passed on", call=_live, seeds=tuple(b"\x05" + s for s in _SEEDS)),
    Target(name="OpenMetrics that is written", call=_openmetrics, seeds=_SEEDS),
    Target(name="a night that is written", call=_night, seeds=_SEEDS),
    Target(name="CSV that is written", call=_csv, seeds=(*_SEEDS, _SUMMARY)),
)

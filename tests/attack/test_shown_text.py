"""Text that forges, hides or moves what perfrun says: on a terminal, in a log, in a report."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import sys
import tty
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics_parser

from perfrun.changes.change_report import ChangeRow, changes_page
from perfrun.changes.search_report import bisect_report
from perfrun.errors import UsageError
from perfrun.incidents.incident import (
    Bisection,
    Culprit,
    Decision,
    Explanation,
    Incident,
    Returned,
    Worsening,
)
from perfrun.incidents.words import markdown_list, one_text, text_of
from perfrun.nightly.command import write_reports
from perfrun.nightly.junit import junit
from perfrun.nightly.markdown import markdown as markdown_of
from perfrun.nightly.openmetrics import openmetrics
from perfrun.nightly.report import (
    ChangeReport,
    Failure,
    IncidentReport,
    MethodReport,
    NightFigure,
    NightReport,
)
from perfrun.nightly.suite import Outputs
from perfrun.reports.layout import drawn
from perfrun.reports.output import named_failures
from perfrun.reports.table import Column, Table, coloured, markdown_text, plain_text
from perfrun.shown import (
    LONGEST_LINE,
    LiveText,
    label,
    line,
    markdown,
    markdown_command,
    page,
    slack,
    teams,
    xml,
)
from tests.github_markdown import rendered
from tests.summaries import summary, write

PACKAGE = Path(__file__).resolve().parents[2] / "perfrun"
ESC = "\x1b"
ATTACKS = {
    "an escape sequence": f"{ESC}[2J{ESC}[Hclean",
    "a colour that hides": f"{ESC}[8mhidden",
    "a title of the window": f"{ESC}]0;owned\x07",
    "a link of the terminal": f"{ESC}]8;;http://evil/{ESC}\\here",
    "a device control string": f"{ESC}P+q544e{ESC}\\",
    "the clipboard": f"{ESC}]52;c;b3duZWQ=\x07",
    "an escape of one byte": "\x9b2J",
    "a line of perfrun": "x\nperfrun: all trials passed",
    "a line over this one": "x\rperfrun: all trials passed",
    "a backspace": "failed\b\b\b\b\b\bpassed",
    "a vertical tab": "x\x0bperfrun: all trials passed",
    "a next line": "x\x85perfrun: all trials passed",
    "a line separator": "x\u2028perfrun: all trials passed",
    "a bell": "\a" * 5,
    "a zero byte": "pas\0sed",
    "text from right to left": "\u202edessap\u202c",
    "an isolate": "\u2067dessap\u2069",
    "characters without width": "pass\u200bed\ufeff",
    "tags that nobody sees": "x\U000e0041\U000e0042",
    "half of a surrogate pair": "x\ud800y",
    "no character": "x\uffff\ufdd0",
    "markup of rich": "[red]x[/red][link=http://evil/]y[/link]",
    "a very long word": "w" * 100_000,
}  # fmt: skip
PAGE_ATTACKS = {
    "an address after a digit": "8http://evil/x 8www.evil.example/",
    "an address after a letter": "\xe9http://evil/x",
    "an address after a long s": "\u017fhttp://evil.example/a",
    "an address after the sign of the kelvin": "\u212ahttps://evil.example/a www.evil.example",
    "a mail address": "a.b@evil.example",
    "a mail address with a hyphen": "a@-evil.com",
    "a mail address with an underscore": "me@_evil.com",
    "a mail address with a dot": "me@.evil.com",
    "a link": "[all well](http://evil/)",
    "a reference": "[x]: http://evil/",
    "a picture": "![](http://evil/p.png)",
    "a bare url": "see http://evil/x",
    "a bare host": "see www.evil.com",
    "an autolink": "<http://evil/>",
    "a mention": "@alice and cc @org/team",
    "an issue": "closes #12, GH-13 and o/r#14",
    "a mail": "mailto:a@evil.com",
    "HTML": "<script>alert(1)</script><img src=x onerror=y>",
    "a comment": "<!-- x",
    "an entity": "&#64;alice &lt;b&gt;",
    "a heading": "# all well",
    "a heading below": "x\n=====",
    "a rule": "---",
    "a list": "- [x] all well",
    "a number": "1. all well",
    "a quotation": "> all well",
    "a fence": "```\nx",
    "another fence": "~~~\nx",
    "code": "`x` ``y``",
    "a table": "x | y\n|---|---|\n| a | b |",
    "emphasis": "**all** _well_ ~~not~~",
    "mathematics": "$\\href{http://evil/}{x}$",
    "a backslash at the end": "x\\",
}
EVERYTHING = {**ATTACKS, **PAGE_ATTACKS}
each_attack = pytest.mark.parametrize("text", EVERYTHING.values(), ids=EVERYTHING.keys())


def is_clean(text: str, *, ends: str = "") -> bool:
    return all(c.isprintable() or c in ends for c in text)


@each_attack
def test_a_line_stays_one_clean_line(text: str) -> None:
    assert is_clean(line(text))
    assert len(line(text)) < LONGEST_LINE + 100
    assert page([text, text]).count("\n") == 2
    assert UsageError(text).line == UsageError(text).line.strip("\n")


@given(st.text(st.characters(codec=None)))
def test_no_text_gets_out_of_its_line(text: str) -> None:
    assert not [c for c in line(text) if not c.isprintable() and not c.isspace()]
    assert len(line(text).splitlines()) <= 1


@each_attack
def test_a_cell_stays_in_its_table(text: str) -> None:
    columns = (Column(heading=text), Column(heading="x"))
    table = Table(columns=columns, rows=((text, coloured(text, "red")), ("a", "b")))
    plain = plain_text(table)
    assert is_clean(plain, ends="\n")
    assert len(plain.splitlines()) == 4
    (grid,) = drawn(table, 5000)
    shown = [str(cell) for column in grid.columns for cell in (*column._cells, column.header)]  # type: ignore[union-attr]
    assert all(map(is_clean, shown))
    if text.startswith("[red]"):
        assert text in shown  # it is no markup


TAGS = re.compile(r"<(\w+)")


@each_attack
def test_markdown_holds_text_and_nothing_else(text: str) -> None:
    for place, tags in (
        (f"- {markdown(text)}\n", {"ul", "li"}),
        (f"{markdown(text)}\n", {"p"}),
        (f"# {markdown(text)}\n", {"h1"}),
    ):
        assert set(TAGS.findall(rendered(place))) <= tags, place
    shown = markdown(text)
    assert is_clean(shown.replace("\u2060", ""))
    # GitHub looks for these in the text that came of it, not in the source.
    assert not re.search(r"(?:^|[^\w/`])@[A-Za-z0-9]|#\d|\bGH-\d", shown)
    assert not re.search(r"https?://|mailto:|www\.", shown)
    cells = (text, "b")
    table = markdown_text(Table(columns=(Column(heading="h"),) * 2, rows=(cells, ("c", "d"))))
    assert rendered(table).count("<td>") == 4
    assert not re.search("<a|<img|<script", rendered(table))


@each_attack
def test_who_may_mention_people_makes_no_link_either(text: str) -> None:
    page = rendered(f"- {markdown(text, may_mention=True)}\n")
    assert set(TAGS.findall(page)) <= {"ul", "li"}
    assert markdown("@alice", may_mention=True) == "@alice"


@each_attack
def test_xml_and_openmetrics_can_be_read_with_any_text(text: str) -> None:
    element = ElementTree.Element("case", {"name": xml(text)})
    element.text = xml(text)
    found = ElementTree.fromstring(ElementTree.tostring(element, encoding="utf-8"))
    assert is_clean(found.text or "", ends="\n\t")
    text = f'# TYPE x gauge\nx{{a="{label(text)}"}} 1\n# EOF\n'
    (family,) = openmetrics_parser.text_string_to_metric_families(text)
    assert len(family.samples) == 1
    text.encode()


@each_attack
def test_a_message_of_a_chat_holds_text_and_nothing_else(text: str) -> None:
    for medium in (slack, teams):
        shown = medium(text)
        assert is_clean(shown.replace("\u2060", "")), medium
        assert len(shown) < 2000
        assert not re.search(r"@[A-Za-z0-9]|https?:|mailto:|\bwww\.", shown)
    # Slack acts on what stands between < and >, and on characters around a word.
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", slack(text))
    assert not re.search(r"(?<!\u2060)[*~`]|[*~`](?!\u2060)", slack(text))
    assert not re.search(r"\{\{|<at>", teams(text))


@pytest.mark.parametrize(
    "text",
    ["<!channel>", "<@U024BE7LH>", "<http://evil/|all well>", "@here", ":tada:", "_x_", "*x*"],
)
def test_slack_is_shown_no_mention_link_or_formatting(text: str) -> None:
    shown = slack(text)
    plain = shown.replace("\u2060", "")
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        plain = plain.replace(entity, character)
    assert plain == text  # a reader sees the same
    assert shown != text
    assert slack("pkg.a_b.Class.one_two") == "pkg.a_b.Class.one_two"
    assert teams("{{DATE(2026-11-22)}}") == "{\u2060{\u2060DATE(2026-11-22)}}"


@each_attack
def test_a_command_stays_in_its_block_of_code(text: str) -> None:
    shown = rendered(f"{markdown_command(['perfrun', text])}\n\nafter\n")
    assert set(TAGS.findall(shown)) <= {"pre", "code", "p"}
    assert shown.count("<pre") == 1
    assert shown.endswith("<p>after</p>\n")


def incident(text: str, *, is_fixed: bool) -> Incident:
    returned = Returned(night="2026-11-22", alarm_night="2026-11-22", commits={text: (text, text)})
    change = Worsening(
        method=text, metric=text, environment=text, hardware=text, settings=text, series=text,
        ratio=1.5, low=1.1, high=2.0, level=1.0, night="2026-11-21", alarm_night="2026-11-21",
        status="candidate", is_machine=False, before_execution_id=text, after_execution_id=text,
        commits={text: (text, text), "b": ("", text)}, differences=(text,),
        returned=returned if is_fixed else None,
    )  # fmt: skip
    return Incident(
        id=1, changes=(change,), owner=text, is_fixed=is_fixed,
        culprit=None
        if is_fixed
        else Culprit(name=text, author=text, subject=text, repository=text),
        decision=Decision(what="reopened", at=1.0, day="2026-11-20", reason=text),
        bisection=Bisection(state="ended", why=text), explanation=Explanation(rows=(text,)),
    )  # fmt: skip


def night(text: str) -> NightReport:
    figure = NightFigure(metric=text, median=1.0, unit=text, direction="lower", trials=1)
    failure = Failure(status="failed", reason=text, summary=text)
    method = MethodReport(
        environment=text, unit=text, method=f"a.B.{text}", owner=None, canary=False, state="failed",
        why=text, asked=1, trials=1, disturbed=0, figures=(figure,), failures=(failure,),
    )  # fmt: skip
    change = ChangeReport(
        method=text, metric=text, environment=text, owner=None, before_execution_id=text,
        after_execution_id=text, ratio=1.5, direction="worse", status="candidate",
        night="2026-11-21", alarm_night="2026-11-21", is_new=True, machine_suspect=False,
        commits_before={text: "a" * 40}, commits_after={text: text},
        environment_differences=(text,), derived=({"metric": text, "ratio": 1.0},),
    )  # fmt: skip
    return NightReport(
        night="n-2026-11-21", suite="n", owner=None, begun=1e9, ended=2e9, deadline=None,
        commits={text: text}, methods=(method,), errors=(text,), notes=(text,), changes=(change,),
        incidents=(
            IncidentReport(news="new", more=1, incident=incident(text, is_fixed=False)),
            IncidentReport(news="fixed", more=0, incident=incident(text, is_fixed=True)),
        ),
    )  # fmt: skip


@each_attack
def test_the_reports_of_a_night_are_written_and_well_formed(text: str, tmp_path: Path) -> None:
    report = night(text)
    outputs = Outputs(markdown=tmp_path / "other.md")
    assert write_reports(report, tmp_path, outputs) == ()  # a surrogate ended the night here
    found = rendered((tmp_path / "report.md").read_text())
    assert set(TAGS.findall(found)) <= {
        *("h1", "h2", "p", "ul", "li", "code"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    assert (found.count("<h1>"), found.count("<h2>")) == (1, 4)
    assert found.count("<td") == 9
    assert is_clean(markdown_of(report).replace("\u2060", ""), ends="\n")
    suites = ElementTree.fromstring(junit(report).encode())
    assert len(list(suites.iter("testcase"))) == 3
    families = list(openmetrics_parser.text_string_to_metric_families(openmetrics(report)))
    assert len(families) == 8
    assert json.loads((tmp_path / "report.json").read_text())["ok"] is False


@each_attack
def test_incidents_are_printed_in_their_lines(text: str) -> None:
    both = [incident(text, is_fixed=is_fixed) for is_fixed in (False, True)]
    for shown, lines in (
        (text_of(both, [text], 1), 17),
        (one_text(both[1]), 10),
        (markdown_list(both, 0).replace("\u2060", ""), 2),
    ):
        assert is_clean(shown, ends="\n")
        assert shown.count("\n") == lines


@each_attack
def test_changes_and_searches_are_printed_in_their_lines(text: str) -> None:
    row = ChangeRow(
        method=text, metric=text, environment=text, hardware=text, before_execution_id=text,
        after_execution_id=text, night="2026-11-21", alarm_night="2026-11-21", ratio=1.5, low=1.1,
        high=2.0, p_value=0.01, direction="worse", machine_suspect=False, detectors=("pelt",),
        commits_before={text: "a"}, commits_after={text: text}, environment_differences=(text,),
    )  # fmt: skip
    shown = changes_page(1, {}, [row])
    assert is_clean(shown, ends="\n")
    assert shown.count("\n") == 5
    revision: dict[str, Any] = {"name": text, "subject": text, "author": text, "date": text}
    revision |= {"repository": text, "pull_request": text, "branch": text, "is_merge": True}
    revision["commits"] = {text: text, "b": text}
    judged = {"ratio": 1.5, "low": 1.1, "high": 2.0, "pairs": 9}
    answer = {
        "status": "found", "culprit": revision, "previous": revision, "direction": "worse",
        "metric": text, **judged, "good_against_bad": judged, "revisions": 3, "tested": [],
        "skipped": [
            {"name": text, "repository": text, "reason": text, "trials": 1, "spent_s": 1.0}
        ],
        "pairs_run": 9, "trials_run": 18, "spent_s": 9.0, "seed": 1,
        "environment_differences": [{"text": text}], "folder": "f",
    }  # fmt: skip
    lines = bisect_report({**answer, "inside": answer})
    assert page(lines).count("\n") == len(lines)


SEQUENCES = (
    f"a{ESC}[1;31mred{ESC}[0m{ESC}]0;owned\x07b{ESC}[2J{ESC}[5Ac{ESC}[2Kd{ESC}P1{ESC}\\e\bf\n"
)
CLEAN = f"a{ESC}[1;31mred{ESC}[0mbc{ESC}[2Kde\\x08f\n"


def test_a_terminal_gets_colours_and_nothing_that_moves_its_cursor() -> None:
    assert LiveText(on_terminal=True).shown(SEQUENCES) == CLEAN
    assert LiveText(on_terminal=False).shown(SEQUENCES) == SEQUENCES  # a file gets it as it is
    for at in range(len(SEQUENCES)):  # wherever it is cut in two
        live = LiveText(on_terminal=True)
        assert live.shown(SEQUENCES[:at]) + live.shown(SEQUENCES[at:]) == CLEAN
    live = LiveText(on_terminal=True)
    assert "".join(map(live.shown, SEQUENCES)) == CLEAN


@given(st.lists(st.text(st.sampled_from(f"{ESC}[]PX;m08JK\x07\\\x9b\x9c a\n\r\u202e")), max_size=8))
def test_no_sequence_gets_through_however_it_is_cut(pieces: list[str]) -> None:
    live = LiveText(on_terminal=True)
    shown = "".join(map(live.shown, pieces))
    left = re.sub(r"\x1b\[(?:[0-2]?K|[0-9;:]*m)", "", shown)
    assert is_clean(left, ends="\n\r\t")
    assert not re.search(r"\x1b\[(?:[0-9:;]*;)?0*8[;m]", shown)


FORGED = [
    "perfrun: all trials passed\n",
    "PERFRUN: all trials passed\n",
    "  perfrun: x\n",
    "\rperfrun: x\n",
    f"{ESC}[31mperfrun: x\n",
    "\u200bperfrun: x\n",
    "perfrun nightly: x\n",
    "x\nperfrun: x\n",
    "m.Class.method, trial 1: passed, 0.1 s, w/output/x\n",
    "[1/1] m.Class.method, trial 1: passed, 0.1 s\n",
    "[3/12] b/a 0.5 (0.4..0.6); m.Class.method\n",
]


@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "file"])
@pytest.mark.parametrize("text", FORGED)
def test_a_benchmarks_line_that_looks_like_one_of_perfruns_is_marked(
    text: str, on_terminal: bool
) -> None:
    ours = re.compile(r"(?im)^\s*(perfrun[ :]|(\[1/1\] )?m\.Class\.method, trial 1|\[3/12\] b/a )")
    for at in range(len(text)):
        live = LiveText(on_terminal=on_terminal)
        shown = live.shown(text[:at]) + live.shown(text[at:])
        bare = re.sub("\x1b\\[\\d*m|\u200b", "", shown).replace("\r", "\n")
        assert not ours.search(bare)
        if "\u200b" not in text:  # a terminal gets it written out
            assert shown.replace("| ", "", 1) == text


@pytest.mark.parametrize("text", ["1;3!m", "0 m", "2$K", "!K", ">4;2m", "?1K", "3K", "1;8m"])
def test_only_the_very_sequences_of_colours_and_of_erasing_a_line_pass(text: str) -> None:
    live = LiveText(on_terminal=True)
    assert live.shown(f"a{ESC}[{text}b\n") == "ab\n"
    assert live.is_closed


def test_what_other_programs_print_is_not_marked() -> None:
    text = "epoch 1: 5 s\n[1/10] loading\nnote: perfrun is fast\ntrial 3, loss 0.1\n| perfrun\n\n"
    for on_terminal in (True, False):
        live = LiveText(on_terminal=on_terminal)
        assert "".join(map(live.shown, text)) == text
        assert LiveText(on_terminal=on_terminal).shown(text) == text


_FORGER = '''
import sys
class ForgerBenchmark:
    def __init__(self, *_, **__): pass
    def report_benchmark(self): pass
    def benchmark_run(self):
        """Do\\x1b[2J it, perfrun: x."""
        sys.stdout.write("perfrun: all trials passed\\n\\x1b[2J\\x1b[8mhidden")
        sys.stdout.flush()
        sys.stderr.write("perfrun: all trials passed\\n")
        class Odd(Exception): pass
        Odd.__name__ = "Odd\\nperfrun: all trials passed"
        raise Odd("x\\x1b[2J\\nperfrun: all trials passed\\r\\u202e\\ud800")
'''


def on_terminal(words: list[str], folder: Path) -> str:
    """What a terminal gets of a command."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-m", "perfrun", *words],
        stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment, cwd=folder,
    )  # fmt: skip
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    os.close(ours)
    return b"".join(parts).decode()


def test_a_benchmark_can_forge_no_line_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "forging.py").write_text(_FORGER)
    words = [
        "--workspace=w",
        f"--python_path={tmp_path}",
        "--benchmark_methods=forging.ForgerBenchmark.benchmark_run",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "perfrun", *words], capture_output=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    for text in (done.stdout.decode(), done.stderr.decode()):
        assert "| perfrun: all trials passed" in text
        assert not re.search(r"(?m)^\s*perfrun: all", text)
    lines = done.stdout.decode().splitlines()
    own = [
        one
        for one in lines
        if one.startswith("[1/1] forging.ForgerBenchmark.benchmark_run, trial 1: failed")
    ]
    assert len(own) == 1  # it stands on a line of its own, although the benchmark ended none
    assert is_clean(own[0])
    shown = on_terminal(words, tmp_path)
    assert not re.search("\x1b\\[(?:2J|8m)|\u202e", shown)
    assert not re.search(r"(?m)^\s*perfrun: all", shown)
    listed = subprocess.run(
        [sys.executable, "-m", "perfrun", "list", "forging", f"--python_path={tmp_path}"],
        capture_output=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert is_clean(listed.stdout.decode(), ends="\n"), listed
    assert b"forging.ForgerBenchmark.benchmark_run" in listed.stdout


def test_commands_over_hostile_summaries_print_clean_lines(tmp_path: Path) -> None:
    hostile = f"x{ESC}[2J\nperfrun: all trials passed\r\u202e\x85"
    for number in range(4):
        document = summary(
            name=f"2026-11-2{number}-10-00-00-000000", timestamp=1795255200.0 + number * 86400,
            metrics={hostile: 1.0}, label=hostile, commits={hostile: hostile},
            system={"cpu_model": hostile, "hostname": hostile}, benchmark_flags=[hostile],
            distributions={hostile: f"{number}{hostile}"}, method=f"pkg.cases.Cases.{hostile}",
        )  # fmt: skip
        write(tmp_path / "w", document)
    for words in (
        ["index"], ["history", "*"], ["history", "*", "--metric=none"], ["detect"],
        ["compare", "id:2026-11-20-10-00-00-000000", "id:2026-11-21-10-00-00-000000"],
        ["compare", "2026-11-20", "2026-11-21", "--format=markdown", "--methods=Cases"],
        ["show", next(str(folder) for folder in (tmp_path / "w").iterdir())],
        ["export", "--csv=-", str(tmp_path / "w")], ["baseline", "set", "b", str(tmp_path / "w")],
        ["compare", "nothing\n\x1b[2J", "x"], ["prune", "--keep_nights=1", "--dry_run"],
        ["report", "--output=-", f"--title={hostile}"],
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "perfrun", *words, f"--workspace={tmp_path / 'w'}"],
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1, 2), done.stderr
        for text in (done.stdout.decode(), done.stderr.decode()):
            assert is_clean(text, ends="\n"), words
            assert not re.search(r"(?m)^\s*perfrun: all", text), words


def test_the_standard_streams_are_clean_whatever_a_command_writes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"{ESC}[2J\u202ex\r token=Zq7S3CR3T\n"
    with named_failures():
        sys.stdout.write(text)
        sys.stderr.write(text)
    found = capsys.readouterr()
    for one in (found.out, found.err):
        assert is_clean(one, ends="\n")
        assert "Zq7" not in one
        assert one.count("\n") == 1


# They write what this test cannot know to be clean; each says why it is.
WRITERS = {
    "shown": "it is the writer",
    "reports.output": "it is the stream",
    "benchmark": "cleans its line itself, and works when nothing else does",
    "compare.command": "Markdown, which `markdown` cleans",
    "explain.command": "Markdown, which `markdown` cleans",
    "incidents.command": "pages of clean lines, and Markdown, which `markdown` cleans",
    "nightly.command": "Markdown, which `markdown` cleans",
    "versus.command": "Markdown, which `markdown` cleans",
    "changes.detect": "`changes_page` is a page of clean lines",
    "changes.history": "`_series_text` is a page of clean lines",
    "exchange.command": "JSON for other tools",
    "options.completion": "a script that shtab makes of our own flags",
}


def test_nobody_writes_to_the_standard_streams_past_the_writer() -> None:
    found: dict[str, Any] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if name.startswith(("worker.", "image.", "adapters.")):
            continue  # they run in the environment under test, and where nothing is installed
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("print", "sys.stdout.write", "sys.stderr.write"):
                    found.setdefault(name, []).append(node.lineno)
    assert {name: places for name, places in found.items() if name not in WRITERS} == {}

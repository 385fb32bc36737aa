"""A night as a message of a chat: the payloads of Slack's, Teams' and Discord's webhooks.

Each has limits, and refuses a message beyond one. What does not fit is left out, and a line says
how much that is.

https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors
https://discord.com/developers/docs/resources/webhook#execute-webhook
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perfrun.nightly.night_words import (
    Medium,
    figure_text,
    findings,
    other_changes,
    period,
    verdict,
)
from perfrun.nightly.report import MethodReport, NightReport, report_document
from perfrun.nightly.trends import last_night_text
from perfrun.reports.sparkline import sparkline
from perfrun.shown import cell, line, markdown, slack, teams
from perfrun.text import redacted

FORMATS = ("json", "slack", "teams", "discord")
_LINE = 1000  # characters
_TITLE = 150  # characters of a header of Slack; Discord takes 256
_SECTION = 3000  # characters of a section of Slack
_SECTIONS = 40  # Slack takes 50 blocks
_ALL_SECTIONS = 9000  # characters; Slack refuses a little more than this, and does not say how much
_CARD_BYTES = 27 * 1024  # Teams takes 28 KiB, with what it adds itself
_DESCRIPTION = 4096  # characters of an embed of Discord
_EMBED = 5900  # characters of all of its texts; Discord takes 6000
_GREEN, _RED = 0x2EB67D, 0xE01E5A


@dataclass(frozen=True, kw_only=True)
class _Part:
    heading: str
    lines: tuple[str, ...]


def message(report: NightReport, form: str) -> dict[str, Any]:
    """Return the document that a webhook of this format takes."""
    if form == "slack":
        return _slack(report)
    if form == "teams":
        return _teams(report)
    if form == "discord":
        return _discord(report)
    document: dict[str, Any] = redacted(report_document(report))
    return document


def _parts(report: NightReport, clean: Callable[[str], str]) -> list[_Part]:
    """Return the parts of a message, the most important one first."""
    medium = Medium(clean=clean, owner=clean, commits=clean)
    parts = (
        _Part(heading="To be looked at", lines=tuple(findings(report, medium))),
        _Part(
            heading="Other changes of the last nights", lines=tuple(other_changes(report, medium))
        ),
        _Part(
            heading="Against last night",
            lines=tuple(_method_text(method, clean) for method in report.methods),
        ),
        _Part(heading="Notes", lines=tuple(map(clean, report.notes))),
    )
    return [replace(part, lines=tuple(map(_short, part.lines))) for part in parts if part.lines]


def _short(text: str) -> str:
    """Return a line of at most so many characters; one that is cut says so."""
    if len(text) <= _LINE:
        return text
    # An entity or an escape that was cut in two would show, or act.
    whole = re.sub(r"&[a-z]{0,3}\Z", "", text[:_LINE]).rstrip("\\")
    return f"{whole} ... (cut)"


def _method_text(method: MethodReport, clean: Callable[[str], str]) -> str:
    """Return one line: the figure that stands for the method, and how it has moved."""
    where = f"{clean(method.name)} in {clean(method.environment)}"
    main = method.main_figure
    if main is None:
        return f"{where}: {method.state.replace('_', ' ')}"
    words = [clean(figure_text(main))]
    if main.trend is not None:
        words += [last_night_text(main.trend), sparkline(main.trend.history)]
    return f"{where}: {', '.join(words[:2])} {' '.join(words[2:])}".rstrip()


def _title(report: NightReport) -> str:
    return line(f"{report.suite}: {verdict(report)}")[:_TITLE]


def _fitting(
    parts: Sequence[_Part], fits: Callable[[Sequence[_Part]], bool], left_out: Callable[[int], str]
) -> list[_Part]:
    """Return as many lines as fit, from the first on, and one line that says how many do not."""
    total = sum(len(part.lines) for part in parts)

    def first(count: int) -> list[_Part]:
        chosen, left = [], count
        for part in parts:
            if left > 0:
                chosen.append(_Part(heading=part.heading, lines=part.lines[:left]))
            left -= len(part.lines)
        if count < total:
            chosen.append(_Part(heading="", lines=(left_out(total - count),)))
        return chosen

    low, high = 0, total  # `low` lines fit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(first(middle)) else (low, middle - 1)
    return first(low)


def _left_out(report: NightReport, clean: Callable[[str], str], count: int) -> str:
    lines = f"{count} more line{'s are' if count > 1 else ' is'} left out"
    return f"{lines}: see the report of {clean(report.night)}."


def _slack(report: NightReport) -> dict[str, Any]:
    parts = _parts(report, slack)

    def fits(chosen: Sequence[_Part]) -> bool:
        texts = _sections(chosen)
        return len(texts) <= _SECTIONS and sum(map(len, texts)) <= _ALL_SECTIONS

    chosen = _fitting(parts, fits, partial(_left_out, report, slack))
    title = _title(report)
    # `verbatim`: Slack makes no links and mentions of what looks like one.
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title, "emoji": False}},
        {
            "type": "context",
            "elements": [{"type": "mrkdwn", "text": slack(_head(report)), "verbatim": True}],
        },
    ]
    blocks += [
        {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
        for text in _sections(chosen)
    ]
    return {"text": slack(title), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _sections(parts: Sequence[_Part]) -> list[str]:
    """Return texts of at most the length of a section; a line is never divided."""
    texts: list[str] = []
    for part in parts:
        rows = [f"*{part.heading}*"] if part.heading else []
        rows += [f"\u2022 {one}" for one in part.lines] if part.heading else part.lines
        own = ""
        for row in rows:
            if own and len(own) + 1 + len(row) > _SECTION:
                texts.append(own)
                own = ""
            own = f"{own}\n{row}" if own else row
        texts.append(own)
    return texts


def _head(report: NightReport) -> str:
    commits = [f"{name} at {commit[:12]}" for name, commit in report.commits.items()]
    return cell("; ".join([f"{report.night}, {period(report)}", *commits]))


def _teams(report: NightReport) -> dict[str, Any]:
    def made(chosen: Sequence[_Part]) -> dict[str, Any]:
        colour = "Good" if report.is_ok else "Attention"
        body = [_run(_title(report), size="Large", weight="Bolder", color=colour)]
        body.append(_run(_head(report), isSubtle=True))
        for part in chosen:
            if part.heading:
                body.append(_run(part.heading, weight="Bolder"))
            body += [_run(one) for one in part.lines]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "msteams": {"width": "Full"},
            "body": body,
        }
        kind = "application/vnd.microsoft.card.adaptive"
        attachment = {"contentType": kind, "contentUrl": None, "content": card}
        return {"type": "message", "attachments": [attachment]}

    def fits(chosen: Sequence[_Part]) -> bool:
        return len(json.dumps(made(chosen))) <= _CARD_BYTES

    # Runs of text know no Markdown, so nothing has to be escaped in them.
    parts = _parts(report, teams)
    return made(_fitting(parts, fits, partial(_left_out, report, teams)))


def _run(text: str, **style: Any) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _discord(report: NightReport) -> dict[str, Any]:
    clean = _discord_text
    title, foot = clean(_title(report)), _head(report)
    room = min(_DESCRIPTION, _EMBED - _units(title) - _units(foot))

    def fits(chosen: Sequence[_Part]) -> bool:
        return _units(_description(chosen)) <= room

    chosen = _fitting(_parts(report, clean), fits, partial(_left_out, report, clean))
    embed: Mapping[str, Any] = {
        "title": title,
        "description": _description(chosen) or "No method was run.",
        "color": _GREEN if report.is_ok else _RED,
        "footer": {"text": foot},
    }
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def _discord_text(text: str) -> str:
    return markdown(cell(text))


def _description(parts: Sequence[_Part]) -> str:
    rows: list[str] = []
    for part in parts:
        rows += [f"**{part.heading}**"] if part.heading else []
        rows += [f"- {one}" for one in part.lines] if part.heading else part.lines
    return "\n".join(rows)


def _units(text: str) -> int:
    """Return the length as Discord counts it: in units of UTF-16."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2

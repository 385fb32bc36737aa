"""Deliver the report of a night to a webhook, which may be slow, gone, or not meant well."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from perfrun.nightly.chat import FORMATS, message
from perfrun.nightly.report import NightReport
from perfrun.shown import line
from perfrun.text import without_path

PAUSES_S = (1.0, 4.0)  # before the second and third try
TIMEOUT_S = 10.0  # for one try, whatever the server sends meanwhile
_MOST_SAID = 2000  # bytes of an answer that are read
_SHOWN = 100  # characters of it in a message
# How Teams says in an answer of 200 that nothing was delivered.
_TEAMS_FAILURE = "Webhook message delivery failed"


def post(
    url: str,
    report: NightReport,
    sleep: Callable[[float], None] = time.sleep,
    *,
    form: str = FORMATS[0],
) -> str | None:
    """POST the report, by default as JSON; return None when it arrived, else the reason.

    It has arrived when the answer is one of 200 to 299. Failures that may pass are tried again: no
    answer, 429, and errors of the server. No redirect is followed, since a report goes to nobody
    whom the suite does not name. Of the answer of a chat the begin is read, which says what is
    wrong; of any other nothing beyond its headers.
    """
    from perfrun.workspace.http_client import Client, NoAnswer, TooSlow  # only with a webhook

    body = message(report, form)
    most = 0 if form == "json" else _MOST_SAID
    why = None
    for pause_s in (0.0, *PAUSES_S):
        sleep(pause_s)
        try:
            with Client() as client:
                status, location, said = client.post(url, body, within_s=TIMEOUT_S, most=most)
        except TooSlow as error:
            why = str(error)
            continue
        except NoAnswer as error:
            # Not its text, which can contain the whole url, secrets included.
            why = type(error.__context__ or error).__name__
            continue
        answer = said.decode("utf-8", "replace").strip()
        if 200 <= status < 300:
            if _has_taken(form, answer):
                return None
            why = _reason(status, answer)
            break
        why = _reason(status, answer) + (f", a redirect to {_host(location)}" if location else "")
        if status < 500 and status != 429:
            break
    return f"the webhook {without_path(url)} did not take the report: {why}"


def _has_taken(form: str, answer: str) -> bool:
    """Return True unless the answer says that the message was not delivered, despite its status.

    Slack answers `ok`; a page of a proxy does not. An answer that did not come in time is empty.
    """
    if form == "slack":
        return answer in ("ok", "")
    return not (form == "teams" and answer.startswith(_TEAMS_FAILURE))


def _reason(status: int, answer: str) -> str:
    """Return `HTTP 404: no_service`: the status, and what the server said in a word or a line."""
    try:
        document = json.loads(answer)
        said = document.get("message") if isinstance(document, dict) else None
        error = document.get("error") if isinstance(document, dict) else None
        if said is None and isinstance(error, dict):
            said = error.get("message")
        text = said if isinstance(said, str) else ""
    except (ValueError, RecursionError):
        text = "" if answer.startswith("<") else answer  # a page of a proxy says nothing
    shown = line(" ".join(text.split()))[:_SHOWN]
    return f"HTTP {status}: {shown}" if shown else f"HTTP {status}"


def _host(location: str) -> str:
    """Return the host of a redirect, which may be the same; its path can be a secret."""
    try:
        return ascii((urlsplit(location).hostname or "another path")[:100])
    except ValueError:
        return "no url"

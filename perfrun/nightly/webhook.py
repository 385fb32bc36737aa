"""Deliver the report of a night to a webhook, which may be slow, gone, or not meant well."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from perfrun.nightly.report import NightReport, report_document
from perfrun.text import redacted, without_path

PAUSES_S = (1.0, 4.0)  # before the second and third try
TIMEOUT_S = 10.0  # for one try, whatever the server sends meanwhile


def post(url: str, report: NightReport, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """POST the report as JSON; return None when it arrived, else the reason.

    It has arrived when the answer is one of 200 to 299. Failures that may pass are tried again: no
    answer, 429, and errors of the server. No redirect is followed, since a report goes to nobody
    whom the suite does not name, and no answer is read beyond its headers.
    """
    from perfrun.workspace.http_client import Client, NoAnswer, TooSlow  # only with a webhook

    body = redacted(report_document(report))
    why = None
    for pause_s in (0.0, *PAUSES_S):
        sleep(pause_s)
        try:
            with Client() as client:
                status, location = client.post(url, body, within_s=TIMEOUT_S)
        except TooSlow as error:
            why = str(error)
            continue
        except NoAnswer as error:
            # Not its text, which can contain the whole url, secrets included.
            why = type(error.__context__ or error).__name__
            continue
        if 200 <= status < 300:
            return None
        why = f"HTTP {status}" + (f", a redirect to {_host(location)}" if location else "")
        if status < 500 and status != 429:
            break
    return f"the webhook {without_path(url)} did not take the report: {why}"


def _host(location: str) -> str:
    """Return the host of a redirect, which may be the same; its path can be a secret."""
    try:
        return ascii((urlsplit(location).hostname or "another path")[:100])
    except ValueError:
        return "no url"

"""Hand a night's reports over: files in its folder and where the suite says, and a webhook."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfrun.nightly.junit import junit
from perfrun.nightly.markdown import markdown
from perfrun.nightly.openmetrics import openmetrics
from perfrun.nightly.report import NightReport, document
from perfrun.nightly.state import REPORT
from perfrun.nightly.suite import Outputs
from perfrun.redaction import redact
from perfrun.storage import write_whole

PAUSES_S = (1.0, 4.0)  # before the second and third try of a webhook
TIMEOUT_S = 10.0


def write_reports(report: NightReport, folder: Path, outputs: Outputs) -> tuple[str, ...]:
    """Write the reports; say of each file that could not be written why."""
    texts = {
        "markdown": ("report.md", markdown(report)),
        "junit": ("junit.xml", junit(report)),
        "openmetrics": ("metrics.prom", openmetrics(report)),
        "json": (REPORT, json.dumps(document(report), indent=1) + "\n"),
    }
    notes = []
    for kind, (name, text) in texts.items():
        for path in (folder / name, getattr(outputs, kind)):
            try:
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(path, text)
            except OSError as error:
                notes.append(f"{path} could not be written: {error.strerror or error}")
    return tuple(notes)


def post(url: str, report: NightReport, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """POST the report as JSON; None when it arrived, else why not.

    Tried again after failures that may pass: no answer, 429, and the server's own errors.
    """
    import requests  # only for who has a webhook

    body = document(report)
    why = None
    for pause_s in (0.0, *PAUSES_S):
        sleep(pause_s)
        try:
            answer = requests.post(url, json=body, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            why = _reason(error)
            continue
        if answer.ok:
            return None
        why = f"HTTP {answer.status_code}"
        if answer.status_code < 500 and answer.status_code != 429:
            break
    return f"the webhook {redact(url)} did not take the report: {why}"


def _reason(error: Any) -> str:
    """The kind of failure: the text of the library holds the whole url, secrets included."""
    return type(error).__name__

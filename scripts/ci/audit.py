"""Look up what perfrun needs in a database of known vulnerabilities: `audit.py LOCK`.

Two lists are looked up: the lock, which is what an installation by it gets, and what is installed
beside this interpreter. A known vulnerability ends with status 1, and names it. A database that
does not answer, as behind a firewall, is one line and status 0: it says nothing about perfrun.
pip-audit does the work, by the interface of OSV (osv.dev); PERFRUN_OSV_URL names another server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

URL = os.environ.get("PERFRUN_OSV_URL") or "https://api.osv.dev/v1/query"
ANSWER_LIMIT_S = 10.0  # for the database to answer a first question
AUDIT_LIMIT_S = 300.0  # for the look-up of a whole list
MOST_BYTES = 1 << 20
OPTIONS = ("--vulnerability-service=osv", "--format=json", "--progress-spinner=off", "--desc=off")


class AuditError(Exception):
    """The list could not be looked up, and not for want of a database."""


def why_unreachable(url: str = URL) -> str | None:
    """Return why the database does not answer; None when it does.

    It is asked as pip-audit asks: a page of a proxy is no answer.
    """
    question = {"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "99999"}
    request = urllib.request.Request(  # noqa: S310 - the url is the caller's
        url, json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310
            found = json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        return f"HTTP status {error.code}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return str(reason).strip() or type(error).__name__
    return None if isinstance(found, dict) else "its answer is no object"


def audit(*which: str, url: str = URL, limit_s: float = AUDIT_LIMIT_S) -> list[str]:
    """Return one line for each known vulnerability in a list. Raises AuditError, TimeoutError."""
    argv = (sys.executable, "-m", "pip_audit", *OPTIONS, f"--osv-url={url}", *which)
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no end after {limit_s:g} s") from None
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"]
        raise AuditError(said[-1]) from None
    return [line for package in found for line in _lines(package)]


def _lines(package: Mapping[str, Any]) -> list[str]:
    version = package.get("version", "?")
    return [
        f"{package['name']} {version}: {one['id']}, mended in "
        f"{', '.join(one.get('fix_versions') or ()) or 'no version yet'}"
        for one in package.get("vulns", ())
    ]


def main() -> int:
    """Print what was found; return the exit status."""
    lock = Path(sys.argv[1])
    unreachable = why_unreachable()
    if unreachable is not None:
        sys.stdout.write(f"audit: nothing was looked up: {URL} cannot be reached: {unreachable}\n")
        return 0
    lists = {
        lock.name: (f"--requirement={lock}", "--disable-pip", "--require-hashes"),
        "what is installed": ("--local", "--skip-editable"),
    }
    status = 0
    for name, options in lists.items():
        try:
            found = audit(*options)
        except TimeoutError as error:
            sys.stdout.write(f"audit: {name} was not looked up: {URL}: {error}\n")
            continue
        except AuditError as error:
            gone = why_unreachable()
            sys.stdout.write(f"audit: {name} was not looked up: {gone or error}\n")
            status = status if gone else 2
            continue
        for line in found:
            sys.stdout.write(f"audit: {name}: {line}\n")
        status = 1 if found else status
        if not found:
            sys.stdout.write(f"audit: {name}: no known vulnerability\n")
    return status


if __name__ == "__main__":
    sys.exit(main())

"""scripts/ci/audit.py: what fails a build, and what only says that nothing could be looked up."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHECKOUT = Path(__file__).resolve().parents[3]
SOURCE = CHECKOUT / "scripts" / "ci" / "audit.py"
LOCK = CHECKOUT / "requirements.lock"
BAD = "old-thing==1.0"
VULNERABILITY = {
    "id": "GHSA-xxxx-yyyy-zzzz",
    "aliases": ["CVE-2020-0001"],
    "summary": "It can be broken into.",
    "affected": [
        {
            "package": {"name": "old-thing", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


class Osv(BaseHTTPRequestHandler):
    """Answers as OSV does, of one vulnerability."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked_for.append(asked["package"]["name"])
        is_bad = (asked["package"]["name"], asked["version"]) == ("old-thing", "1.0")
        body = json.dumps({"vulns": [VULNERABILITY]} if is_bad else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


asked_for: list[str] = []


@pytest.fixture
def osv() -> Iterator[str]:
    asked_for.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        server.shutdown()


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SOURCE.parent))
    import audit  # type: ignore[import-not-found]

    assert isinstance(audit, ModuleType)
    return audit


def run(url: str, lock: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SOURCE), str(lock)],
        env={"PERFRUN_OSV_URL": url, "HOME": str(lock.parent)},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_known_vulnerability_in_the_lock_fails_and_is_named(osv: str, tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"{BAD} \\\n    --hash=sha256:{'0' * 64}\n", encoding="ascii")

    done = run(osv, lock)

    lines = done.stdout.splitlines()
    assert lines == [
        "audit: requirements.lock: old-thing 1.0: CVE-2020-0001, mended in 1.1",
        "audit: what is installed: no known vulnerability",
    ], done.stderr
    assert done.returncode == 1
    assert {"old-thing", "pytest", "requests"} <= set(asked_for)


def test_a_database_that_cannot_be_reached_is_one_line_and_no_failure(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/query"
        done = run(url, tmp_path / "requirements.lock")

    assert done.returncode == 0
    assert done.stdout.startswith(f"audit: nothing was looked up: {url} cannot be reached: ")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_a_database_that_does_not_answer_is_left_after_a_while(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(audit, "ANSWER_LIMIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert "timed out" in audit.why_unreachable(url)
        lock = tmp_path / "lock"
        lock.write_text(f"{BAD} --hash=sha256:{'0' * 64}\n")
        with pytest.raises(TimeoutError, match="no end after"):
            audit.audit(f"--requirement={lock}", "--disable-pip", url=url, limit_s=0.05)


@pytest.mark.slow
def test_what_cannot_be_audited_is_no_clean_result(
    audit: ModuleType, osv: str, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    lock.write_text("old-thing\n")
    with pytest.raises(audit.AuditError):
        audit.audit(f"--requirement={lock}", "--disable-pip", "--require-hashes", url=osv)


def test_the_lock_has_what_the_project_asks_for() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    asked = [*project["dependencies"], *(one for extra in extras for one in extra)]
    text = LOCK.read_text("utf-8")
    pins = [Requirement(line.rstrip(" \\")) for line in re.findall(r"(?m)^[a-zA-Z0-9].*$", text)]
    for requirement in map(Requirement, asked):
        found = [pin for pin in pins if canonicalize_name(pin.name) == requirement.name.lower()]
        assert found, f"{requirement}: not in the lock; run `make lock`"
        for pin in found:
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert requirement.specifier.contains(exact.version), f"{pin}; run `make lock`"
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) >= len(pins)
    assert "://" not in text

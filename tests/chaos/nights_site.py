"""Where simulated nights happen: a repository, a suite, its workspace and the webhook's server."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import select
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nights_plan import CANARY, IN_IMAGE, METHODS, TRIALS, Attempt, NightPlan
from nights_world import Facts, Script, Shared, enter

from perfrun.locks import FileLock

PATIENCE_S = 120.0  # for one night; what takes longer hangs
KEPT_NIGHTS = 40
PRELOADED = (
    *("perfrun.nightly.command", "perfrun.benchmark", "perfrun.changes.confirm", "numpy"),
    *("perfrun.nightly.prune", "perfrun.nightly.suite_changes", "perfrun.nightly.openmetrics"),
    *("perfrun.store.index", "perfrun.store.recorder", "perfrun.run.rounds", "perfrun.run.trial"),
    *("perfrun.probes.machine", "perfrun.workspace.checkouts", "perfrun.workspace.worktree"),
    *("perfrun.analysis.detection", "perfrun.workspace.http_client", "perfrun.run.internal_error"),
    *("perfrun.worker.test_log", "perfrun.worker.measure.measurement", "sqlite3", "psutil"),
    *("sqlalchemy.dialects.sqlite", "scipy.stats", "ruptures.detection"),
)
SUITE = """# {digest}
name = "sim"
deadline = "6h"
trials = {trials}
timeout = 900
python_path = ["repo"]
webhook = "http://127.0.0.1:{port}/hook/secret"

[[repos]]
url = "{url}"
branch = "main"

[[environments]]
name = "host"
python = "{python}"

[[environments]]
name = "image"
image = "perfrun/sim"

{methods}
[confirm]
max_pairs = 12

[retention]
keep_nights = {kept}
unfinished_older_than = "10d"

[output]
junit = "out/junit.xml"
openmetrics = "out/metrics.prom"
json = "out/report.json"
"""
METHOD = """[[methods]]
name = "bench.cases.Cases.{name}"
{more}
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a call of `perfrun nightly` ended."""

    code: int  # minus the signal that ended it
    out: str
    err: str
    begun: float  # of the simulated clock
    now: float
    events: int
    disk_calls: int
    disk_hits: int
    trials: tuple[dict[str, str], ...]  # the engine's log
    delivered: tuple[str, ...]  # nights that the webhook's server has taken
    hung: bool = False

    @property
    def killed(self) -> bool:
        """True when it was killed, as the plan had it."""
        return self.code == -signal.SIGKILL and not self.hung


class Hook(http.server.ThreadingHTTPServer):
    """The webhook's server: answers as it is told, and remembers what it took."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[str] = []
        self.taken: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client may be killed."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = self.server.answers.pop(0) if self.server.answers else "200"
        if answer == "reset":
            self.connection.close()
            return
        if answer in ("cut", "garbage"):
            self.wfile.write(b"HTTP/1.1 2" if answer == "cut" else b"\xff\x00 nothing\r\n\r\n")
            self.close_connection = True
            return
        if answer.startswith("2"):
            self.server.taken.append(json.loads(body)["night"])
        self.send_response(int(answer))
        if answer == "302":
            self.send_header("location", "http://127.0.0.1:9/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Site:
    """A folder with a repository of benchmarks, a suite and its workspace, and the webhook."""

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.folder, self.facts = folder, facts
        self.hook = Hook()
        self.workspace = folder / "workspace"
        self._repository = folder / "repo"
        self._mono = 1000.0
        self._shared = Shared()
        self._make_repository()
        self.write_suite("first")

    def write_suite(self, digest: str) -> None:
        names = [*METHODS, CANARY]
        methods = []
        for name in names:
            more = [] if name in IN_IMAGE else ['environments = ["host"]']
            more += ["canary = true"] if name == CANARY else []
            methods.append(METHOD.format(name=name, more="\n".join(more)))
        text = SUITE.format(
            digest=digest,
            trials=TRIALS,
            port=self.hook.server_port,
            url=self._repository.as_uri(),
            python=sys.executable,
            methods="\n".join(methods),
            kept=KEPT_NIGHTS,
        )
        (self.folder / "suite.toml").write_text(text, encoding="utf-8")

    def _make_repository(self) -> None:
        package = self._repository / "bench"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "cases.py").write_text("# measured by the simulated engine\n", encoding="utf-8")
        self._git("init", "-q", "-b", "main")
        self._git("add", "-A")

    def _git(self, *words: str, at: float = 1.7e9) -> None:
        who = {
            f"GIT_{role}_{what}": "sim@example.com"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        when = {f"GIT_{role}_DATE": f"{int(at)} +0000" for role in ("AUTHOR", "COMMITTER")}
        subprocess.run(
            ["git", "-C", str(self._repository), *words],
            env={**os.environ, **who, **when},
            check=True,
            capture_output=True,
        )

    def commit(self, plan: NightPlan) -> None:
        """Commit tonight's levels; each night has a commit of its own."""
        (self._repository / "levels.json").write_text(json.dumps(plan.levels), encoding="utf-8")
        (self._repository / "night.txt").write_text(f"{plan.number}\n", encoding="utf-8")
        self._git("add", "-A")
        self._git("commit", "-q", "-m", f"night {plan.number}", at=plan.at.timestamp())

    def call(self, attempt: Attempt, now: float) -> Ended:
        """Call `perfrun nightly` in a fork of this process, at that time."""
        self.hook.answers = list(attempt.answers)
        self.hook.taken = []
        log = self.folder / "engine.jsonl"
        log.unlink(missing_ok=True)
        out, err = self.folder / "stdout", self.folder / "stderr"
        self._shared.put(now, self._mono, 0, 0, 0)
        with contextlib.ExitStack() as stack:
            if attempt.locked:
                lock = self.workspace / "nights" / ".lock"
                lock.parent.mkdir(parents=True, exist_ok=True)
                assert stack.enter_context(FileLock(lock)).try_own()
            pid = os.fork()
            if not pid:
                self._child(attempt.script, now, out, err)
            code, hung = _waited(pid)
        after, self._mono, events, calls, hits = self._shared.get()
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return Ended(
            code=code,
            out=out.read_text("utf-8", "backslashreplace"),
            err=err.read_text("utf-8", "backslashreplace"),
            begun=now,
            now=max(now, after),
            events=events,
            disk_calls=calls,
            disk_hits=hits,
            trials=tuple(json.loads(line) for line in lines),
            delivered=tuple(self.hook.taken),
            hung=hung,
        )

    def _child(self, script: Script, now: float, out: Path, err: Path) -> None:
        """Be the process of a night; never returns."""
        code = 3
        try:
            os.setpgid(0, 0)
            for path, number in ((out, 1), (err, 2)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace")
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
            os.chdir(self.folder)
            words = ["nightly", str(self.folder / "suite.toml")]
            world = contextlib.contextmanager(enter)
            with world(script, self.folder, now, self._mono, self._shared, self.facts):
                from perfrun.benchmark import main

                sys.argv = ["perfrun", *words]
                code = main(words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _waited(pid: int) -> tuple[int, bool]:
    """Return how a process ended, and True when it had to be ended for hanging."""
    ending = os.pidfd_open(pid)
    try:
        hung = not select.select([ending], [], [], PATIENCE_S)[0]
        if hung:
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), hung
    finally:
        os.close(ending)


def read_facts(folder: Path) -> Facts:
    """Read what is the same in all nights: this interpreter, by a real worker, and this machine."""
    from perfrun.launchers.launcher import ENTRY
    from perfrun.probes.machine import machine, machine_state

    answer, order = folder / "answer", folder / "order.json"
    order.write_text(json.dumps({"action": "describe", "answer": str(answer)}), encoding="utf-8")
    subprocess.run([sys.executable, str(ENTRY), str(order)], check=True)
    description = json.loads(answer.read_text(encoding="utf-8"))
    return Facts(description=description, machine=machine(), state=machine_state(folder))


def share_compiled_statements() -> None:
    """Let all indexes of this process and its forks share what SQLAlchemy has compiled.

    A night opens the index a dozen times, and compiling takes a third of its time.
    """
    import sqlalchemy
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite as Dialect

    import perfrun.store.database

    shared = sqlalchemy.create_engine("sqlite://")._compiled_cache
    Dialect.__hash__ = lambda dialect: hash(type(dialect))  # type: ignore[method-assign]
    Dialect.__eq__ = lambda one, other: type(one) is type(other)  # type: ignore[method-assign]
    plain = perfrun.store.database._engine

    def sharing(*words: Any, **named: Any) -> sqlalchemy.Engine:
        engine = plain(*words, **named)
        engine._compiled_cache = shared
        return engine

    perfrun.store.database._engine = sharing

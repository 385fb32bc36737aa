"""Every wait of the harness has a limit and answers to a signal.

The first test enumerates the calls that can block, and the table says for each what its limit is
and what a signal does. A new one that is not in the table fails the test.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest

from perfrun.errors import StoreError
from perfrun.nightly import webhook
from perfrun.nightly.report import NightReport
from perfrun.options.store_address import parse_address
from perfrun.store import database
from perfrun.store.index import open_store
from perfrun.workspace import git

PERFRUN = Path(__file__).parents[2] / "perfrun"
NOT_HARNESS = ("worker", "adapters")  # they are the trial, which has its own deadline
MODULES = {
    "subprocess": {"run", "call", "check_call", "check_output", "getoutput"},
    "select": {"select", "poll", "epoll"},
    "time": {"sleep"},
    "os": {"wait", "wait3", "wait4", "waitpid", "waitid", "system"},
    "psutil": {"wait_procs"},
    "fcntl": {"flock", "lockf"},
    "socket": {"create_connection", "getaddrinfo"},
    "requests": {"get", "post", "request"},
}
METHODS = {
    *("wait", "communicate", "recv", "recv_into", "sendall", "accept", "urlopen", "acquire"),
    *("read1", "connect", "exec_driver_sql", "own", "share"),
}


def is_wait(call: ast.Call) -> bool:
    """Return True for a call that can block until something happens outside of this process."""
    name = call.func
    if isinstance(name, ast.Name):
        return name.id in ("sleep", "urlopen")
    if not isinstance(name, ast.Attribute):
        return False
    of = ast.unparse(name.value)
    if of in MODULES:
        return name.attr in MODULES[of]
    if name.attr == "join":  # of a thread; that of a text has an iterable
        return of == "self" or not call.args
    if name.attr == "result":
        return not call.args
    if of.endswith("_client"):  # of Docker's SDK
        return name.attr != "create_host_config"
    if of.endswith(("_session", "opener")):
        return name.attr in ("request", "open")
    if of.endswith(".raw"):
        return name.attr == "read"
    return name.attr in METHODS


def waits_of(path: Path) -> Iterator[str]:
    """Yield `module:function:call` of each wait."""

    def visit(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            is_named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
            if isinstance(child, ast.Call) and is_wait(child):
                where = path.relative_to(PERFRUN).with_suffix("")
                call = ast.unparse(child.func)
                yield f"{where}:{'.'.join(names)}:{call}"
            yield from visit(child, (*names, child.name) if is_named else names)  # type: ignore[attr-defined]

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), ())


def found() -> set[str]:
    files = [p for p in PERFRUN.rglob("*.py") if p.relative_to(PERFRUN).parts[0] not in NOT_HARNESS]
    return {wait for path in files for wait in waits_of(path)}


SIGNAL = "; a signal ends it at once"
QUICK = "does not wait: it asks with a flag that says so, or for what is there already"
ENGINE = "each answer within ANSWER_LIMIT_S of docker_engine" + SIGNAL
LOCK = (
    "as long as another run works, which a line says with that process's id; the kernel takes it "
    "from a process that is killed" + SIGNAL
)
OWN_THREAD = "of a thread of ours, which looks at an event that is set; it is not the main thread"
HTTP = "the watch of http_client hangs up after the time that each caller gives" + SIGNAL
COMMAND = "ended by the time-out of subprocess; no handler is installed, so a signal ends it"
DATABASE = (
    "statement_timeout and keepalives of PostgreSQL, and TRANSACTION_S of one that stands still; "
    "WAIT_S of SQLite" + SIGNAL
)
WAITS = {
    "doctor/command:examine:docker.result": "command_output's limit, in a thread",
    "doctor/command:examine:git.result": "command_output's limit, in a thread",
    "doctor/command:examine:python.result": "TIMEOUT_S of run.environment, in a thread",
    "shards/collect:collect:lock.own": (
        "as long as another command moves folders, which a line says" + SIGNAL
    ),
    "fleet/command:_wait:time.sleep": (
        "_LOOK_S between two looks, as long as shards are open and the cluster answers; the user "
        "asked for that" + SIGNAL
    ),
    "fleet/dispatch:Dispatch._next:self._changed.wait": "a fifth of a second, in a thread",
    "fleet/keeping:wait_for_acknowledgement:select.select": "_ACKNOWLEDGE_S in all" + SIGNAL,
    "fleet/keeping:wait_until_taken:select.select": (
        "_LOOK_S, again until --keep is over; after SIGTERM _LAST_S more"
    ),
    "fleet/keeping:wait_until_taken:server.accept": QUICK,
    "fleet/kubernetes_client:Client._listed:self._jobs.api_client.sanitize_for_serialization": (
        "no wait: it makes plain values of an answer, for which _REQUEST_S was the limit"
    ),
    "fleet/local:wait_for:process.wait": (
        "in a thread, as long as a shard runs, whose trials have time-outs; a signal sets the "
        "event at which it looks five times a second, and _GRACE_S later the process is killed"
    ),
    "shards/places:ShardPlace.held:time.sleep": "_TRIES times _TRY_S in all" + SIGNAL,
    "fleet/shard_command:_alone:time.sleep": "_LOOKS times _LOOK_S in all" + SIGNAL,
    "fleet/ssh:Host._prepare:subprocess.run": "_ANSWER_S, _RESULTS_S for the code, in a thread",
    "fleet/ssh:Host._do:subprocess.run": "_ANSWER_S, in a thread",
    "fleet/ssh:_limited:process.wait": "of a process that was killed after _RESULTS_S or more",
    "fleet/slurm:Slurm._submit_batch:time.sleep": "PAUSES_S in all" + SIGNAL,
    "fleet/slurm_queue:answer:time.sleep": "PAUSES_S in all" + SIGNAL,
    "image/build:write_sbom:subprocess.run": COMMAND,
    "image/command:harness_arguments.ask:subprocess.run": COMMAND,
    "image/engine:_ask:subprocess.run": COMMAND,
    "image/saved:_copy:answer.read1": "CONNECT_TIMEOUT_S a read, _PART bytes in _SILENCE_S",
    "image/saved:_fetch:opener.open": "CONNECT_TIMEOUT_S a read, and at most 100 headers",
    "incidents/ledger:change:lock.own": (
        "as long as another command reads, changes and writes one file, which a line says" + SIGNAL
    ),
    "launchers/container:Container.listen:select.select": "the seconds that its caller gives",
    "launchers/container:ContainerProcess._after_engine:time.sleep": "REPORT_GRACE_S in all",
    "launchers/container:ContainerProcess._state_at_end:time.sleep": "KILL_GRACE_S in all",
    "launchers/docker_engine:DockerEngine.__init__:self._client.info": ENGINE,
    "launchers/docker_engine:DockerEngine.attach:self._client.attach_socket": ENGINE,
    "launchers/docker_engine:DockerEngine.create:self._client.create_container": ENGINE,
    "launchers/docker_engine:DockerEngine.has_network:self._client.inspect_network": ENGINE,
    "launchers/docker_engine:DockerEngine.image:self._client.inspect_image": ENGINE,
    "launchers/docker_engine:DockerEngine.labelled:self._client.containers": ENGINE,
    "launchers/docker_engine:DockerEngine.labelled_volumes:self._client.volumes": ENGINE,
    "launchers/docker_engine:DockerEngine.pull:self._client.pull": (
        "ANSWER_LIMIT_S between two reports of the engine, which is trusted" + SIGNAL
    ),
    "launchers/docker_engine:DockerEngine.remove:self._client.remove_container": ENGINE,
    "launchers/docker_engine:DockerEngine.remove_volume:self._client.remove_volume": ENGINE,
    "launchers/docker_engine:DockerEngine.start:self._client.start": ENGINE,
    "launchers/docker_engine:DockerEngine.state:self._client.inspect_container": ENGINE,
    "launchers/docker_engine:Streams.receive:self._socket.recv": "after select has found data",
    "launchers/docker_engine:Streams.send:self._socket.sendall": "one byte, into an empty buffer",
    "launchers/guard:Guard._ask:os.waitpid": "a guard that hung up has a minute to end all",
    "launchers/guard:Guard.close:os.waitpid": "WNOHANG",
    "launchers/guard:Guard.close:time.sleep": "LEAVE_LIMIT_S in all, at the end of perfrun",
    "launchers/guard:Guard.is_alive:os.waitpid": "WNOHANG",
    "launchers/guard:OwnChildren.has_children:os.waitid": "WNOHANG",
    "launchers/guard:OwnChildren.has_ended:os.waitid": "WNOHANG",
    "launchers/guard:OwnChildren.reap:os.wait4": "WNOHANG, or of a child that has ended",
    "launchers/guard:_Served.reap_orphans:os.waitpid": "WNOHANG",
    "launchers/guard:_serve:select.select": "in the guard, which waits for its harness's end",
    "launchers/guard:end_all:os.waitpid": "WNOHANG",
    "launchers/guard:end_all:time.sleep": "END_LIMIT_S in all",
    "probes/commands:command_output:subprocess.run": COMMAND,
    "replay/opening:hold:lock.own": LOCK,
    "workspace/programs:carry_out:process.communicate": COMMAND,
    "run/own_process:end:process.wait": "the grace that its caller gives, twice",
    "run/trial:_run_worker:process.wait": "a killed worker has KILL_GRACE_S",
    "launchers/local:_kill:psutil.wait_procs": "5 s",
    "launchers/local:_kill_strays:psutil.wait_procs": "CHILD_GRACE_S and HELPER_GRACE_S",
    "launchers/local:_pidfd:select.select": "the seconds that its caller gives: --timeout, a grace",
    "launchers/local:_poll:time.sleep": "the seconds that its caller gives",
    "locks:FileLock.__exit__:fcntl.flock": QUICK,
    "locks:FileLock._take:fcntl.flock": LOCK,
    "locks:FileLock._try:fcntl.flock": QUICK,
    "nightly/own_command:carry_out:process.wait": "what is left of the budget" + SIGNAL,
    "nightly/webhook:post:sleep": "PAUSES_S" + SIGNAL,
    "notebook/engine:_carried_out:process.wait": "a run, each trial of which has --timeout"
    + SIGNAL,
    "probes/accelerators:DeviceSampler.finish:self.join": "_FINISH_S",
    "probes/accelerators:DeviceSampler.run:self._stop_event.wait": OWN_THREAD,
    "probes/accelerators:DeviceTrack.usage:running.result": "no wait: a mean of numbers",
    "probes/oom:OomKills.of:time.sleep": "_PATIENCE_S in all",
    "probes/process_tree:TreeSampler.__init__:self._sampling.acquire": "of a lock that is new",
    "probes/process_tree:TreeSampler._follow:self._sampling.acquire": OWN_THREAD,
    "probes/process_tree:TreeSampler.finish:self.join": "_FINISH_S",
    "probes/watch:_RaplReader.finish:self.join": "_FINISH_S",
    "probes/watch:_RaplReader.run:self._stop_event.wait": OWN_THREAD,
    "reports/live_line:LiveLine.run:self._over.wait": OWN_THREAD,
    "run/environment:Service.answer:self._serving.wait": "TIMEOUT_S" + SIGNAL,
    "run/progress:Follower.finish:self.join": "the rest of what the trial has printed",
    "run/progress:Follower.run:self._stop_event.wait": OWN_THREAD,
    "run/trial:_wait:process.wait": "--timeout, a day without it; a signal ends the trial in order",
    "serve/events:Events:self._over.wait": "LOOK_S; it gives way to all other work of the loop",
    "serve/server:Server:self._over.wait": "the server's end by a signal, which sets it",
    "serve/threads:Threads:self._free.acquire": "_PATIENCE_S",
    "store/database:Database._connected:backoff.wait": "WAIT_S, or what the caller gives" + SIGNAL,
    "store/database:Database._connected:self._engine.connect": "connect_timeout" + SIGNAL,
    "store/database:Database.reading:self._connection.exec_driver_sql": DATABASE,
    "store/database:Database.writing:self._connection.exec_driver_sql": DATABASE,
    "store/database:_begin_sqlite:connection.exec_driver_sql": DATABASE,
    "store/quarantine:change:lock.own": (
        "as long as another command reads, changes and writes one file, which a line says" + SIGNAL
    ),
    "summary/result_folder:_locked:fcntl.flock": QUICK,
    "summary/result_folder:_remove_abandoned_reserves:fcntl.flock": QUICK,
    "workspace/cache:GitCache.fetch_history:self._lock.own": LOCK,
    "workspace/cache:GitCache.find:self._lock.own": LOCK,
    "workspace/checkouts:_CheckoutFolder._bring_about:self.lock.own": LOCK,
    "workspace/checkouts:_CheckoutFolder._bring_about:self.lock.share": LOCK,
    "workspace/checkouts:_CheckoutFolder.provide:self.lock.share": LOCK,
    "store/patience:Backoff.wait:time.sleep": "_LOOK_S; in all what its caller gives" + SIGNAL,
    "store/recorder:IndexRecorder.finish:backoff.wait": "FINISH_S, or until a signal has come",
    "workspace/checkouts:_remove_stale_locks:time.sleep": "_STALE_AFTER_S for each file" + SIGNAL,
    "workspace/downloads:_bring:lock.own": LOCK,
    "workspace/git:_communicate:process.communicate": "_ASK_LIMIT_S, _LIMIT_S" + SIGNAL,
    "workspace/git:_end:process.communicate": "_END_GRACE_S, twice",
    "workspace/git:_end:process.wait": "_END_GRACE_S",
    "workspace/http_client:Client._asked:self._session.request": HTTP,
    "workspace/http_client:Client.read:response.raw.read": HTTP,
    "workspace/http_client:_Watch.end:self.join": "_FINISH_S",
    "workspace/http_client:_Watch.run:self._ended.wait": OWN_THREAD,
    "workspace/http_transfer:download:time.sleep": "_LONGEST_PAUSE_S" + SIGNAL,
}


def test_every_wait_is_in_the_table_with_its_limit() -> None:
    waits = found()
    assert not waits - WAITS.keys(), "a wait without a limit? Give it one, and a line of the table"
    assert not WAITS.keys() - waits, "no such wait any more"


@pytest.mark.parametrize(
    ("call", "is_one"),
    [
        ("subprocess.run(words)", True),
        ("thread.join()", True),
        ("self.join(5)", True),
        ("process.wait()", True),
        ("time.sleep(1)", True),
        ("', '.join(names)", False),
        ("journal.run(plan)", False),
        ("select(table)", False),
    ],
)
def test_a_wait_is_told_from_what_only_has_its_name(call: str, is_one: bool) -> None:
    (statement,) = ast.parse(call).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert is_wait(statement.value) == is_one


# The worst of them, with a signal


@contextlib.contextmanager
def slow_server(begin: bytes, part: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Serve a begin and then a part again and again; yield the url and an event: it was asked."""
    was_asked, is_over = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            was_asked.set()
            connection.sendall(begin)
            while not is_over.wait(0.05):
                connection.sendall(part)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threads.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
                threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", was_asked
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join()


SLOW_BODY = (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x")
SLOW_HEADERS = (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n")


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "perfrun", "--benchmark_methods=no_such.Thing.here"]
    words += [f"--workspace={folder / 'workspace'}", f"--root_data_dir={folder / 'data'}", *flags]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str], number: int) -> str:
    """Send a signal and return all that was printed. It must end by that, and in order."""
    process.send_signal(number)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 130, text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("answer", [SLOW_BODY, SLOW_HEADERS], ids=["body", "headers"])
def test_a_signal_ends_a_slow_download_and_one_that_waits_for_it(
    tmp_path: Path, answer: tuple[bytes, bytes]
) -> None:
    with slow_server(*answer) as (url, was_asked):
        first = start(tmp_path, f"--data_downloads={url}/x.bin")
        assert was_asked.wait(120)
        second = start(tmp_path, f"--data_downloads={url}/x.bin")
        assert second.stdout is not None
        line = next(line for line in second.stdout if "waiting for another run" in line)
        assert f"(process {first.pid} holds " in line
        ended(second, signal.SIGTERM)
        ended(first, signal.SIGTERM)
    assert not (tmp_path / "data" / "x.bin").exists()


def test_a_signal_ends_a_slow_fetch_and_leaves_no_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "http")
    with slow_server(*SLOW_HEADERS) as (url, was_asked):
        process = start(tmp_path, f"--git_repos={url}/some.git")
        assert was_asked.wait(120)
        ended(process, signal.SIGINT)
        commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if readable(p)]
    assert not [words for words in commands if url.encode() in words]


def readable(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.read_bytes()
        return True
    return False


def test_git_that_ignores_its_end_and_leaves_a_child_with_its_pipes_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\ntrap '' TERM\nsleep 30 &\necho $! > \"$CHILD\"\nwait\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CHILD", str(tmp_path / "child"))
    monkeypatch.setattr(git, "_END_GRACE_S", 0.1)
    here = git.Repository(git_dir=tmp_path)
    try:
        with pytest.raises(git.GitFailed, match=r"no answer within 0\.5 s"):
            git.command(here, "fetch", timeout_s=0.5)
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


# Databases


@pytest.mark.postgresql
def test_a_database_that_stands_still_is_given_up(
    postgresql: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.new_database()
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'perfrun' AND datname = %s"
    with open_store(parse_address(url, Path("no workspace"))) as store:
        assert store.counts().trials == 0
        with postgresql.connection("postgres") as connection:
            ((pid,),) = connection.execute(query, [url.rpartition("/")[2]]).fetchall()
        monkeypatch.setattr(database, "TRANSACTION_S", 0.5)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(
                StoreError, match=r"\*\*\*@.*: the server has not answered within 0.5"
            ):
                store.counts()
        finally:
            os.kill(pid, signal.SIGCONT)


# Webhooks

REPORT = NightReport(
    night="n",
    suite="s",
    owner=None,
    begun=0.0,
    ended=0.0,
    deadline=None,
    commits={},
    methods=(),
    errors=(),
    notes=(),
)


@pytest.mark.parametrize("answer", [SLOW_BODY, SLOW_HEADERS], ids=["body", "headers"])
def test_a_webhook_that_sends_a_byte_now_and_then_does_not_hold_the_night(
    answer: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body is not read at all: the status has said that the report arrived."""
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.5)
    with slow_server(*answer) as (url, _):
        why = webhook.post(f"{url}/hook", REPORT, lambda _: None)
    if answer is SLOW_BODY:
        assert why is None
    else:
        assert why is not None
        assert why.endswith("the server is too slow: not done within 0.5 s")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            "302 Found\r\nLocation: http://evil.example/s3cr3t",
            "HTTP 302, a redirect to 'evil.example'",
        ),
        ("307 T\r\nLocation: https://x/", "HTTP 307, a redirect to 'x'"),
        ("301 M\r\nLocation: /other", "HTTP 301, a redirect to 'another path'"),
        ("302 F\r\nLocation: http://[::1", "HTTP 302, a redirect to no url"),
        ("302 F\r\nLocation: \xff\x1b[31m", "HTTP 302, a redirect to"),
        ("302 Found", "HTTP 302"),
        ("304 Not Modified", "HTTP 304"),
        ("199 x", "HTTP 199|ConnectionError"),
        ("600 x", "HTTP 600"),
    ],
)
def test_what_is_not_taken_is_not_delivered(answer: str, says: str) -> None:
    begin = f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    with slow_server(begin, b"") as (url, _):
        why = webhook.post(f"{url}/hook", REPORT, lambda _: None)
    assert why is not None
    assert re.search(says, why)
    assert "s3cr3t" not in why
    assert why.isprintable()


def test_a_webhook_that_answers_without_an_end_takes_no_memory() -> None:
    flood = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", bytes(1 << 20)
    with slow_server(*flood) as (url, _):
        assert webhook.post(url, REPORT, lambda _: None) is None

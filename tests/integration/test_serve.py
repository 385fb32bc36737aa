"""The server as users and strangers meet it: real processes, a real run, real connections."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemas

from perfrun.options.store_address import parse_address
from perfrun.store.index import open_store
from tests.summaries import summary, write
from tests.worlds import strict, wait_until

PERFRUN = [sys.executable, "-m", "perfrun"]
METHOD = "pkg.cases.Cases.spin"
NOOP = "benchmarks.python.calibration.Calibration.noop"
SCHEMAS = (  # of the answers at these addresses
    ("/api/page(/[^/]+)?", "page"),
    ("/api/methods", "serve-methods"),
    ("/api/series/[^/]+", "history"),
    ("/api/trials", "serve-trials"),
    ("/api/runs/[^/]+", "serve-run"),
)
HOSTILE = "</script><script>alert(1)</script>\u2028\x1b[2J"


class Serving:
    """A server that runs, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.line = process.stdout.readline()
        found = re.search(r"http://[^/]*:(\d+)/(?:\?token=(\S+))?", self.line)
        assert found, self.line + process.communicate(timeout=60)[1]
        self.port, self.token = int(found[1]), found[2]

    def answer(
        self, target: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> tuple[int, Mapping[str, str], str]:
        """Ask; return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, target, headers=dict(headers or {}))
            got = connection.getresponse()
            return got.status, {k.lower(): v for k, v in got.getheaders()}, got.read().decode()

    def document(self, target: str, status: int = 200) -> Any:
        """Ask for a document; one that has a schema must be as that says."""
        found, _, body = self.answer(target)
        assert found == status, body
        document = strict(body)
        address = target.partition("?")[0]
        name = next((name for place, name in SCHEMAS if re.fullmatch(place, address)), None)
        if name and status == 200:
            schemas.check(name, document)
        return document

    def end(self) -> str:
        """End it as a user does; return what it said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said
        assert "Traceback" not in said
        return said


@contextmanager
def serving(*flags: str) -> Iterator[Serving]:
    words = [*PERFRUN, "serve", "--port=0", *flags]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Serving(process)
        finally:
            if process.poll() is None:
                process.kill()


class Listener(threading.Thread):
    """A client that keeps every event it is sent."""

    def __init__(self, server: Serving, headers: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self._connection.request("GET", "/api/events", headers=dict(headers or {}))
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        self.events: list[tuple[str, str, Any]] = []  # id, kind and data
        self.last_id = ""
        self.start()

    def run(self) -> None:
        fields: dict[str, str] = {}
        with contextlib.closing(self._connection):
            for line in self._answer:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                    continue
                self.last_id = fields.get("id", self.last_id)
                if "event" in fields:
                    data = strict(fields["data"])
                    self.events.append((self.last_id, fields["event"], data))
                fields = {}

    def of(self, kind: str) -> list[Any]:
        return [data for _, found, data in self.events if found == kind]


def indexed(folder: Path, *documents: Mapping[str, Any]) -> Path:
    """A store of its own, filled with summaries; return its file."""
    write(folder / "output", *documents)
    store = folder / "team.sqlite"
    with open_store(parse_address(str(store), folder)) as opened:
        opened.refresh([folder / "output"])
    return store


def test_two_clients_follow_a_run_and_ctrl_c_ends_the_server_at_once(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with serving(f"--workspace={workspace}") as server:
        assert server.document("/api/page")["methods"] == []
        clients = [Listener(server), Listener(server)]
        words = [*PERFRUN, f"--workspace={workspace}", f"--benchmark_methods={NOOP}"]
        words.append("--benchmark_num_trials=2")
        assert subprocess.run(words, capture_output=True, check=False).returncode == 0
        for client in clients:
            wait_until(lambda c=client: [r for r in c.of("run") if r["state"] == "ended"])
            wait_until(lambda c=client: c.of("index"))
            ended = client.of("run")[-1]
            assert (ended["planned"], ended["finished"], ended["now"]) == (2, 2, [])
            finished = [t for t in client.of("trial") if t["state"] == "finished"]
            assert [(t["method"], t["trial_id"]) for t in finished] == [(NOOP, 1), (NOOP, 2)]
            for _, kind, data in client.events:
                schemas.check("serve-event", {"event": kind, "data": data})
        # A client that comes again gets what it has missed, and no more.
        numbers = [number for number, _, _ in clients[0].events]
        again = Listener(server, {"Last-Event-ID": numbers[1]})
        wait_until(lambda: len(again.events) >= len(numbers) - 2)
        assert again.events[: len(numbers) - 2] == clients[0].events[2 : len(numbers)]

        (method,) = server.document("/api/page")["methods"]
        assert (method["name"], method["trials"], method["state"]) == (NOOP, 2, "passed")
        run = server.document(f"/api/runs/{ended['run_id']}")
        assert run["state"] == ended
        schemas.check("run", run["report"])
        assert run["report"]["methods"]
        folders = {trial["execution_id"] for trial in finished}
        assert {trial["execution_id"] for trial in run["trials"]} == folders
        document = server.document(f"/api/trials/{run['trials'][0]['uid']}")
        path = workspace / "output" / run["trials"][0]["execution_id"] / "perfzero_summary.json"
        assert document == json.loads(path.read_text())
        assert server.end() == "perfrun: ended\n"
        for client in (*clients, again):
            client.join(60)
            assert not client.is_alive()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with some nights of two methods, and what a hostile summary may hold."""
    folder = tmp_path_factory.mktemp("store")
    nights = [
        summary(
            name=f"night-{n}",
            timestamp=1.79e9 + 86400 * n,
            run_id=f"run-{n}",
            wall_time=1.0 + 0.001 * (n % 3) if n < 20 else 1.2,
            commits={"models": f"{n:040x}"},
        )
        for n in range(30)
    ]
    odd = summary(method=HOSTILE, name="odd", label="label", timestamp=1.7899e9)
    odd["system_info"]["hostname"] = "x --password=hunter2hunter2"
    odd["benchmark_result"]["extras"] = [{"name": "odd", "value": float("nan")}]
    failed = summary(method=HOSTILE, name="bad", status="crashed", timestamp=1.7898e9)
    return indexed(folder, *nights, odd, failed)


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Serving]:
    with serving(f"--store={store}") as found:
        yield found
        assert found.end() == "perfrun: ended\n"


def test_the_documents_are_those_of_the_commands(server: Serving, store: Path) -> None:
    before = hashlib.sha256(store.read_bytes()).hexdigest()
    methods = server.document("/api/methods?method=pkg.*")["methods"]
    assert [(m["method"], m["trials"], m["failed"]) for m in methods] == [(METHOD, 30, 0)]
    (wall,) = [one for one in methods[0]["series"] if one["metric"] == "wall_time"]
    words = [*PERFRUN, "history", METHOD, f"--store={store}", "--format=json"]
    printed = subprocess.run(
        [*words, f"--workspace={store.parent}"], capture_output=True, text=True, check=True
    )
    assert server.document(f"/api/series/{wall['id']}") == strict(printed.stdout)
    few = server.document(f"/api/series/{wall['id']}?limit=2")["series"][0]["points"]
    assert [point["execution_id"] for point in few] == ["night-28", "night-29"]

    page = server.document("/api/page")
    change = page["changes"][0]
    assert (change["direction"], change["metric"], change["at"]) == ("worse", "wall_time", 20)
    assert page["series"][change["series"]]["method"] == change["method"]
    assert page["methods"][change["method"]]["name"] == METHOD
    assert page["outcomes"] == {"passed": 31, "crashed": 1}

    seen, after = [], ""
    while after is not None:
        document = server.document(f"/api/trials?limit=20{after and '&after='}{after}")
        seen += [trial["execution_id"] for trial in document["trials"]]
        after = document["next"]
    assert seen == [*(f"night-{n}" for n in range(29, -1, -1)), "odd", "bad"]
    (crashed,) = server.document("/api/trials?status=crashed")["trials"]
    assert crashed["method"] == HOSTILE
    assert server.document(f"/api/runs/{'run-3'}")["trials"][0]["execution_id"] == "night-3"
    assert hashlib.sha256(store.read_bytes()).hexdigest() == before


def test_texts_of_others_stay_texts_and_secrets_are_hidden(server: Serving) -> None:
    status, headers, body = server.answer("/")
    assert status == 200
    assert "alert(1)</script>" not in body
    assert "hunter2" not in body
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    (odd,) = server.document("/api/trials?label=label")["trials"]
    document = server.document(f"/api/trials/{odd['uid']}")
    assert document["benchmark_result"]["extras"] == [{"name": "odd", "value": "NaN"}]
    assert "hunter2" not in json.dumps(document)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/../../etc/passwd", 404),
        ("/api/runs/..%2f..%2fetc%2fpasswd", 404),
        ("/api/runs/%00", 404),
        ("/api/trials/../../../etc/passwd", 404),
        (f"/api/trials/{'0' * 64}", 404),
        ("/api/series/zz", 404),
        (f"/api/series/{'0' * 16}-{'0' * 16}", 404),
        ("/assets/", 404),
        ("/api", 404),
        ("/api/trials?limit=0", 400),
        ("/api/trials?limit=9999999999999999999999", 400),
        ("/api/trials?limit=%D9%A1", 400),
        ("/api/trials?limit=1&limit=2", 400),
        ("/api/trials?since=nan", 400),
        ("/api/trials?after='%20OR%201=1", 400),
        ("/api/trials?status=%3Cscript%3E", 400),
        ("/api/trials?drop=1", 400),
        ("/api/page?token=abc", 400),
        ("/api/trials?label=%00", 400),
        (f"/api/trials?label={'x' * 5000}", 414),
        ("/api/methods?after=zz", 400),
        (f"/api/methods?after={'0' * 64}", 404),
    ],
)
def test_a_wrong_question_has_an_answer_of_one_line(
    server: Serving, target: str, status: int
) -> None:
    found, headers, body = server.answer(target)
    assert found == status, body
    assert strict(body).keys() == {"error"}
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("headers", "method", "status"),
    [
        ({"Host": "evil.example"}, "GET", 421),
        ({"Host": "localhost.evil.example:80"}, "GET", 421),
        ({"Host": "evil.example@localhost"}, "GET", 421),
        ({"Host": ""}, "GET", 421),
        ({"Host": "LOCALHOST.:9"}, "GET", 200),
        ({"Host": "[::1]:8080"}, "GET", 200),
        ({"Sec-Fetch-Site": "cross-site"}, "GET", 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "document"}, "GET", 403),
        ({"Content-Length": "5"}, "GET", 413),
        ({"Transfer-Encoding": "chunked"}, "GET", 413),
        ({}, "POST", 405),
        ({}, "DELETE", 405),
        ({}, "OPTIONS", 405),
        ({"X": "y" * 16384}, "GET", 431),
        ({}, "HEAD", 200),
    ],
)
def test_strangers_are_kept_out(
    server: Serving, headers: Mapping[str, str], method: str, status: int
) -> None:
    found, got, body = server.answer("/api/methods", headers, method)
    assert found == status, body
    assert "access-control-allow-origin" not in got


def test_a_page_is_sent_again_only_when_it_has_changed(server: Serving) -> None:
    _, headers, _ = server.answer("/api/page")
    assert server.answer("/api/page", {"If-None-Match": headers["etag"]})[0] == 304


def test_an_index_cannot_make_the_server_show_other_files(tmp_path: Path) -> None:
    store = indexed(tmp_path, summary(), summary(name="other", timestamp=1.0))
    first, second = sorted((tmp_path / "output").iterdir())
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (first / "perfzero_summary.json").unlink()
    (first / "perfzero_summary.json").symlink_to(secret)
    shutil.copy(first / "perfzero_summary.json", second / "perfzero_summary.json")
    with serving(f"--store={store}") as server:
        for trial in server.document("/api/trials")["trials"]:
            found = server.document(f"/api/trials/{trial['uid']}", status=404)
            assert "secret" not in found["error"].removeprefix("its summary ")
        server.end()


def test_a_token_is_needed_where_others_can_reach_the_server(store: Path) -> None:
    with serving(f"--store={store}", "--host=0.0.0.0") as server:
        assert len(server.token) >= 32
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {server.token}"},
            {"Cookie": f"perfrun_{server.port}={server.token}"},
        ):
            status, got, body = server.answer("/api/page", headers)
            assert status == 401
            assert server.token not in body + str(got)
        assert server.answer("/?token=wrong")[0] == 401
        assert server.answer(f"/api/page?token={server.token}")[0] == 401
        bearer = {"Authorization": f"Bearer {server.token}"}
        assert server.answer("/api/page", bearer)[0] == 200
        status, got, _ = server.answer(f"/?token={server.token}")
        assert (status, got["location"]) == (303, "/")
        cookie, *rules = got["set-cookie"].split("; ")
        assert server.token not in cookie
        assert {"HttpOnly", "SameSite=Strict"} <= set(rules)
        assert server.answer("/", {"Cookie": f'prefs={{"a":1}}; theme=dark; {cookie}'})[0] == 200
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
        assert server.answer(f"/?token={server.token}", link)[1]["refresh"] == "0; url=/"
        server.end()


def test_the_server_outlives_its_store(tmp_path: Path, store: Path) -> None:
    own = tmp_path / "own.sqlite"
    shutil.copy(store, own)
    with serving(f"--store={own}") as server:
        client = Listener(server)
        assert server.answer("/api/page")[0] == 200
        aside = own.rename(tmp_path / "aside.sqlite")
        assert "is not there" in server.document("/api/page", status=503)["error"]
        wait_until(lambda: client.of("store"))
        assert client.of("store")[0]["state"] == "gone"
        own.write_text("no database at all")
        assert "not a database" in server.document("/api/methods", status=503)["error"]
        aside.rename(own)
        wait_until(lambda: client.of("store")[-1]["state"] == "there")
        wait_until(lambda: client.of("index"))
        assert server.answer("/api/page")[0] == 200
        server.end()
        client.join(60)


AT_WORK = """
import sys
from numpy import ones
from scipy.fft import fft
from perfrun.benchmark import main
from perfrun.serve.results import Results

def page(self):  # is always within C++, where Python cannot end a thread
    print("at work", file=sys.stderr, flush=True)
    while True:
        fft(ones(2**16))

Results.page = page
sys.exit(main(sys.argv[1:]))
"""


def test_a_server_that_is_at_work_ends_in_order(store: Path) -> None:
    words = [sys.executable, "-c", AT_WORK, "serve", "--port=0", f"--store={store}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "http://" in process.stdout.readline()
        assert process.stderr.readline() == "at work\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "perfrun: ended\n")


def test_a_port_in_use_is_one_line(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [*PERFRUN, "serve", f"--store={store}", f"--port={taken.getsockname()[1]}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is in use; name another one, or 0 for a free one" in done.stderr

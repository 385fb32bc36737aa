"""Events for clients that lag and come again; the door; columns; journals half written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import postgres
import pytest

from perfrun.errors import StoreError, UsageError
from perfrun.options.store_address import parse_address
from perfrun.serve import events as serving
from perfrun.serve import server
from perfrun.serve.command import parser, serve_command
from perfrun.serve.events import Events
from perfrun.serve.guard import App, Guard, Receive, Rules, Scope, Send, cookie_of
from perfrun.serve.journals import Journals
from perfrun.serve.questions import Index, Selection
from perfrun.serve.refused import Refused
from perfrun.serve.results import Results
from perfrun.serve.threads import Threads
from perfrun.store.database import Database
from perfrun.store.index import open_store
from tests.summaries import summary, trials, write

ROOT = Path(__file__).parents[3]


class Still:
    """An index in which nothing happens until somebody says so."""

    made_in_s = 0.0
    now = "a"

    def stamp(self) -> str:
        if not self.now:
            raise StoreError("gone")
        return self.now

    def bring_up_to_date(self, *, is_running: bool) -> None: ...


async def until(stream: AsyncIterator[str], words: str) -> str:
    """Return the first event with these words."""
    async for text in stream:
        if words in text:
            return text
    raise AssertionError(f"the stream has ended without {words}")


def test_clients_come_lag_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LOOK_S", 0.01)
    monkeypatch.setattr(serving, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(serving, "MOST_CLIENTS", 2)
    monkeypatch.setattr(serving, "_FEWEST_S", 0.0)

    async def main() -> None:
        index = Still()
        events = Events(index, None, Threads())
        first, lagging = events.stream(""), events.stream("")
        await until(first, "retry")
        await until(lagging, "retry")
        with pytest.raises(Refused, match="2 clients listen already"):
            events.stream("")
        assert await until(first, ": still here")
        while events._stamp is None:  # a new state is told only to whom the old one is known
            await asyncio.sleep(0.01)
        index.now = "b"
        told = await until(first, "event: index")
        last_id = told.splitlines()[0].removeprefix("id: ")
        index.now = ""
        gone = await until(first, "event: store")
        index.now = "c"
        await until(first, '"there"')
        for _ in range(serving._QUEUE + 1):  # the other client reads nothing meanwhile
            events._publish("trial", {"text": "\n\ndata: forged"})
        with pytest.raises(AssertionError, match="has ended"):
            await until(lagging, "never sent")
        await first.aclose()  # type: ignore[attr-defined]
        assert not events._clients
        assert events._watcher is not None
        await asyncio.wait_for(events._watcher, 60)  # it ends when nobody listens
        again = events.stream(last_id)
        assert await until(again, "event") == gone
        forged = await until(again, "forged")
        assert forged.count("\n") == 4
        stranger = events.stream("other-1")
        assert "event: index" in await until(stranger, "event")
        events.close()
        with pytest.raises(AssertionError, match="has ended"):
            await until(stranger, "never sent")

    asyncio.run(main())


def test_a_look_that_fails_is_said_once_and_does_not_end_the_watcher(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "LOOK_S", 0.01)
    monkeypatch.setattr(serving, "_FEWEST_S", 0.0)

    class Broken(Still):
        looks = 0

        def bring_up_to_date(self, *, is_running: bool) -> None:
            self.looks += 1
            if 2 <= self.looks <= 4:
                self.now = "b"
                raise ValueError("unforeseen")

    async def main() -> None:
        events = Events(Broken(), None, Threads())
        assert await until(events.stream(""), "event: index")

    asyncio.run(asyncio.wait_for(main(), 60))
    assert capsys.readouterr().err.count("ValueError: unforeseen") == 1


def test_a_first_page_that_fails_is_said_and_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken:
        def page(self) -> None:
            raise ValueError("unforeseen")

    asyncio.run(server._first_page(Broken(), Threads()))  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("ValueError: unforeseen") == 1


@contextlib.asynccontextmanager
async def listening(app: App) -> AsyncIterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = server.Server(app, lambda: None, lambda: None)
        task = asyncio.create_task(running.serve([listener]))
        yield listener.getsockname()
        running._end()
        await task


async def hung_up(reader: asyncio.StreamReader) -> bytes:
    """Return all that comes until the server hangs up."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""


def test_a_client_that_does_not_end_its_request_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_REQUEST_S", 0.5)

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await asyncio.sleep(1.0)  # longer than a request may take: an answer has its own time
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all of it"})

    async def main() -> None:
        async with listening(app) as address:
            for end, answer in ((b"", b""), (b"\r\n", b"all of it")):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + end)
                found = await hung_up(reader)
                assert answer in found
                assert bool(answer) == bool(found)
                writer.close()

    asyncio.run(main())


def test_a_client_that_does_not_take_its_answer_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_SEND_S", 0.05)

    async def main() -> None:
        over = asyncio.Event()

        async def app(_: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(2**26), "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            over.set()

        async with listening(app) as address:
            with socket.create_connection(address) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # and reads nothing
                await asyncio.wait_for(over.wait(), 60)

    asyncio.run(main())


def test_a_journal_is_followed_line_by_line_and_a_hostile_one_does_no_harm(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    journals = Journals(runs)
    assert list(journals.look(is_first=True)) == []
    runs.mkdir()
    (runs / "link.jsonl").symlink_to("/etc/passwd")
    (runs / "folder.jsonl").mkdir()
    journal = runs / "run-1.jsonl"
    steps = [{"method": "m", "trial_id": n, "round": n} for n in (1, 2)]
    lines = [
        {"event": "begin", "begun": 5.0},
        {"event": "round", "steps": steps},
        {"event": "started", "method": "m", "trial_id": 1, "folder": "/w/output/one"},
        {"event": "round", "steps": "hostile"},
        {"event": "finished", "method": "m", "trial_id": 1, "summary": "/w/output/one/s.json"},
    ]
    text = "".join(json.dumps(one) + "\n" for one in lines)
    journal.write_text(text[:-20])
    told = list(journals.look())
    assert [kind for kind, _ in told] == ["trial", "run"]
    assert told[1][1]["planned"] == 2
    assert told[1][1]["state"] == "interrupted"  # nobody holds it
    assert list(journals.look()) == []
    journal.write_text(text + "[" * 100_000 + "\n")
    (trial, run) = journals.look()
    assert trial[1] == {
        "run_id": "run-1",
        "method": "m",
        "trial_id": 1,
        "state": "finished",
        "execution_id": "one",
    }
    assert (run[1]["finished"], run[1]["begun"]) == (1, 5.0)
    with journal.open("a") as file:
        file.write('{"event": "end"}\n')
    assert [state["state"] for _, state in journals.look()] == ["ended"]
    journal.write_text('{"event": "begin"}\n')  # another one under its name
    assert [state["planned"] for _, state in journals.look()] == [0]


def test_an_index_that_is_only_read_is_not_made_or_changed(tmp_path: Path) -> None:
    address = parse_address(str(tmp_path / "i.sqlite"), tmp_path)
    with pytest.raises(StoreError, match="unable to open"):
        Database(address, reads_within_s=1)
    assert not list(tmp_path.iterdir())
    (tmp_path / "i.sqlite").touch()
    with pytest.raises(StoreError, match="holds no index yet: run `perfrun index` once"):
        Database(address, reads_within_s=1)
    (tmp_path / "i.sqlite").unlink()
    with open_store(address):
        pass
    with Database(address, reads_within_s=0.001) as database:
        with (
            pytest.raises(StoreError, match=r"readonly|read-only"),
            database.writing() as connection,
        ):
            connection.exec_driver_sql("DELETE FROM trials")
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT x FROM n"
        with (
            pytest.raises(StoreError, match="interrupted; the question took too long"),
            database.reading() as connection,
        ):
            connection.exec_driver_sql(f"{endless} WHERE x < 0").all()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host=evil.example"], "--host=evil.example: must be an address"),
        (["--host=192.0.2.1"], "--host=192.0.2.1: cannot be listened on"),
        (["--port=65536"], "--port=65536: must be 0 to 65535"),
        (["--port=x"], "--port=x: must be a whole number, 0 or more"),
        (["--token=short"], "--token: must be 16 to 200"),
        (["--server_name=http://x"], "--server_name=http://x: must be a name"),
        (["--workspace=/no/such"], "--workspace=/no/such: is not there"),
    ],
)
def test_a_wrong_flag_is_one_line(words: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        serve_command([f"--workspace={tmp_path}", *words])
    assert says in raised.value.line
    assert "short" not in raised.value.line


def test_every_flag_is_explained() -> None:
    text = (ROOT / "docs" / "guides" / "serve.md").read_text(encoding="utf-8")
    for option in parser()._option_string_actions:
        assert f"`{option}`" in text or option in ("-h", "--help"), option


def test_new_summaries_are_taken_up_but_not_beside_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfrun.serve.results._UP_TO_DATE_S", 0.0)
    monkeypatch.setattr("perfrun.serve.results._SHARE", 0)
    write(tmp_path / "output", summary())
    address = parse_address(None, tmp_path)
    with open_store(address) as store:
        store.refresh()
    results = Results(Index(address=address, root=tmp_path.resolve()), tmp_path, "title")
    first = results.page()
    assert results.page() is first
    write(tmp_path / "output", summary(name="later", timestamp=1.8e9))
    results.bring_up_to_date(is_running=True)
    assert results.page() is first
    results.bring_up_to_date(is_running=False)
    assert json.loads(results.page().answer.data)["methods"][0]["trials"] == 2
    assert address.file is not None
    address.file.unlink()
    write(tmp_path / "output", summary(name="last", timestamp=1.81e9))
    with pytest.raises(StoreError, match="is not there; `perfrun index` makes it"):
        results.bring_up_to_date(is_running=False)
    assert not address.file.exists()


def test_a_page_that_was_waited_for_is_that_of_the_newest_results(tmp_path: Path) -> None:
    write(tmp_path / "output", summary())
    address = parse_address(None, tmp_path)
    with open_store(address) as store:
        store.refresh()
    results = Results(Index(address=address, root=tmp_path.resolve()), tmp_path, "title")

    class Waited:
        """A lock for which somebody waits while new results come."""

        def __enter__(self) -> None:
            write(tmp_path / "output", summary(name="later", timestamp=1.8e9))
            with open_store(address) as store:
                store.refresh()

        def __exit__(self, *_: object) -> None: ...

    results._making = Waited()  # type: ignore[assignment]
    assert results.page().stamp == results.stamp()


def test_a_cookie_is_found_beside_odd_ones_of_other_programs() -> None:
    name, right = "perfrun_8080", cookie_of("x" * 16)
    rules = Rules(names=frozenset(), token="x" * 16, cookie=name)

    def status(cookie: str) -> int | None:
        headers = [(b"host", b"127.0.0.1"), (b"cookie", cookie.encode())]
        scope = {"method": "GET", "path": "/api/page", "query_string": b"", "headers": headers}
        refusal = Guard(None, rules)._refusal(scope)  # type: ignore[arg-type]
        return refusal and refusal.status

    for before in ('prefs={"a":1}; ', "a b=c;", "=;;", f"{name}=old; "):
        assert status(f"{before}{name}={right}") is None
        assert status(f"{before}{name}={right[:-1]}") == 401
        assert status(f"{before}x{name}={right}") == 401


@pytest.mark.postgresql
def test_a_store_on_a_server_gives_the_same_answers(
    postgresql: postgres.Server, tmp_path: Path
) -> None:
    write(tmp_path / "output", *trials([1.0 + n / 1000 for n in range(5)]))
    answers = []
    for store in (postgresql.new_database(), str(tmp_path / "i.sqlite")):
        address = parse_address(store, tmp_path)
        with open_store(address) as opened:
            opened.refresh([tmp_path / "output"])
        results = Results(Index(address=address, root=None), tmp_path, "title")
        methods = results.methods("pkg.*", 10, "")
        wall = next(s for s in methods["methods"][0]["series"] if s["metric"] == "wall_time")
        page = json.loads(results.page().answer.data)
        assert page.pop("selection").startswith("all results of ")
        method = json.loads(results.method(page["methods"][0]["href"][-16:]).data)
        stamp = results.stamp()
        assert stamp == results.stamp()
        answers.append(
            (
                methods,
                results.series(wall["id"], 10, None),
                results.trials(Selection(status="passed"), 1, None)["trials"],
                {**page, "made": 0},
                {**method, "made": 0},
            )
        )
    assert answers[0] == answers[1]

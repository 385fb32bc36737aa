"""Two hundred writers at once on one PostgreSQL server, which is restarted in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import postgres
import pytest
from trial_documents import perfrun_summary, write_summary

from perfrun.options.store_address import parse_address
from perfrun.store import recorder
from perfrun.store.index import open_store

pytestmark = pytest.mark.postgresql

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300
PROCESSES, WRITERS_EACH, TRIALS_EACH = 4, 50, 2
AWAY = 4  # writers that cannot reach the server
# Each thread is a node with the recorder of a run, which has a connection of its own: two hundred
# interpreters would take minutes of CPU time. All are in front of the server at once.
WRITERS = """
import json, sys, threading
from pathlib import Path
from perfrun.options.store_address import parse_address
from perfrun.store import recorder
recorder.FINISH_S = 240.0
nodes = [Path(name) for name in sys.argv[2:]]
begin, goes_on, notes = threading.Barrier(len(nodes)), threading.Event(), {}
def write(node):
    own = notes.setdefault(node.name, [])
    store = "postgresql://me:word@127.0.0.1:1/perf" if "away" in node.name else sys.argv[1]
    index = recorder.IndexRecorder(parse_address(store, node), own.append)
    begin.wait()
    for number, summary in enumerate(sorted(node.glob("output/*/perfzero_summary.json"))):
        index.add(summary)
        sys.stdout.write(".")
        sys.stdout.flush()
        if not number:
            goes_on.wait()
    index.finish()
threads = [threading.Thread(target=write, args=(node,)) for node in nodes]
for one in threads:
    one.start()
sys.stdin.readline()
goes_on.set()
for one in threads:
    one.join()
print(json.dumps(notes))
"""


def test_two_hundred_writers_and_a_restart_lose_nothing_and_write_nothing_twice(
    postgresql: postgres.Server, tmp_path: Path
) -> None:
    store = postgresql.new_database()
    written: dict[str, float] = {}
    away: set[str] = set()
    collected = tmp_path / "collected"
    names = [f"node-{number:03}" for number in range(PROCESSES * WRITERS_EACH)]
    nodes = [tmp_path / name for name in [*names, *(f"away-{n}" for n in range(AWAY))]]
    for number, node in enumerate(nodes):
        (node / "runs").mkdir(parents=True)
        for trial in range(number * TRIALS_EACH, (number + 1) * TRIALS_EACH):
            document = perfrun_summary(trial, wall_time=1 + trial / 7)
            written[document["execution_id"]] = 1 + trial / 7
            away |= {document["execution_id"]} if "away" in node.name else set()
            write_summary(node / "output", document)
            write_summary(collected, document)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITERS, store, *map(str, nodes[first::PROCESSES])],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for first in range(PROCESSES)
    ]
    for one in started:  # each of the two hundred has had an answer, if only that there is no room
        assert one.stdout is not None
        assert len(one.stdout.read(len(nodes[::PROCESSES]))) == len(nodes[::PROCESSES])
    # The same results on a second way, at the same time.
    words = [sys.executable, "-m", "perfrun", "index", f"--store={store}", str(collected)]
    second = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for one in started:
        assert one.stdin is not None
        one.stdin.write(b"\n")
        one.stdin.flush()
    assert started[0].stdout is not None
    started[0].stdout.read(5)
    postgresql.stop("fast")
    postgresql.start()
    notes: dict[str, list[str]] = {}
    for one in started:
        out, err = one.communicate(timeout=PATIENCE_S)
        assert one.returncode == 0, err.decode()
        notes |= json.loads(out.decode().lstrip("."))
    missing = {name for name, own in notes.items() if any("are not in" in note for note in own)}
    assert missing == {f"away-{number}" for number in range(AWAY)}, notes
    _, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode in (0, 2), err.decode()
    assert len(err.splitlines()) == (second.returncode == 2), err.decode()  # the restart hit it

    with open_store(parse_address(store, tmp_path)) as opened:
        assert {record.execution_id for record in opened.trials()} >= written.keys() - away
        opened.refresh([collected, *nodes])
        records = list(opened.trials())
        assert len(records) == len(written)
        assert {r.execution_id: r.values["wall_time"] for r in records} == written
        assert opened.refresh([collected, *nodes]).read == 0


def test_a_run_waits_at_its_end_for_a_server_that_is_full_until_nobody_wants_to(
    postgresql: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_PATIENCE_S", 0.1)
    store = postgresql.new_database()
    with postgresql.connection("postgres") as connection:
        connection.execute(
            f"CREATE ROLE crowd LOGIN PASSWORD '{postgres.PASSWORD}' CONNECTION LIMIT 0"
        )
        connection.execute(f'ALTER DATABASE "{store.rpartition("/")[2]}" OWNER TO crowd')
        notes: list[str] = []
        address = parse_address(store.replace("//perfrun:", "//crowd:"), tmp_path)
        index = recorder.IndexRecorder(address, notes.append)
        index.add(write_summary(tmp_path / "output", perfrun_summary()))
        assert not notes  # it may pass
        index.finish(lambda: True)
        assert "too many connections" in notes[0]
        assert "1 results are not in" in notes[1]
        assert len(notes) == 2
        looks: list[int] = []

        def let_in() -> bool:
            if len(looks) == 3:
                connection.execute("ALTER ROLE crowd CONNECTION LIMIT 1")
            looks.append(1)
            return False

        index.finish(let_in)
        assert len(notes) == 2
    with open_store(address) as opened:
        assert opened.counts().trials == 1


def test_a_run_does_not_wait_for_a_server_that_may_not_be_written(
    postgresql: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgresql.new_database()
    notes: list[str] = []
    index = recorder.IndexRecorder(parse_address(store, tmp_path), notes.append)
    index.add(write_summary(tmp_path / "output", perfrun_summary()))
    assert not notes
    with postgresql.connection("postgres") as connection:
        name = store.rpartition("/")[2]
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    waits: list[int] = []
    monkeypatch.setattr(recorder.Backoff, "wait", lambda _: bool(waits.append(1)))
    index.add(write_summary(tmp_path / "output", perfrun_summary(1)))
    index.finish()
    assert not waits
    assert "read-only transaction" in notes[0]

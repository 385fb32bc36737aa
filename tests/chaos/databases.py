"""PostgreSQL ends, falls silent or throws its clients out while a run or an index uses it.

The server is a cluster of this process's own. It is back at the end, and then it has each trial
that was reported once, with its figures. A run never waits for it to succeed: all its methods pass.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import postgres
from accidents import later
from proxy import Proxy
from subject import METHODS, Subject, Watch

FIGURES = {METHODS[0]: 1.0, METHODS[1]: 2.0}
_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name='perfrun'"


def missing() -> str | None:
    """Return what is not there that these faults need; None when all is."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg (pip install 'perfrun[postgresql]')"
    return None if postgres.programs() else "initdb (Debian's package postgresql)"


def hasten() -> None:
    """Make perfrun's limit of a transaction shorter, in this process."""
    from perfrun.store import database

    database.TRANSACTION_S = 5.0


class Databases:
    """Makes the faults, with a server that lives as long as this."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stack = contextlib.ExitStack()
        programs = postgres.programs()
        assert programs is not None
        self._server = self._stack.enter_context(postgres.running(programs))

    def close(self) -> None:
        """End the server."""
        self._server.start()  # one that was killed cannot be told to stop
        self._stack.close()

    def make(self, kind: str, seed: str) -> list[str]:
        """Make one fault; return what was wrong afterwards."""
        del kind
        draw = random.Random(seed)
        scenario = draw.choice(("run", "run", "resume", "index", "history"))
        proxy = Proxy(self._server.port, draw) if draw.random() < 0.35 else None
        harm = draw.choice(HARMS)
        said = proxy.how if proxy else harm.__name__
        port = (proxy or self._server).port
        with self._database() as store, proxy.passing() if proxy else contextlib.nullcontext():
            subject = Subject(
                self._place / seed,
                "resume" if scenario == "resume" else "plain",
                store=store.replace(f":{self._server.port}/", f":{port}/"),
                set_up=hasten,
                takes_internal_errors=False,
            )
            subject.prepare()
            if scenario in ("index", "history"):
                found = self._command(scenario, subject, proxy, self._accident(harm, draw, 0.6))
            else:
                found = self._run(subject, proxy, self._accident(harm, draw, 2.0))
            found += _wrong_figures(subject)
        return [f"{scenario}, {said}: {problem}" for problem in [*found, *self._left_open()]]

    @contextlib.contextmanager
    def _database(self) -> Iterator[str]:
        store = self._server.new_database()
        yield store
        with self._server.connection("postgres") as connection:
            connection.execute(f'DROP DATABASE "{store.rpartition("/")[2]}" WITH (FORCE)')

    def _run(self, subject: Subject, proxy: Proxy | None, accident: Watch) -> list[str]:
        """No database harms a run's trials, or its exit status."""
        ended = subject.run(watched=proxy.breaking if proxy else accident)
        self._server.start()
        found = subject.problems(ended)
        if ended.code != 0:
            found.append(f"status {ended.code}: {ended.err[-600:]}")
        return found

    def _command(
        self, command: str, subject: Subject, proxy: Proxy | None, accident: Watch
    ) -> list[str]:
        """A command that uses the index does its work or says in one line why not."""
        replace(subject, store=None).run()
        words = [command, f"--workspace={subject.workspace}", f"--store={subject.store}"]
        started = subject.start_words([*words, "--format=json"], stop=True)
        ended = started.end(proxy.breaking if proxy else accident)
        self._server.start()
        found = []
        lines = [line for line in ended.err.splitlines() if line.strip()]
        if ended.hung or ended.code not in (0, 2) or (ended.code == 2 and len(lines) != 1):
            found.append(f"status {ended.code}: {ended.err[-600:]}")
        if "s3cret" in ended.err + ended.out:
            found.append(f"the password is shown: {ended.err[-300:]}")
        again = subject.start_words(["index", *words[1:]], tag="-again").end()
        if again.code != 0:
            found.append(f"again: {again.code}: {again.err[-600:]}")
        if len(subject.indexed()) != len(METHODS):
            found.append("not all is in the index")
        return found + [f"runs on: {line}" for line in subject.left_running()]

    def _accident(self, harm: Harm, draw: random.Random, latest_s: float) -> Watch:
        at_s, back_after_s = draw.uniform(0, latest_s), draw.choice((0.0, draw.uniform(0, 2.5)))

        def happen(_: int) -> None:
            harm(self._server, draw)
            time.sleep(back_after_s)
            self._server.start()

        return lambda pid: later(at_s, happen, pid)

    def _left_open(self) -> list[str]:
        """Connections that nobody uses any more."""
        with self._server.connection("postgres") as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name='perfrun'"
            count = connection.execute(query).fetchone()[0]
        return [f"{count} connections are open still"] if count else []


def _wrong_figures(subject: Subject) -> list[str]:
    """What the index says of the trials that it has."""
    from perfrun.options.store_address import parse_address
    from perfrun.store.index import open_store

    with open_store(parse_address(subject.store, subject.workspace)) as store:
        records = list(store.trials())
    found = []
    for record in records:
        value = record.metrics["wall_time"].value if "wall_time" in record.metrics else None
        if record.status.value == "passed" and value != FIGURES[record.subject.method]:
            found.append(f"half in the index: {record.path}: {value}")
    if len({record.path for record in records}) != len(records):
        found.append("a trial is twice in the index")
    return found


def _kill_postmaster(server: postgres.Server, _: random.Random) -> None:
    for pid in server.pids[:1]:
        os.kill(pid, signal.SIGKILL)


def _kill_all(server: postgres.Server, _: random.Random) -> None:
    for pid in server.pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_one(server: postgres.Server, draw: random.Random) -> None:
    """A process of the server crashes: the postmaster throws everybody out and recovers."""
    pids = server.pids[1:]
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice((pids[-1], draw.choice(pids))), signal.SIGKILL)


def _stop(server: postgres.Server, draw: random.Random) -> None:
    server.stop(draw.choice(("immediate", "fast")))


def _throw_out(server: postgres.Server, draw: random.Random) -> None:
    """Each connection of perfrun is ended, for a while again and again."""
    end = time.monotonic() + draw.choice((0.0, draw.uniform(0, 1.5)))
    while True:
        with contextlib.suppress(Exception), server.connection("postgres") as connection:
            connection.execute(_OTHERS)
        if time.monotonic() >= end:
            return
        time.sleep(0.01)


def _freeze(server: postgres.Server, draw: random.Random) -> None:
    """All of the server stands still for a while; some of it may then be killed."""
    pids = server.pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(draw.uniform(0.1, 3.0))
    if draw.random() < 0.3:
        _kill_postmaster(server, draw)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


Harm = Callable[[postgres.Server, random.Random], None]
HARMS: tuple[Harm, ...] = (_kill_postmaster, _kill_all, _kill_one, _stop, _throw_out, _freeze)

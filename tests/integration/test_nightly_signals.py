"""Signals and the deadline of a night, each at a moment at which the night is held.

A fifo holds whoever reads from it until its writer closes it, so the moment is known without a
clock. perfrun itself opens no fifo, so a night is held by a program that calls it.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perfrun.nightly import units as units_module
from perfrun.nightly.night_state import Nights
from perfrun.nightly.suite import EnvironmentSpec, MethodSpec, Rules, Suite, UnitDone, units
from perfrun.nightly.units import Units
from perfrun.options.plan import RunPlan, parse_selector
from perfrun.reports.terminal import Terminal
from perfrun.run.interruption import Interruption
from tests.integration.test_nightly import Place, states
from tests.worlds import ENTRY, PATIENCE_S, World, finish, strict, wait_until


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "a b")


HOLDER = """
import os, runpy, sys

sys.path.insert(0, {root!r})

def hold():
    end = os.open({fifo!r}, os.O_RDONLY)
    os.read(end, 1)
    os.close(end)

{code}
runpy.run_path({entry!r}, run_name="__main__")
"""
AT_A_FILE = """
from perfrun.untrusted import Folder

def write(folder, name, *words, **more):
    if name.endswith({name!r}) and not held:
        held.append(name)
        hold()
    return whole(folder, name, *words, **more)

held, whole, Folder.write = [], Folder.write, write
"""
AT_PRUNING = """
from perfrun.nightly import prune

def first(*words):
    hold()
    return going_on(*words)

going_on, prune.going_on = prune.going_on, first
"""


def held_place(tmp_path: Path, code: str) -> tuple[Place, Path]:
    """A place whose next night is held by a fifo at the moment that the code names."""
    place, fifo = Place(tmp_path / "a b"), tmp_path / "fifo"
    os.mkfifo(fifo)
    holder = tmp_path / "holder.py"
    root = str(Path(ENTRY).parent.parent)
    holder.write_text(HOLDER.format(root=root, fifo=str(fifo), code=code, entry=ENTRY))
    place.world = replace(place.world, entry=str(holder))
    return place, fifo


def let_go(place: Place) -> None:
    """The nights that follow are not held."""
    place.world = replace(place.world, entry=ENTRY)


def writing_end(fifo: Path) -> int:
    """Wait until somebody waits to read, and open the end that keeps it waiting."""
    found: list[int] = []

    def opened() -> bool:
        try:
            found.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT):  # nobody reads; not there yet
                raise
        return bool(found)

    wait_until(opened)
    return found[0]


@contextmanager
def webhook(answer: Callable[[], int]) -> Iterator[tuple[str, list[str]]]:
    """A server whose answer is what `answer` returns, and the nights that it was told of."""
    told: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.append(json.loads(body)["night"])
            code = answer()
            try:
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # perfrun has gone

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/hook", told
        finally:
            server.shutdown()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_steps_of_a_run_ends_the_night(
    tmp_path: Path, number: signal.Signals
) -> None:
    place, fifo = held_place(tmp_path, AT_A_FILE.format(name=".report.json"))
    place.write()
    process = place.start()
    end = writing_end(fifo)
    assert len(place.world.summary_files()) == 2  # no trial of this run is to come
    process.send_signal(number)
    os.close(end)
    done = finish(process)
    let_go(place)
    assert done.code == 130, done.stderr
    assert "the same command goes on with it" in done.stderr
    assert place.begun() == {"one": 2}
    again = place.run()
    assert again.code == 0, again.stderr
    told = strict(again.stdout)
    assert "went on after 1 of 2 runs" in told["notes"][0]
    assert [method["trials"] for method in told["methods"]] == [2, 3]
    assert place.begun() == {"one": 2, "two": 3}


def test_a_signal_while_the_webhook_does_not_answer_is_answered_at_once(place: Place) -> None:
    is_open = threading.Event()

    def answer() -> int:
        assert is_open.wait(10 * PATIENCE_S)
        return 200

    with webhook(answer) as (url, told):
        place.write(f"webhook = '{url}'\n")
        process = place.start()
        wait_until(lambda: told)
        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert (done.code, len(told)) == (130, 1), done.stderr  # and not tried twice again
        assert "the same command goes on with it" in done.stderr
        (folder,) = (place.world.workspace / "nights").glob("models-*")
        assert strict((folder / "report.json").read_text())["ok"] is True
        is_open.set()
        again = place.run()
    assert again.code == 0, again.stderr
    assert "went on after 2 of 2 runs" in strict(again.stdout)["notes"][0]
    assert told == [folder.name] * 2
    assert place.begun() == {"one": 2, "two": 3}


def test_a_signal_while_results_are_pruned_is_answered_at_once(tmp_path: Path) -> None:
    place, fifo = held_place(tmp_path, AT_PRUNING)
    place.write("[retention]\nkeep_per_series = 1\n")
    process = place.start()
    end = writing_end(fifo)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    os.close(end)
    assert done.code == 130, done.stderr
    assert "is over and its reports are written" in done.stderr
    assert len(place.world.summary_files()) == 5
    let_go(place)
    place.write("[retention]\nkeep_per_series = 1\n")
    next_night = place.run()
    assert next_night.code == 0, next_night.stderr
    assert len(place.world.summary_files()) == 2
    assert "went on" not in "".join(strict(next_night.stdout)["notes"])


def test_a_signal_never_cuts_a_report_short(tmp_path: Path) -> None:
    place, fifo = held_place(tmp_path, AT_A_FILE.format(name="night.md"))
    out = place.suite.parent / "out"
    out.mkdir()
    place.write('[output]\nmarkdown = "out/night.md"\njson = "out/night.json"\n')
    process = place.start()
    end = writing_end(fifo)
    process.send_signal(signal.SIGINT)
    os.close(end)
    done = finish(process)
    assert done.code == 130, done.stderr
    assert (out / "night.md").read_text().startswith("# models: all well")
    (folder,) = (place.world.workspace / "nights").glob("models-*")
    assert {path.name for path in folder.iterdir()} == {
        *("night.json", "report.md", "report.json", "junit.xml", "metrics.prom")
    }
    assert strict((out / "night.json").read_text())["ok"] is True
    assert {path.name for path in out.iterdir()} == {"night.md", "night.json"}
    let_go(place)
    again = place.run()
    assert again.code == 0, again.stderr
    assert (out / "night.md").read_text() == (folder / "report.md").read_text()


def test_a_run_whose_planning_has_used_up_the_time_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.write(f"""
        class Cases(Benchmark):
            def spin(self):
                open({str(tmp_path / "begun")!r}, "w").close()
                self.report_benchmark(wall_time=1.0)
    """)
    method = MethodSpec(
        selector=parse_selector("pkg.cases.Cases.spin"),
        rules=Rules(flags=(("python_path", str(tmp_path / "code")), ("python", sys.executable))),
    )
    suite = Suite(
        path=tmp_path / "suite.toml",
        name="models",
        digest="d",
        workspace=world.workspace,
        methods=(method,),
        environments=(EnvironmentSpec(name="default"),),
        deadline="2s",
    )
    nights = Nights(suite.workspace)
    night = nights.begin(suite, time.time())
    looked = units_module.complete

    def until_the_deadline(runs: Path, plan: RunPlan) -> Any:
        while time.time() <= (night.deadline or 0.0):
            time.sleep(0.01)
        return looked(runs, plan)

    monkeypatch.setattr(units_module, "complete", until_the_deadline)
    screen = Terminal(sys.stderr, sys.stderr, quiet=True)
    with Interruption().installed() as interruption:
        running = Units(suite, nights, night, screen, interruption, resumed=True)
        running.run()
    assert running.night.units == {unit.name: UnitDone() for unit in units(suite)}
    assert nights.unfinished(suite) == running.night
    assert not (tmp_path / "begun").exists()


def test_the_deadline_ends_a_run_that_is_still_being_prepared(place: Place) -> None:
    slow = place.suite.parent / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    place.write("deadline = '3s'\n[[environments]]\nname = 'slow'\npython = './python'\n")
    done = place.run()
    assert done.code == 1, done.stderr
    report = strict(done.stdout)
    assert states(report) == {"one": "not_run", "two": "not_run"}
    assert {method["why"] for method in report["methods"]} == {
        "its turn did not come before the night's deadline"
    }
    assert place.world.left_running() == []

"""How many trials a method gets and in which order: real runs, on methods whose noise is known."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds import Finished, World, finish, strict, wait_held, wait_until

# Each start reports the next of a series of times; the number of starts is in a file.
CLASS = """
class Noisy(Benchmark):
    def _next(self, name, times):
        with open({folder!r} + "/" + name, "a+") as file:
            file.write("x")
            file.seek(0)
            count = len(file.read())
        self.report_benchmark(wall_time=times[(count - 1) % len(times)])

    def quiet(self):
        self._next("quiet", [1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0])

    def noisy(self):
        self._next("noisy", [1.0, 1.03, 0.97, 1.02, 0.98, 1.01, 0.99])

    def fails(self):
        self._next("fails", [1.0])
        raise ValueError("as ever")

    def silent(self):
        pass

    def lasts(self):
        time.sleep(0.4)
        self._next("lasts", [1.0])

    def waits(self):
        self._next("waits", [1.0, 1.1])
        while os.path.exists({blocked!r}) and len(open({folder!r} + "/waits").read()) > 3:
            time.sleep(0.01)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write(CLASS.format(folder=str(tmp_path), blocked=str(tmp_path / "blocked")))
    return world


def methods(*names: str) -> str:
    return ",".join(f"pkg.cases.Noisy.{name}" for name in names)


def starts(world: World, name: str) -> int:
    path = world.folder / name
    return len(path.read_text()) if path.exists() else 0


def estimates(done: Finished) -> dict[str, dict[str, Any]]:
    """The methods of `--format=json`, by short name."""
    found = strict(done.stdout)["methods"]
    return {method["name"].rpartition(".")[2]: method for method in found}


def is_settled(method: dict[str, Any], trials: int) -> bool:
    """Whether so many trials sufficed; where the machine was disturbed, more were needed."""
    return method["trials"] == trials or (method["disturbed"] > 0 and method["trials"] > trials)


def orders(done: Finished) -> list[dict[str, Any]]:
    return [document["perfrun"]["order"] for document in done.summaries()]


def test_a_noisy_method_gets_more_trials_than_a_quiet_one(world: World) -> None:
    words = ("--precision=1%", "--max_trials=20", "--max_reruns=0", "--format=json")
    done = world.run(*words, methods=methods("quiet", "noisy"))
    assert done.code == 0
    found = estimates(done)
    assert found["quiet"]["trials"] == starts(world, "quiet")
    assert is_settled(found["quiet"], 6)
    assert 6 < found["noisy"]["trials"] == starts(world, "noisy") <= 20
    for method in found.values():
        if method["used"] >= 6:
            assert method["low_s"] <= method["median_s"] <= method["high_s"]
            assert method["minimum_detectable_effect"] > 0
    if found["quiet"]["used"] >= 6:
        assert found["quiet"]["stopped_by"] == "precision"
        assert found["quiet"]["relative_half_width"] <= 0.01
    [report] = world.workspace.glob("runs/*.report.json")
    kept = strict(report.read_text())
    assert kept["methods"] == strict(done.stdout)["methods"]
    assert kept["seed"] == orders(done)[0]["seed"]


def test_every_trial_says_where_it_stood(world: World) -> None:
    words = ("--benchmark_num_trials=3", "--seed=5", "--format=json")
    first = world.run(*words, methods=methods("quiet", "noisy", "silent"))
    again = world.run(*words, methods=methods("quiet", "noisy", "silent"))
    assert orders(first) == orders(again)
    assert {order["seed"] for order in orders(first)} == {5}
    assert sorted(order["position"] for order in orders(first)) == list(range(1, 10))
    assert [order["round"] for order in orders(first)] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert all(order["rerun_of"] is None for order in orders(first))
    # The folders' names are times: they were really run in the order that is recorded.
    by_position = sorted(first.summaries(), key=lambda d: d["perfrun"]["order"]["position"])
    assert by_position == sorted(first.summaries(), key=lambda d: d["execution_id"])


def test_a_single_round_keeps_the_order_and_has_no_seed(world: World) -> None:
    done = world.run("--format=json", "--seed=5", methods=methods("silent", "noisy", "quiet"))
    assert [order["position"] for order in orders(done)] == [1, 2, 3]
    assert {order["seed"] for order in orders(done)} == {None}
    found = estimates(done)
    assert found["quiet"]["median_s"] == 1.0
    assert found["quiet"]["minimum_detectable_effect"] is None
    assert found["silent"]["median_s"] is None


def test_what_cannot_be_steered_is_not_run_for_ever(world: World) -> None:
    words = ("--precision=1%", "--max_reruns=0", "--format=json")
    done = world.run(*words, methods=methods("fails", "silent", "quiet"))
    assert done.code == 1
    found = estimates(done)
    assert {name: method["stopped_by"] for name, method in found.items()} == {
        "fails": "failed",
        "silent": "no_figure",
        "quiet": "precision" if found["quiet"]["used"] >= 6 else "max_trials",
    }
    assert (found["fails"]["trials"], found["silent"]["trials"]) == (3, 1)


def test_without_time_every_method_still_runs_once(world: World) -> None:
    words = ("--precision=1%", "--time_budget=0.001", "--format=json")
    done = world.run(*words, methods=methods("quiet", "noisy"))
    assert done.code == 0
    assert (starts(world, "quiet"), starts(world, "noisy")) == (1, 1)
    assert {method["stopped_by"] for method in estimates(done).values()} == {"time_budget"}


@pytest.mark.parametrize("count", [0, 4, 9, 13])
def test_a_killed_run_goes_on_with_its_seed_and_its_rounds(count: int, world: World) -> None:
    words = ("--precision=2%", "--max_trials=9", "--max_reruns=0", "--format=json")
    process = world.start(*words, methods=methods("quiet", "noisy"))
    wait_until(lambda: len(world.summary_files()) >= count or process.poll() is not None)
    process.kill()
    finish(process)
    assert world.left_running() == []
    done = world.run(*words, "--resume", methods=methods("quiet", "noisy"))
    assert done.code == 0
    assert len({order["seed"] for order in orders(done)}) == 1
    keys = Counter((result["name"], result["trial_id"]) for result in done.results)
    assert set(keys.values()) == {1}
    found = estimates(done)
    assert is_settled(found["quiet"], 6)
    assert found["noisy"]["trials"] == len(done.results) - found["quiet"]["trials"]
    positions = [order["position"] for order in orders(done)]
    assert sorted(positions) == list(range(1, len(positions) + 1))


def test_an_interrupted_run_reports_what_there_is(world: World) -> None:
    blocked = world.folder / "blocked"
    blocked.touch()  # the fourth trial waits; of three, at least two count on a busy machine
    words = ("--benchmark_num_trials=5", "--format=json")
    process = world.start(*words, methods=methods("quiet", "waits"))
    wait_until(lambda: starts(world, "waits") >= 4 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    found = estimates(done)
    assert found["waits"]["trials"] >= 3
    assert found["waits"]["low_s"] is not None
    assert found["waits"]["stopped_by"] == "interrupted"
    [report] = world.workspace.glob("runs/*.report.json")
    assert strict(report.read_text())["interrupted"] is True
    blocked.unlink()
    resumed = world.run(*words, "--resume", methods=methods("quiet", "waits"))
    assert resumed.code == 0
    trials = Counter(result["trial_id"] for result in resumed.results)
    assert trials == {1: 2, 2: 2, 3: 2, 4: 2, 5: 2}
    assert strict(report.read_text())["interrupted"] is False


def test_a_person_reads_what_the_trials_say(world: World) -> None:
    done = world.run("--benchmark_num_trials=6", methods=methods("quiet", "noisy"))
    [line] = [line for line in done.stdout.splitlines() if "Noisy.noisy: " in line]
    assert "6 trials" in line  # of which some were disturbed, on a busy machine
    assert "wall time \u00b1" in line
    assert " per trial; changes below " in line
    assert "would be missed" in line
    assert "wall time (95 % interval)" in done.stdout
    single = world.run(methods=methods("quiet"))
    assert "One trial a method: no interval" in single.stdout


def test_statistics_are_not_imported_for_a_single_trial(world: World) -> None:
    """PYTHONPROFILEIMPORTTIME lists every import on standard error; the workers have their own."""
    # Of four trials at least two count, however busy the machine is.
    for trials, imported in (("1", False), ("4", True)):
        done = world.run(
            "--quiet",
            "--format=json",
            f"--benchmark_num_trials={trials}",
            methods=methods("quiet"),
            PYTHONPROFILEIMPORTTIME="1",
        )
        names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "perfrun.run.rounds" in names
        assert ("numpy" in names) is ("perfrun.analysis.stats" in names) is imported
        assert "scipy.stats" not in names


def test_a_time_that_is_not_finite_is_no_value(world: World) -> None:
    world.write(
        """
        class Odd(Benchmark):
            def infinite(self):
                self.report_benchmark(wall_time=float("inf"))
        """,
        module="odd",
    )
    done = world.run("--benchmark_num_trials=2", "--format=json", methods="pkg.odd.Odd.infinite")
    [method] = strict(done.stdout)["methods"]
    assert (done.code, method["trials"], method["used"]) == (0, 2, 0)


def test_a_report_that_cannot_be_written_is_said_and_loses_nothing(world: World) -> None:
    world.workspace.mkdir()
    (world.workspace / "runs").write_text("a file in the place of the folder")
    done = world.run("--format=json", "--benchmark_num_trials=2", methods=methods("quiet"))
    assert (done.code, done.statuses) == (0, ["passed", "passed"])
    assert ".report.json could not be written" in done.stderr
    assert estimates(done)["quiet"]["trials"] == 2


def test_the_place_of_a_trial_that_was_recovered_is_recorded(world: World) -> None:
    """The harness dies between the method's outcome and the summary."""
    world.write(
        """
        class Kills(Benchmark):
            def after(self):
                self.report_benchmark(wall_time=1.0)
                if not os.path.exists("killed"):
                    open("killed", "w").close()
                    import atexit  # runs when the outcome is written and the process lives on
                    kill = lambda: (os.kill(harness_pid(), signal.SIGKILL), time.sleep(60))
                    atexit.register(kill)
        """,
        module="kills",
    )
    words = ("--benchmark_num_trials=2", "--format=json")
    assert world.run(*words, methods="pkg.kills.Kills.after").code == -signal.SIGKILL
    resumed = world.run(*words, "--resume", methods="pkg.kills.Kills.after")
    assert resumed.statuses == ["passed", "passed"]
    assert [order["position"] for order in orders(resumed)] == [1, 2]
    assert len({order["seed"] for order in orders(resumed)}) == 1


def test_a_broken_numpy_costs_the_statistics_and_nothing_else(world: World) -> None:
    package = world.folder / "broken" / "numpy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('libopenblas is not there')")
    # Of three trials at least two count, however busy the machine is.
    done = world.run(
        "--format=json",
        "--benchmark_num_trials=3",
        methods=methods("quiet"),
        PYTHONPATH=str(package.parent),
    )
    assert (done.code, done.statuses) == (0, ["passed"] * 3)
    assert strict(done.stdout)["methods"] == []
    assert "no statistics over the trials: libopenblas is not there" in done.stderr


@pytest.fixture
def loaded_machine() -> Iterator[None]:
    """Other work on every CPU for as long as the test takes."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    yield
    for process in busy:
        process.kill()
        process.wait()


def test_disturbed_trials_are_kept_and_run_again(world: World, loaded_machine: None) -> None:
    """The method lasts: /proc/stat has steps of 10 ms, so of a short trial it tells nothing."""
    done = world.run("--max_reruns=2", "--format=json", methods=methods("lasts"))
    assert done.code == 0
    assert [order["rerun_of"] for order in orders(done)] == [None, 1, 2]
    assert [result["trial_id"] for result in done.results] == [1, 2, 3]
    assert len(world.summary_files()) == 3
    method = estimates(done)["lasts"]
    assert (method["trials"], method["disturbed"], method["used"]) == (3, 3, 3)


@pytest.fixture
def wrapper(tmp_path: Path) -> str:
    """An interpreter that is a script which starts the real one, and does not become it."""
    path = tmp_path / "wrapped python"
    path.write_text(f'#!/bin/sh\n{shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o755)
    return str(path)


WRAPPED = """
class Wrapped(Benchmark):
    def allocates(self):
        assert open("/proc/%d/cmdline" % os.getppid()).read().startswith("/bin/sh")
        block = bytearray(b"x") * (300 << 20)
        end = time.process_time() + 0.5
        while time.process_time() < end: pass
        self.report_benchmark(wall_time=1.0)

    def waits(self):
        subprocess.Popen(["sleep", "600"])
        open({held!r}, "w").close()
        time.sleep(600)
"""


def test_an_interpreter_that_is_a_wrapper_runs_trials_whose_figures_are_the_workers(
    world: World, wrapper: str
) -> None:
    world.write(WRAPPED.format(held=""), "wrapped")
    last = world.run(
        f"--python={wrapper}", "--format=json", methods="pkg.wrapped.Wrapped.allocates"
    )
    assert (last.code, last.statuses) == (0, ["passed"]), last.stderr
    [document] = last.summaries()
    info = document["process_info"]
    assert 300 * 2**20 < info["max_rss"] < 400 * 2**20
    assert 0.5 < info["user_cpu_time"] + info["system_cpu_time"] < 5
    assert document["perfrun"]["memory"]["tree_processes"] == 1
    assert document["perfrun"]["outcome"]["stray_processes"] == []
    assert world.left_running() == []


def test_a_harness_that_is_killed_leaves_nothing_of_a_wrapped_interpreter(
    world: World, wrapper: str, tmp_path: Path
) -> None:
    world.write(WRAPPED.format(held=str(tmp_path / "held")), "wrapped")
    process = world.start(f"--python={wrapper}", methods="pkg.wrapped.Wrapped.waits")
    wait_held(process, tmp_path / "held")
    process.kill()
    finish(process)
    assert world.left_running() == []


def test_a_harness_that_is_killed_leaves_no_throw_away_worker_of_a_wrapped_interpreter(
    world: World, wrapper: str, tmp_path: Path
) -> None:
    world.write(f"open({str(tmp_path / 'held')!r}, 'w').close()\ntime.sleep(600)", "hanging")
    process = world.start("list", f"--python={wrapper}", "pkg.hanging")
    wait_held(process, tmp_path / "held")
    process.kill()
    finish(process)
    assert world.left_running() == []


def test_a_quiet_run_prints_errors_only_and_a_log_has_one_line_a_trial(world: World) -> None:
    world.write(
        """
        class Told(Benchmark):
            def passes(self):
                print("printed")
                self.report_benchmark(wall_time=1.0)
            def fails(self):
                raise ValueError("no labels")
        """,
        "told",
    )
    names = "pkg.told.Told.passes,pkg.told.Told.fails"
    quiet = world.run("--quiet", methods=names)
    assert (quiet.code, quiet.stdout) == (1, "")
    assert re.fullmatch(
        r"perfrun: pkg\.told\.Told\.fails, trial 1: failed \(ValueError: no labels\); "
        r"\S+/perfzero_summary\.json\n",
        quiet.stderr,
    )
    assert len(world.summary_files()) == 2
    log = world.run("--benchmark_num_trials=2", methods="pkg.told.Told.passes")
    told = [line for line in log.stdout.splitlines() if ", trial " in line]
    assert [line.partition("]")[0] for line in told] == ["[1/2", "[2/2"]
    assert log.stdout.count("printed\n") == 2

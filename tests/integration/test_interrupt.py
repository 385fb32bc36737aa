"""Ctrl-C and termination signals end the trial in good order and the run with 130."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from worlds import World, finish, strict, wait_until

CLASS = """
READY = {ready!r}

def touch(path):
    open(path, "w").close()

class Waits(Benchmark):
    def first(self):
        self.report_benchmark(wall_time=1.0)

    def waits_for_ever(self):
        self.report_benchmark(wall_time=2.0)
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        touch(READY)
        threading.Event().wait()

    def ignores_sigterm(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.waits()

    def answers_sigterm(self):  # with a second Ctrl-C, which nobody could press faster
        signal.signal(signal.SIGTERM, lambda *_: os.kill(harness_pid(), signal.SIGINT))
        self.waits()

    def waits(self):
        touch(READY)
        while True:
            time.sleep(600)

    def hangs_at_exit(self):
        self.report_benchmark(wall_time=2.0)
        touch(READY)
        threading.Thread(target=time.sleep, args=(600,)).start()
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(CLASS.format(ready=str(tmp_path / "ready")))
    return made


def methods(*names: str) -> str:
    return ",".join(f"pkg.cases.Waits.{name}" for name in names)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_trial_with_a_summary_and_the_run_with_130(
    number: signal.Signals, world: World
) -> None:
    process = world.start(methods=methods("first", "waits_for_ever", "first"))
    wait_until((world.folder / "ready").exists)
    process.send_signal(number)
    done = finish(process)
    assert done.code == 130
    first, waits = [strict(path.read_text()) for path in world.summary_files()]
    assert first["perfrun"]["outcome"]["status"] == "passed"
    outcome = waits["perfrun"]["outcome"]
    assert (outcome["status"], outcome["phase"]) == ("interrupted", "method")
    assert outcome["reason"] == "interrupted during method"
    assert "in waits_for_ever" in outcome["stack"]
    assert waits["benchmark_result"]["wall_time"] == -1
    assert waits["perfrun"]["reports"][0]["wall_time"] == 2.0  # what was reported is kept
    table = done.stdout[done.stdout.index("peak memory") :]
    assert "Waits.first" in table
    assert "interrupted" in table
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert world.left_running() == []


def test_a_second_ctrl_c_kills_at_once(world: World) -> None:
    for _ in range(3):  # a worker that gets no processor for two seconds answers too late
        process = world.start("--format=json", methods=methods("answers_sigterm", "first"))
        wait_until((world.folder / "ready").exists)
        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert (done.code, done.statuses) == (130, ["interrupted"])
        outcome = done.summaries()[0]["perfrun"]["outcome"]
        assert outcome["signal"] == "SIGKILL"
        assert world.left_running() == []
        (world.folder / "ready").unlink()
        if outcome["stack"] is None:  # a dump comes after the time to end in, which it had not
            return
    raise AssertionError(outcome["stack"])


def test_one_ctrl_c_is_enough_for_a_method_that_ignores_sigterm(world: World) -> None:
    process = world.start("--format=json", methods=methods("ignores_sigterm", "first"))
    wait_until((world.folder / "ready").exists)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.code, done.statuses) == (130, ["interrupted"])
    assert "in ignores_sigterm" in done.summaries()[0]["perfrun"]["outcome"]["stack"]


def test_ctrl_c_after_a_method_s_end_keeps_its_result_and_ends_the_run(world: World) -> None:
    process = world.start("--format=json", methods=methods("hangs_at_exit", "first"))
    wait_until((world.folder / "ready").exists)
    wait_until(lambda: list(world.workspace.glob("output/*/perfrun/outcome.json")))
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.code, done.statuses) == (130, ["passed"])
    assert done.summaries()[0]["benchmark_result"]["wall_time"] == 2.0


def test_ctrl_c_before_the_first_trial_leaves_nothing_half_done(world: World) -> None:
    ready = world.folder / "ready"
    world.write(f"open({str(ready)!r}, 'w').close()\ntime.sleep(600)", module="slow")
    # A filter is expanded by importing the class in a throw-away worker, which hangs here.
    process = world.start(methods="pkg.slow.Any.filter:.*")
    wait_until(ready.exists)
    process.send_signal(signal.SIGINT)
    done = finish(process)  # before the import would end
    assert done.code == 130
    assert done.stderr.startswith("perfrun: ")
    assert len(done.stderr.splitlines()) == 1
    assert world.summary_files() == []
    assert world.left_running() == []
    assert list(world.temporary.iterdir()) == []

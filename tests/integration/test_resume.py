"""A run that was killed goes on with --resume: nothing finished runs again, nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from worlds import Finished, World, finish, strict, wait_until

# Every method notes its start: which ran, and how often, is then known without asking perfrun.
# Once there are as many summaries as the file `{log}.most` says, a method waits to be killed: no
# kill comes too late, however long this process is kept from sending it.
CLASS = """
class Many(Benchmark):
    def _note(self, name):
        with open({log!r}, "a") as file:
            file.write(name + "\\n")
        if os.path.exists({log!r} + ".most"):
            import glob
            found = glob.glob({output!r} + "/*/perfzero_summary.json")
            if len(found) >= int(open({log!r} + ".most").read()):
                time.sleep(600)
        self.report_benchmark(wall_time=1.0)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def write_methods(world: World, count: int, more: str = "") -> str:
    """Write a class of so many no-op methods and return all of their names."""
    names = [f"m{number:02}" for number in range(count)]
    methods = "".join(f"    def {n}(self):\n        self._note({n!r})\n" for n in names)
    places = {"log": str(world.folder / "starts"), "output": str(world.workspace / "output")}
    world.write(CLASS.format(**places) + methods + more)
    return ",".join(f"pkg.cases.Many.{name}" for name in names)


def starts(world: World) -> Counter[str]:
    """How often each method was begun."""
    path = world.folder / "starts"
    return Counter(path.read_text().split() if path.exists() else [])


def finished(world: World) -> set[str]:
    """The methods whose summary is on disk, short names."""
    documents = [strict(path.read_text()) for path in world.summary_files()]
    return {
        document["benchmark_result"]["name"].rpartition(".")[2]
        for document in documents
        if document["perfrun"]["outcome"]["status"] == "passed"
    }


def kill_when(world: World, count: int, methods: str, *words: str) -> None:
    """Run until so many summaries are there, and then kill the harness itself."""
    most = world.folder / "starts.most"
    most.write_text(str(count))
    process = world.start(*words, "--format=json", methods=methods)
    wait_until(lambda: len(world.summary_files()) >= count or process.poll() is not None)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    most.unlink()
    assert world.left_running() == []  # the worker does not survive its harness


def test_50_methods_killed_again_and_again_all_have_one_result(world: World) -> None:
    methods = write_methods(world, 50)
    kills = (1, 17, 33, 49)
    for count in kills:
        before, done = starts(world), finished(world)
        kill_when(world, count, methods, "--resume")
        again = starts(world) - before
        assert not done & set(again)
    done, before = finished(world), starts(world)
    last = world.run("--resume", "--format=json", methods=methods)
    assert last.code == 0
    assert [result["name"] for result in last.results] == methods.split(",")
    assert last.statuses == ["passed"] * 50
    assert len({result["summary"] for result in last.results}) == 50
    assert len(last.summaries()) == 50
    assert not done & set(starts(world) - before)
    assert len(starts(world)) == 50
    assert starts(world).total() <= 50 + len(kills)  # only what a kill cut short ran twice


@pytest.mark.parametrize("count", [0, 3, 5])
def test_every_trial_of_every_method_is_there_after_a_kill(count: int, world: World) -> None:
    methods = write_methods(world, 2)
    trials = "--benchmark_num_trials=3"
    kill_when(world, count, methods, trials)
    last = world.run("--resume", trials, "--format=json", methods=methods)
    assert last.code == 0
    expected = [(name, trial) for trial in (1, 2, 3) for name in methods.split(",")]
    assert [(r["name"], r["trial_id"]) for r in last.results] == expected
    documents = last.summaries()
    assert [d["benchmark_result"]["trial_id"] for d in documents] == [1, 1, 2, 2, 3, 3]


# The method itself kills the harness, at a moment that nobody could hit from outside.
DURING = """
    def during(self):
        self._note("during")
        if starts_so_far("during") == 1:
            os.kill(harness_pid(), signal.SIGKILL)
            time.sleep(60)

    def after(self):
        self._note("after")
        if starts_so_far("after") == 1:
            import atexit  # runs when the outcome is written and the process has not ended
            atexit.register(lambda: (os.kill(harness_pid(), signal.SIGKILL), time.sleep(60)))

def starts_so_far(name):
    return open({log!r}).read().split().count(name)
"""


def run_killed_by(world: World, method: str) -> tuple[Finished, Finished]:
    write_methods(world, 2, DURING.format(log=str(world.folder / "starts")))
    methods = ",".join(f"pkg.cases.Many.{name}" for name in ("m00", method, "m01"))
    killed = world.run("--format=json", methods=methods)
    assert killed.code == -signal.SIGKILL
    assert world.left_running() == []
    return killed, world.run("--format=json", "--resume", methods=methods)


def test_a_harness_killed_during_a_method_runs_that_method_again(world: World) -> None:
    _, resumed = run_killed_by(world, "during")
    assert (resumed.code, resumed.statuses) == (0, ["passed"] * 3)
    assert starts(world) == {"m00": 1, "during": 2, "m01": 1}
    # What the cut-short trial left is a summary too, and says what happened to it.
    left = [strict(path.read_text())["perfrun"]["outcome"] for path in world.summary_files()]
    [interrupted] = [outcome for outcome in left if outcome["status"] == "interrupted"]
    assert interrupted["reason"] == "perfrun itself was killed during the trial"
    assert len(left) == 4


def test_a_harness_killed_after_a_method_s_outcome_does_not_run_it_again(world: World) -> None:
    _, resumed = run_killed_by(world, "after")
    assert (resumed.code, resumed.statuses) == (0, ["passed"] * 3)
    assert starts(world) == {"m00": 1, "after": 1, "m01": 1}
    document = resumed.summaries()[1]
    assert document["benchmark_result"]["wall_time"] == 1.0
    assert document["process_info"]["max_rss"] > 0
    assert "written by a later --resume" in " ".join(document["perfrun"]["notes"])


def test_a_failed_trial_is_finished_and_counts_after_a_resume(world: World) -> None:
    raising = "    def bad(self):\n        self._note('bad')\n        raise ValueError('as ever')\n"
    write_methods(world, 6, raising)
    methods = ",".join(f"pkg.cases.Many.{n}" for n in ("bad", "m00", "m01", "m02", "m03", "m04"))
    kill_when(world, 2, methods)
    resumed = world.run("--format=json", "--resume", methods=methods)
    assert (resumed.code, resumed.statuses) == (1, ["failed", *["passed"] * 5])
    assert starts(world)["bad"] == 1


def test_another_plan_starts_anew(world: World) -> None:
    methods = write_methods(world, 8)
    kill_when(world, 2, methods)
    before = starts(world)
    other = methods.rpartition(",")[0]
    resumed = world.run("--format=json", "--resume", methods=other)
    assert "starting anew" in resumed.stderr
    assert (resumed.code, len(resumed.results)) == (0, 7)
    assert len(starts(world) - before) == 7


def test_a_run_that_ended_is_not_resumed(world: World) -> None:
    methods = write_methods(world, 2)
    assert world.run(methods=methods).code == 0
    resumed = world.run("--format=json", "--resume", methods=methods)
    assert "starting anew" in resumed.stderr
    assert (resumed.code, len(resumed.results)) == (0, 2)
    assert starts(world) == {"m00": 2, "m01": 2}


def test_a_finished_summary_that_was_removed_since_is_measured_again(world: World) -> None:
    methods = write_methods(world, 6)
    kill_when(world, 3, methods)
    first = min(world.summary_files())
    first.unlink()
    resumed = world.run("--format=json", "--resume", methods=methods)
    assert (resumed.code, resumed.statuses) == (0, ["passed"] * 6)
    assert starts(world)["m00"] == 2


def test_a_journal_cut_off_in_the_middle_of_a_line_is_read_to_there(world: World) -> None:
    methods = write_methods(world, 6)
    kill_when(world, 3, methods)
    [journal] = world.workspace.glob("runs/*.jsonl")
    journal.write_bytes(journal.read_bytes() + b'{"event": "fini')
    resumed = world.run("--format=json", "--resume", methods=methods)
    assert (resumed.code, resumed.statuses) == (0, ["passed"] * 6)
    assert starts(world).total() <= 7
    # And what is appended behind the broken line is not lost to a third run.
    assert json.loads(journal.read_text().splitlines()[-1]) == {"event": "end"}
    assert "starting anew" in world.run("--resume", methods=methods).stderr


def test_a_run_ended_by_ctrl_c_is_resumed(world: World) -> None:
    blocked = world.folder / "blocked"
    blocked.touch()
    waits = "    def waits(self):\n        self._note('waits')\n"
    waits += f"        while os.path.exists({str(blocked)!r}): time.sleep(0.01)\n"
    write_methods(world, 2, waits)
    methods = ",".join(f"pkg.cases.Many.{name}" for name in ("m00", "waits", "m01"))
    process = world.start("--format=json", methods=methods)
    wait_until(lambda: starts(world)["waits"])
    process.send_signal(signal.SIGINT)
    stopped = finish(process)
    assert (stopped.code, stopped.statuses) == (130, ["passed", "interrupted"])
    blocked.unlink()
    resumed = world.run("--format=json", "--resume", methods=methods)
    assert (resumed.code, resumed.statuses) == (0, ["passed"] * 3)
    assert starts(world) == {"m00": 1, "waits": 2, "m01": 1}


def test_the_worker_of_a_killed_harness_does_not_survive_it(world: World) -> None:
    busy = "    def busy(self):\n        signal.signal(15, signal.SIG_IGN)\n"
    write_methods(world, 1, busy + "        self._note('busy')\n        time.sleep(600)\n")
    process = world.start(methods="pkg.cases.Many.busy")
    wait_until(lambda: starts(world)["busy"])
    assert len(world.alive()) == 3  # harness, guard and worker
    os.kill(process.pid, signal.SIGKILL)
    finish(process)
    assert world.left_running() == []


def test_a_run_that_another_perfrun_is_at_is_not_resumed(world: World) -> None:
    world.write(
        """
        class Slow(Benchmark):
            def first_waits(self):
                if not os.path.exists("begun"):
                    open("begun", "w").close()
                    while not os.path.exists("go"):
                        time.sleep(0.01)
        """
    )
    method = "pkg.cases.Slow.first_waits"
    process = world.start("--format=json", methods=method)
    wait_until((world.folder / "begun").exists)
    other = world.run("--format=json", "--resume", methods=method)
    (world.folder / "go").touch()
    mine = finish(process)
    assert (mine.statuses, other.statuses) == (["passed"], ["passed"])
    assert "starting anew" in other.stderr
    runs = {document["perfrun"]["run_id"] for document in mine.summaries() + other.summaries()}
    assert len(runs) == len(world.summary_files()) == 2


def test_a_summary_counts_whose_digest_the_journal_has_and_no_other(world: World) -> None:
    """A kill after a summary and before its line loses nothing; an unknown file is no result."""
    methods = write_methods(world, 2)
    first = world.run("--format=json", methods=methods)
    (journal,) = (world.workspace / "runs").glob("*.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    kept = [event for event in events if event["event"] not in ("finished", "end")]
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in kept))
    again = world.run("--format=json", "--resume", methods=methods)
    assert [one["summary"] for one in again.results] == [one["summary"] for one in first.results]
    assert starts(world) == {"m00": 1, "m01": 1}
    unknown = [event for event in kept if event.get("method", "").endswith("m00")]
    kept = [event for event in kept if event["event"] != "written" or event not in unknown]
    journal.write_text("".join(f"{json.dumps(event)}\n" for event in kept))
    last = world.run("--format=json", "--resume", methods=methods)
    assert last.results[1]["summary"] == first.results[1]["summary"]
    assert last.results[0]["summary"] != first.results[0]["summary"]
    assert starts(world) == {"m00": 2, "m01": 1}
    assert len(world.summary_files()) == 2
    assert len(list(world.workspace.glob("output/*/perfzero_summary.json.*"))) == 1

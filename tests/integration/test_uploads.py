"""Upload functions get the summary once it is safe; their failure is recorded, never fatal."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from worlds import World, finish, wait_until

CLASS = """
class Plain(Benchmark):
    def first(self):
        self.report_benchmark(wall_time=1.0)

    def last(self):
        self.report_benchmark(wall_time=2.0)

def upload(summary):
    import json
    with open({log!r}, "a") as file:
        file.write(json.dumps(summary) + "\\n")

def broken(summary):
    raise ConnectionError("nobody listens")

def crashes(summary):
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(summary):
    open("uploading", "w").close()
    time.sleep(600)

def leaves(summary):
    sys.exit(0)

def on_disk(summary):
    import glob
    found = glob.glob({output!r} + "/*/perfzero_summary.json")
    assert any(json_of(path) == summary for path in found), found

def json_of(path):
    import json
    with open(path) as file:
        return json.load(file)
"""
METHODS = "pkg.cases.Plain.first,pkg.cases.Plain.last"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    names = {"log": str(tmp_path / "uploaded"), "output": str(made.workspace / "output")}
    made.write(CLASS.format(**names))
    return made


def test_every_summary_is_uploaded_after_it_was_written(world: World) -> None:
    hooks = "--result_upload_methods=pkg.cases.on_disk,pkg.cases.upload"
    done = world.run(hooks, "--format=json", methods=METHODS)
    assert done.code == 0
    uploaded = [json.loads(line) for line in (world.folder / "uploaded").read_text().splitlines()]
    for sent, kept in zip(uploaded, done.summaries(), strict=True):
        assert kept["perfrun"].pop("uploads") == [
            {"method": "pkg.cases.on_disk", "error": None},
            {"method": "pkg.cases.upload", "error": None},
        ]
        assert sent["perfrun"].pop("uploads") == []
        assert sent == kept


def test_a_failed_upload_is_recorded_and_changes_neither_outcome_nor_exit_code(
    world: World,
) -> None:
    functions = ("broken", "leaves", "nothing", "upload")
    names = ",".join(f"pkg.cases.{name}" for name in functions)
    done = world.run(f"--result_upload_methods={names}", "--format=json", methods=METHODS)
    assert (done.code, done.statuses) == (0, ["passed", "passed"])
    for summary in done.summaries():
        errors = {u["method"]: u["error"] for u in summary["perfrun"]["uploads"]}
        assert errors["pkg.cases.broken"] == "ConnectionError: nobody listens"
        assert errors["pkg.cases.leaves"] == "SystemExit: 0"
        assert errors["pkg.cases.nothing"].startswith("AttributeError: ")
        assert errors["pkg.cases.upload"] is None
    assert "upload pkg.cases.broken failed: ConnectionError: nobody listens" in done.stderr


def test_a_crash_in_an_upload_function_costs_no_summary(world: World) -> None:
    done = world.run("--result_upload_methods=pkg.cases.crashes", "--format=json", methods=METHODS)
    assert (done.code, done.statuses) == (0, ["passed", "passed"])
    for summary in done.summaries():
        [upload] = summary["perfrun"]["uploads"]
        assert "signal 11" in upload["error"]
    assert world.left_running() == []


def test_an_interpreter_that_vanished_before_the_upload_costs_no_summary(world: World) -> None:
    python = world.folder / "python"
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    source = f"class Gone(Benchmark):\n    def gone(self): os.unlink({str(python)!r})\n"
    world.write(source, module="vanish")
    done = world.run(
        f"--python={python}",
        "--result_upload_methods=pkg.cases.upload",
        "--format=json",
        methods="pkg.vanish.Gone.gone",
    )
    assert (done.code, done.statuses) == (0, ["passed"])
    [upload] = done.summaries()[0]["perfrun"]["uploads"]
    assert "cannot be started" in upload["error"]


def test_a_module_of_uploads_that_is_missing_is_recorded(world: World) -> None:
    done = world.run("--result_upload_methods=pkg.nowhere.send", "--format=json", methods=METHODS)
    assert done.code == 0
    [upload] = done.summaries()[0]["perfrun"]["uploads"]
    assert upload["error"].startswith("ModuleNotFoundError: ")


def test_ctrl_c_ends_an_upload_that_hangs_and_keeps_what_was_measured(world: World) -> None:
    words = ("--format=json", "--result_upload_methods=pkg.cases.hangs")
    process = world.start(*words, methods=METHODS)
    wait_until((world.folder / "uploading").exists)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.code, done.statuses) == (130, ["passed"])
    [summary] = done.summaries()
    assert summary["perfrun"]["uploads"] == [
        {"method": "pkg.cases.hangs", "error": "stopped by SIGINT"}
    ]
    assert world.left_running() == []


def test_an_upload_does_not_outlive_its_harness(world: World) -> None:
    process = world.start("--result_upload_methods=pkg.cases.hangs", methods=METHODS)
    wait_until((world.folder / "uploading").exists)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    assert world.left_running() == []

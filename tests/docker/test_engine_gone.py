"""The engine ends in the middle of a run: a second one, of this test's own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_engine import OwnEngine, own_engine_with
from worlds import PATIENCE_S, World, finish, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]
CASES = "pkg.cases.Cases"
SOURCE = """
class Cases(Benchmark):
    def first(self):
        self.report_benchmark(wall_time=1.0)

    def hangs(self):
        print("hanging", flush=True)
        time.sleep(3600)
"""


@pytest.fixture(scope="module")
def own_engine(base_image: str) -> Iterator[OwnEngine]:
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("only root can start an engine, where there is a dockerd")
    with own_engine_with(base_image) as engine:
        yield engine


@pytest.mark.parametrize(
    ("number", "status", "reason"),
    [
        (signal.SIGKILL, "failed", "the container engine went away during method"),
        (signal.SIGTERM, "crashed", "the container was stopped from outside during method"),
    ],
    ids=["killed", "stopped"],
)
def test_when_the_engine_goes_the_trial_says_so_and_nothing_is_left_running(
    own_engine: OwnEngine, base_image: str, tmp_path: Path, number: int, status: str, reason: str
) -> None:
    daemon = own_engine.start()
    world = World(tmp_path, settings={"DOCKER_HOST": own_engine.host})
    world.write(SOURCE)
    methods = f"{CASES}.first,{CASES}.hangs,{CASES}.first"
    process = world.start("--format=json", "--quiet", f"--image={base_image}", methods=methods)
    logs = world.workspace / "output"
    wait_until(lambda: [p for p in logs.glob("*/stdout.log") if "hanging" in p.read_text()])
    daemon.send_signal(number)
    done = finish(process)
    daemon.wait(PATIENCE_S)
    assert done.statuses == ["passed", status, "failed"], done.stderr
    summaries = done.summaries()
    assert summaries[1]["perfrun"]["outcome"]["reason"] == reason
    last = summaries[2]["perfrun"]["outcome"]
    assert "the container engine does not answer" in last["reason"]
    assert last["phase"] == "start"
    assert left_running(str(tmp_path)) == []
    again = own_engine.start()
    try:
        names = own_engine.docker("ps", "-aq", "--filter", "label=perfrun.run_id")
        resumed = world.run("--format=json", f"--image={base_image}", methods=f"{CASES}.first")
        assert resumed.statuses == ["passed"], resumed.stderr
        # What the engine could not be told to remove goes with the next run.
        assert resumed.stderr.count("left behind by run") == len(names.stdout.split())
        assert own_engine.docker("ps", "-aq").stdout == b""
    finally:
        again.terminate()
        again.wait(PATIENCE_S)


def left_running(path: str) -> list[str]:
    """Processes whose command line names the world; in a container they carry no mark."""

    def found() -> list[str]:
        lines = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if path in line and "entry.py" in line:
                lines.append(line)
        return lines

    wait_until(lambda: not found())
    return found()

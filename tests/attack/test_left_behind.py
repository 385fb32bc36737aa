"""A benchmark whose children want to outlive it, and the harness that is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from worlds import World, finish, wait_until

# Each of these children does all it can to run on. They have another environment, so that no mark
# finds them: their pids are in files.
CHILDREN = """
import ctypes, json
from pathlib import Path

HERE = Path(__file__).parent
CODE = '''
import os, signal, sys, time
how, path = sys.argv[1:]
for number in set(signal.Signals) - {9, 19, 17}:
    if how == "deaf":
        signal.signal(number, signal.SIG_IGN)
if how in ("daemon", "daemon of a daemon", "closed"):
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
if how == "daemon of a daemon":
    os.setsid()
    if os.fork(): os._exit(0)
    os.setpgid(0, 0)
if how == "closed":
    os.chdir("/")
    os.umask(0)
    os.closerange(0, 1024)
if how == "parent of many":
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
with open(path + ".next", "w") as file:
    file.write(str(os.getpid()))
os.rename(path + ".next", path)
if how == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    time.sleep(600)
'''
HOWS = ("plain", "session", "group", "deaf", "daemon", "daemon of a daemon", "closed", "stopped",
    "parent of many")

def start_children():
    for how in HOWS:
        path = str(HERE / (how + ".pid"))
        subprocess.Popen([sys.executable, "-S", "-c", CODE, how, path], env={},
            start_new_session=how in ("session", "stopped"),
            preexec_fn=(lambda: os.setpgid(0, 0)) if how == "group" else None)
    while not all((HERE / (how + ".pid")).exists() for how in HOWS):
        time.sleep(0.01)
"""
BENCHMARK = (
    CHILDREN
    + """
class Leaves(Benchmark):
    def hangs(self):
        start_children()
        (HERE / "ready").touch()
        time.sleep(600)

    def ends(self):
        start_children()
        (HERE / "ready").touch()
        self.report_benchmark(wall_time=1.0)

    def kills_the_guard(self):
        start_children()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    def after(self):
        self.report_benchmark(wall_time=2.0)
"""
)
HOWS = (
    *("plain", "session", "group", "deaf", "daemon", "daemon of a daemon", "closed", "stopped"),
    "parent of many",
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def children(world: World) -> dict[str, int]:
    """The pids of the children, by what they did."""
    folder = world.folder / "code" / "pkg"
    found = {path.stem: int(path.read_text()) for path in folder.glob("*.pid")}
    assert found.keys() == set(HOWS)
    return found


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def left(world: World) -> list[str]:
    """Which children still run, and what else mentions this world."""
    named = [how for how, pid in children(world).items() if lives(pid)]
    folder = os.fsencode(world.folder)
    for one in psutil.process_iter():
        try:
            if any(folder in os.fsencode(word) for word in one.cmdline()):
                named.append(str(one))
        except psutil.Error:
            continue
    return named


@pytest.mark.parametrize(
    "blow", ["alone", "with its process group", "after its children were asked"]
)
def test_a_harness_that_is_killed_leaves_no_child_of_a_benchmark_running(
    world: World, blow: str
) -> None:
    world.write(BENCHMARK)
    words = world.words("--format=json", "--quiet", methods="pkg.cases.Leaves.hangs")
    process = subprocess.Popen(
        words,
        cwd=world.folder,
        env=world.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    ready = world.folder / "code" / "pkg" / "ready"
    wait_until(ready.exists)
    assert all(map(lives, children(world).values()))
    if blow == "with its process group":
        os.killpg(process.pid, signal.SIGKILL)
    elif blow == "after its children were asked":  # as by `pkill -P`
        for one in psutil.Process(process.pid).children():
            one.terminate()
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    wait_until(lambda: left(world) == [])


def test_a_killed_guard_costs_its_trial_alone_and_leaves_nothing(world: World) -> None:
    world.write(BENCHMARK)
    methods = "pkg.cases.Leaves.kills_the_guard,pkg.cases.Leaves.after,pkg.cases.Leaves.ends"
    done = world.run("--format=json", "--quiet", methods=methods)
    assert done.statuses == ["crashed", "passed", "passed"], done.stderr
    assert "SIGKILL" in done.summaries()[0]["perfrun"]["outcome"]["reason"]
    assert left(world) == []


def test_a_module_that_starts_daemons_when_it_is_imported_leaves_none(world: World) -> None:
    """In a throw-away worker: the classes are looked for, and no trial runs."""
    world.write(BENCHMARK + "\nstart_children()\n")
    done = world.run("list", "--quiet", "pkg")
    assert done.code == 0, done.stderr
    assert left(world) == []


def test_a_harness_that_is_killed_while_it_looks_for_classes_leaves_no_daemon(
    world: World,
) -> None:
    world.write(BENCHMARK + '\nstart_children()\n(HERE / "ready").touch()\ntime.sleep(600)\n')
    process = world.start("--quiet", methods="pkg.cases.Leaves.filter:.*")
    wait_until((world.folder / "code" / "pkg" / "ready").exists)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    wait_until(lambda: left(world) == [])

"""`docker compose run --rm perfrun ...`, typed by a user in a fresh checkout."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gitrepos
import pytest
from actors import (
    BENCHMARKS,
    PASSIVE,
    Caller,
    copy_checkout,
    give,
    make_repository,
    read_summary,
    results,
)
from engines import both_engines

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

RUN = ("run", "--rm", "perfrun")
NOOP = "--benchmark_methods=benchmarks.python.calibration.Calibration.noop"
FIRST_IMAGE = "perfrun-test/first-run"
# Leaves an orphan that ends, as a benchmark's data loaders may, and looks for its remains; whoever
# reaps has a minute for it.
LOOK_AROUND = """
import glob, json, os, time
said, say = os.pipe()
if os.fork() == 0:
    orphan = os.fork()
    if orphan:
        os.write(say, b"%d" % orphan)
    else:
        time.sleep(0.2)
    os._exit(0)
os.wait()
orphan = "/proc/" + os.read(said, 20).decode()
end = time.monotonic() + 60
while os.path.exists(orphan) and time.monotonic() < end:
    time.sleep(0.05)
stats = [open(path).read() for path in glob.glob("/proc/[0-9]*/stat")]
memory = os.statvfs("/dev/shm")
print(json.dumps({
    "first": open("/proc/1/comm").read().strip(),
    "dead": [stat for stat in stats if stat.rpartition(")")[2].split()[0] == "Z"],
    "shared_memory_bytes": memory.f_frsize * memory.f_blocks,
}))
"""


def small_model(framework: str) -> tuple[str, ...]:
    """A model of three layers; test_equality.py runs EfficientNet in both services."""
    method = f"--benchmark_methods=benchmarks.{framework}.model.Model.inference"
    return (method, PASSIVE, "--format=json", "--", "--model=sensor_net", "--num_batches=3")


def what_compose_made(user: Caller) -> list[str]:
    """Containers, networks and volumes of these tests, running or not."""
    ours = f"label=com.docker.compose.project={user.settings['COMPOSE_PROJECT_NAME']}"
    listings = (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q"))
    return [
        name for listing in listings for name in user.docker(*listing, "--filter", ours).split()
    ]


@pytest.fixture(autouse=True)
def nothing_is_left_behind(user: Caller) -> Iterator[None]:
    yield
    assert what_compose_made(user) == []


@pytest.fixture
def fresh(checkout: Path) -> Iterator[Path]:
    """The user's checkout as after `git clone`: no workspace yet."""
    yield checkout
    shutil.rmtree(checkout / "workspace", ignore_errors=True)


@both_engines
def test_the_first_run_builds_the_image_and_the_results_are_the_users(
    fresh: Path, user: Caller
) -> None:
    user.run("docker", "image", "rm", FIRST_IMAGE, cwd=fresh)

    done = user.compose(
        fresh,
        *RUN,
        "--benchmark_num_trials=2",
        *small_model("torch"),
        PERFRUN_IMAGE=FIRST_IMAGE,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = results(done.stdout)
    assert [(each["trial_id"], each["status"]) for each in found] == [(1, "passed"), (2, "passed")]
    for result in found:
        summary = read_summary(result, fresh / "workspace")
        assert summary["ml_framework_info"]["name"] == "torch"
    assert user.owns(fresh / "workspace")


@both_engines
def test_a_later_run_prints_nothing_but_the_results(
    fresh: Path, user: Caller, torch_image: str
) -> None:
    for _ in range(2):
        done = user.compose(fresh, *RUN, NOOP, "--format=json", PERFRUN_IMAGE=torch_image)

        assert done.returncode == 0, done.stderr
        assert [result["status"] for result in json.loads(done.stdout)["results"]] == ["passed"]
    assert len(list((fresh / "workspace" / "output").iterdir())) == 2
    assert user.owns(fresh / "workspace")


@both_engines
def test_the_service_tensorflow_runs_without_naming_its_profile(
    fresh: Path, user: Caller, tensorflow_image: str
) -> None:
    done = user.compose(
        fresh,
        "run",
        "--rm",
        "tensorflow",
        *small_model("tensorflow"),
    )

    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    assert result["status"] == "passed"
    summary = read_summary(result, fresh / "workspace")
    assert summary["ml_framework_info"]["name"] == "tensorflow"
    assert user.owns(fresh / "workspace")


def test_what_root_runs_in_its_own_checkout_is_roots(
    place: Path, root: Caller, torch_image: str
) -> None:
    checkout = copy_checkout(place / "checkout of root", root)

    done = root.compose(checkout, *RUN, NOOP, "--format=json")

    assert done.returncode == 0, done.stderr
    assert root.owns(checkout / "workspace")


def test_another_owner_can_be_named(fresh: Path, root: Caller, torch_image: str) -> None:
    done = root.compose(fresh, *RUN, NOOP, "--format=json", PERFRUN_UID="77", PERFRUN_GID="88")

    assert done.returncode == 0, done.stderr
    assert Caller(uid=77, gid=88, groups=(), home=fresh).owns(fresh / "workspace")


@both_engines
def test_a_workspace_elsewhere_belongs_to_its_own_owner(
    fresh: Path, workspace: Path, user: Caller, torch_image: str
) -> None:
    done = user.compose(fresh, *RUN, NOOP, "--format=json", PERFRUN_WORKSPACE=str(workspace))

    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    assert read_summary(result, workspace)["benchmark_result"]["succeeded"] is True
    assert not (fresh / "workspace").exists()


@both_engines
def test_the_exit_status_of_a_failed_benchmark_comes_through(
    fresh: Path, user: Caller, torch_image: str, theirs: list[str]
) -> None:
    done = user.compose(
        fresh,
        *theirs,
        "--benchmark_methods=theirs.benchmarks.Theirs.broken,theirs.benchmarks.Theirs.quick",
        "--format=json",
    )

    assert done.returncode == 1, done.stderr
    assert [result["status"] for result in results(done.stdout)] == ["failed", "passed"]


@both_engines
def test_somebody_elses_class_runs_as_it_was_at_the_pinned_commit(
    fresh: Path, place: Path, user: Caller, torch_image: str
) -> None:
    repository = Path(tempfile.mkdtemp(prefix="pinned ", dir=place)) / "repository of 'theirs'"
    now_broken = BENCHMARKS.replace("iters=1, wall_time=0.25", "iters=0, wall_time=0.75")
    pinned, latest = gitrepos.make_repository(
        repository, [{"theirs/benchmarks.py": text} for text in (BENCHMARKS, now_broken)]
    )
    give(repository.parent, user)
    repository.parent.chmod(0o755)

    for commit, wall_time in ((pinned, 0.25), (latest, 0.75)):
        done = user.compose(
            fresh,
            *("run", "--rm", "-v", f"{repository}:/repos/theirs:ro", "perfrun"),
            f"--git_repos=file:///repos/theirs;main;{commit}",
            "--python_path=theirs",
            "--benchmark_methods=theirs.benchmarks.Theirs.quick",
            "--format=json",
        )

        assert done.returncode == 0, done.stderr
        (result,) = results(done.stdout)
        summary = read_summary(result, fresh / "workspace")
        assert summary["benchmark_result"]["wall_time"] == wall_time
        assert summary["benchmark_info"]["site_package_info"]["theirs"]["hash"] == commit


@both_engines
def test_a_summary_names_the_image_it_was_made_in(
    fresh: Path, user: Caller, torch_image: str, base_image: str
) -> None:
    done = user.compose(fresh, *RUN, NOOP, "--format=json")

    (result,) = results(done.stdout)
    setup = read_summary(result, fresh / "workspace")["setup_info"]
    assert (setup["framework"], setup["base_image"]) == ("torch", base_image)
    assert {"torch", "numpy"} <= setup["distributions"]["framework"].keys()
    assert {"GitPython", "psutil"} <= setup["distributions"]["perfrun"].keys()


@both_engines
def test_the_user_can_delete_all_that_a_run_has_left(
    fresh: Path, user: Caller, torch_image: str, theirs: list[str]
) -> None:
    done = user.compose(fresh, *theirs, "--benchmark_methods=theirs.benchmarks.Theirs.quick")
    assert done.returncode == 0, done.stderr

    removed = user.run("rm", "-r", "workspace", cwd=fresh)

    assert (removed.returncode, removed.stderr) == (0, "")
    assert user.run("git", "status", "--short", cwd=fresh).stdout == ""


@both_engines
def test_a_container_has_no_rights_to_speak_of(fresh: Path, user: Caller, torch_image: str) -> None:
    show = "cat /proc/self/status; find / -name '*docker*.sock' 2>/dev/null; ls /dev"
    done = user.compose(fresh, "run", "--rm", "--entrypoint", "sh", "perfrun", "-c", show)

    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    four = sum(1 << number for number in (0, 5, 6, 7))  # chown, kill, setgid, setuid
    assert int(lines["CapBnd"], 16) == four
    assert lines["NoNewPrivs"].strip() == "1"
    assert lines["Seccomp"].strip() == "2"  # a privileged container has no filter
    assert "docker" not in done.stdout
    assert not {"vda", "sda", "kmsg", "mem", "fuse"} & set(done.stdout.split())


@both_engines
def test_a_container_has_shared_memory_and_somebody_who_reaps(
    fresh: Path, user: Caller, torch_image: str
) -> None:
    python = ("--entrypoint", "/opt/perfrun/bin/python")
    done = user.compose(fresh, "run", "--rm", *python, "perfrun", "-c", LOOK_AROUND)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {"first": "docker-init", "dead": [], "shared_memory_bytes": 2 << 30}


@both_engines
def test_control_c_ends_the_trial_and_its_summary_says_so(
    fresh: Path, user: Caller, torch_image: str, endless: list[str]
) -> None:
    status, screen = type_control_c(
        ["docker", "compose", *endless], b"endless has begun", user, fresh
    )

    assert status == 130, screen
    assert outcome_status(fresh / "workspace") == "interrupted"
    assert user.owns(fresh / "workspace")


@both_engines
def test_stopping_the_container_ends_the_trial_and_its_summary_says_so(
    fresh: Path, user: Caller, torch_image: str, endless: list[str]
) -> None:
    # The signal reaches perfrun through the container's first process, which is still root's.
    started = user.compose(fresh, "run", "--detach", *endless[1:])
    assert started.returncode == 0, started.stderr
    container = started.stdout.split()[-1]
    wait_until(lambda: "endless has begun" in user.docker("logs", container))

    user.docker("stop", "--time", "300", container)  # what is killed then leaves no summary

    wait_until(lambda: what_compose_made(user) == [])  # `--rm` takes effect a moment after the end
    assert outcome_status(fresh / "workspace") == "interrupted"


@pytest.fixture
def theirs(place: Path, user: Caller) -> Iterator[list[str]]:
    """What to type after `docker compose` to run benchmarks of somebody else's repository."""
    folder = Path(tempfile.mkdtemp(prefix="their repository ", dir=place))
    folder.chmod(0o755)
    commit = make_repository(folder, user)
    yield [
        *("run", "--rm", "-v", f"{folder}:/repos/theirs:ro", "perfrun"),
        f"--git_repos=file:///repos/theirs;main;{commit}",
        "--python_path=theirs",
    ]
    shutil.rmtree(folder)


@pytest.fixture
def endless(theirs: list[str]) -> list[str]:
    """The same for a benchmark that never ends."""
    return [*theirs, "--benchmark_methods=theirs.benchmarks.Theirs.endless"]


def outcome_status(workspace: Path) -> str:
    """How the only trial in a workspace ended."""
    (path,) = (workspace / "output").glob("*/perfzero_summary.json")
    return str(json.loads(path.read_text("utf-8"))["perfrun"]["outcome"]["status"])


def wait_until(is_so: Callable[[], bool], limit_s: float = 150) -> None:
    deadline_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.1)


def type_control_c(argv: list[str], cue: bytes, user: Caller, cwd: Path) -> tuple[int, bytes]:
    """Runs a command on a terminal and types Ctrl-C once it has printed `cue`."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={**user.environment(), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        **user.identity(),
    )
    os.close(theirs)
    screen, is_typed, deadline_s = b"", False, time.monotonic() + 600
    try:
        while time.monotonic() < deadline_s:
            try:
                screen += os.read(ours, 65536)
            except OSError:  # the terminal has no user any more
                break
            if cue in screen and not is_typed:
                os.write(ours, b"\x03")
                is_typed = True
        return process.wait(timeout=150), screen
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()

"""`perfrun --image=...`: one container per trial, on a real engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import schemas
from actors import Caller
from engines import ROOTLESS, Site, both_engines, give_up, only_rootless
from fault_table import TABLE, Row
from launched import launched_world
from worlds import World, finish, wait_until

from perfrun.launchers.container_launcher import ContainerLauncher
from perfrun.options.containment import Containment
from perfrun.worker.allocator import find_library

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]

NOOP = "benchmarks.python.calibration.Calibration.noop"
CASES = "pkg.cases.Cases"
SOURCE = """
class Cases(Benchmark):
    def first(self):
        self.report_benchmark(wall_time=1.0)

    def last(self):
        self.report_benchmark(wall_time=3.0)

    def _seen(self, least_bytes=1):
        '''Wait, a minute at most, until perfrun has looked at this trial with so much in it.'''
        import json
        log, end = os.path.join(self.output_dir, "process_info.log"), time.monotonic() + 60
        while time.monotonic() < end:
            text = open(log).read() if os.path.exists(log) else ""
            looks = [json.loads(line) for line in text.rpartition("\\n")[0].splitlines()]
            if any(look["tree_pss"] >= least_bytes for look in looks):
                return
            time.sleep(0.02)

    def watched(self):
        self._seen()
        self.report_benchmark(wall_time=1.0)

    def reports(self):
        self._seen()
        print("out"); print("err", file=sys.stderr)
        open(os.path.join(self.output_dir, "mine.txt"), "w").write("kept")
        self.report_benchmark(
            iters=2, wall_time=0.5, throughput=4.0, extras={"note": "x"},
            metrics=[{"name": "speed", "value": 2.0, "min_value": 1.0}],
        )

    def out_of_bounds(self):
        self._seen()
        self.report_benchmark(metrics=[{"name": "speed", "value": 2.0, "min_value": 3.0}])

    def hangs(self):
        print("hanging", flush=True)
        time.sleep(3600)

    def hangs_stubbornly(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "600"])
        print("hanging", flush=True)
        while True:
            time.sleep(600)

    def leaves_children(self):
        subprocess.Popen(["sleep", "600"])
        subprocess.Popen(["sleep", "601"], start_new_session=True)
        self.report_benchmark(wall_time=2.0)

    def crashes_with_a_fork_of_itself(self):
        from multiprocessing import shared_memory
        shared_memory.SharedMemory(create=True, size=4096)
        if not os.fork():
            time.sleep(600)
        os._exit(3)

    def churns(self):
        def step():
            block = bytearray(64 << 20)
            del block
        self.measure(step, iterations=5, warmup=5)

    def closes_everything(self):
        os.closerange(0, 200)
        self.report_benchmark(wall_time=2.0)

    def holds(self):
        block = bytearray(b"x") * (300 << 20)
        children = []
        said, say = os.pipe()
        wait, go = os.pipe()
        for _ in range(2):
            child = os.fork()
            if not child:
                os.close(go)
                own = bytearray(b"y") * (50 << 20)
                os.write(say, b"x"); os.read(wait, 1)
                os._exit(0)
            children.append(child)
        for _ in children:
            os.read(said, 1)
        self._seen(400 << 20)
        for _ in range(10):  # a profiler looks now and then, and so has some chances
            time.sleep(0.05)
        os.close(go)
        for child in children:
            os.waitpid(child, 0)
        self.report_benchmark(wall_time=len(block) / 1e9)

    def says_who(self):
        self._seen()
        facts = {
            "uid": os.getuid(), "gid": os.getgid(), "home": os.environ["HOME"],
            "cpus": sorted(os.sched_getaffinity(0)), "cwd": os.getcwd(),
            "environment": sorted(os.environ), "parent": os.getppid(),
            "stdin": sys.stdin.read(), "python": list(sys.version_info[:2]),
            "shm": os.statvfs("/dev/shm").f_frsize * os.statvfs("/dev/shm").f_blocks,
        }
        import getpass, json, pathlib, tempfile
        facts["user"] = getpass.getuser()
        pathlib.Path.home().joinpath("x").write_text("a home can be written to")
        tempfile.TemporaryFile().write(b"x")
        open("facts.json", "w").write(json.dumps(facts))
"""


@pytest.fixture
def world(place: Path, site: Site) -> Iterator[World]:
    yield from launched_world(place, site, SOURCE)


def containers(site: Site, run_id: str = "") -> list[str]:
    label = f"label=perfrun.run_id={run_id}" if run_id else "label=perfrun.run_id"
    return site.user.docker("ps", "-aq", "--no-trunc", "--filter", label).split()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(site: Site, world: World) -> Iterator[None]:
    """Of this test's runs: other runs may be going on, whose containers are theirs."""
    yield
    for journal in world.workspace.glob("runs/*.jsonl"):
        assert containers(site, journal.stem) == []


@pytest.fixture
def image(base_image: str) -> str:
    return f"--image={base_image}"


def container_of(summary: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = summary["perfrun"]["container"]
    return facts


def outcome(summary: dict[str, Any]) -> tuple[str, str]:
    found = summary["perfrun"]["outcome"]
    return found["status"], found["reason"]


def shape(value: Any) -> Any:
    """The keys of a document at every level; of lists, those of all items."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return None


@both_engines
def test_a_trial_in_a_container_says_the_same_as_one_on_the_host(world: World, image: str) -> None:
    methods = ",".join(f"{CASES}.{name}" for name in ("reports", "out_of_bounds", "watched"))
    outside = world.run("--format=json", methods=methods)
    inside = world.run("--format=json", image, methods=methods)
    assert (inside.code, inside.statuses) == (outside.code, outside.statuses), inside.stderr
    for there, here in zip(inside.summaries(), outside.summaries(), strict=True):
        schemas.check("summary", there)
        assert there["benchmark_result"] == here["benchmark_result"]
        assert there["perfrun"]["reports"] == here["perfrun"]["reports"]
        assert list(there) == list(here)
        assert list(there["perfrun"]) == list(here["perfrun"])
        for section in ("usage", "memory", "cpu"):
            assert list(there["perfrun"][section]) == list(here["perfrun"][section])
        assert shape(there["benchmark_result"]) == shape(here["benchmark_result"])
        assert here["perfrun"]["container"] is None
        assert there["process_info"].keys() >= here["process_info"].keys()
        assert there["process_info"]["max_rss"] > 5 * 2**20
        assert there["perfrun"]["memory"]["process_rss"]["source"] == "VmHWM at end"
        assert there["perfrun"]["usage"]["samples"] >= 1
    folder = Path(inside.results[0]["summary"]).parent
    assert (folder / "mine.txt").read_text() == "kept"
    assert (folder / "stdout.log").read_text() == "out\n"
    assert (folder / "stderr.log").read_text() == "err\n"
    assert "out\n" in inside.stderr + inside.stdout  # shown live, as it is of a local trial


@both_engines
def test_a_profile_in_a_container_leaves_the_files_it_leaves_on_the_host(
    world: World, image: str, site: Site
) -> None:
    done = world.run(
        "--format=json", image, "--profile=cprofile,memory,sampling", methods=f"{CASES}.holds"
    )
    assert done.code == 0, done.stderr
    (summary,) = done.summaries()
    folder = Path(done.results[0]["summary"]).parent
    found = {one["kind"]: one for one in summary["perfrun"]["profiles"]}
    assert list(found) == ["cprofile", "memory", "sampling"]
    for one in found.values():
        assert (one["error"], one["trial"]["status"]) == (None, "passed")
        for file in one["files"]:
            path = folder / file["path"]
            assert path.stat().st_size == file["bytes"]
            assert path.stat().st_uid == site.user.uid
    assert found["memory"]["top"][0]["bytes"] == pytest.approx(300 << 20, rel=0.02)
    assert len(world.summary_files()) == 1


@both_engines
def test_the_summary_names_image_engine_and_limits(
    world: World, image: str, engine: str, site: Site
) -> None:
    done = world.run("--format=json", image, methods=NOOP)
    (summary,) = done.summaries()
    facts = container_of(summary)
    name = image.removeprefix("--image=")
    assert facts["image"] == name
    assert facts["image_id"] == site.user.docker("image", "inspect", "--format", "{{.Id}}", name)
    assert facts["engine_version"] == engine
    assert facts["rootless"] is (site.kind == ROOTLESS)
    assert facts["architecture"] == site.user.docker("version", "--format", "{{.Server.Arch}}")
    assert facts["network"] == "none"
    assert facts["limits"]["pids"] == 4096
    assert facts["interpreter"] == "python3"
    assert len(facts["id"]) == 64
    assert 0 < facts["start_s"] < 60
    assert "pip" not in str(summary["perfrun"]["environment"]["python"])
    assert summary["perfrun"]["environment"]["distributions_sha256"]


@both_engines
def test_a_trial_is_the_caller_and_sees_the_images_environment(
    world: World, image: str, site: Site
) -> None:
    words = ["--cpuset=0", "--shm_size=96m", "--memory=1g", "--env=TOLD=me"]
    done = world.run("--format=json", image, *words, methods=f"{CASES}.says_who", SECRET="1")
    assert done.statuses == ["passed"], done.stderr
    folder = Path(done.results[0]["summary"]).parent
    facts = json.loads((folder / "facts.json").read_text())
    user = site.user
    seen = (0, 0) if site.kind == ROOTLESS else (user.uid, user.gid)
    assert (facts["uid"], facts["gid"]) == seen
    assert user.owns(folder)
    assert done.summaries()[0]["perfrun"]["usage"]["samples"] >= 1
    assert (facts["cpus"], facts["shm"]) == ([0], 96 * 2**20)
    assert (facts["stdin"], facts["cwd"]) == ("", str(folder))
    assert "SECRET" not in facts["environment"]
    assert "TOLD" in facts["environment"]
    assert (facts["home"], facts["user"]) == ("/tmp/home", "perfrun")
    assert container_of(done.summaries()[0])["limits"]["memory_bytes"] == 2**30


@both_engines
def test_the_allocator_is_that_of_the_image_and_has_its_effect_inside(
    world: World, image: str
) -> None:
    done = world.run("--format=json", image, "--allocator=retain", methods=f"{CASES}.churns")
    assert done.code == 0, done.stderr
    (summary,) = done.summaries()
    assert summary["perfrun"]["series"][0]["minor_faults_per_step"] < 1
    missing = world.run(image, "--allocator=jemalloc", methods=f"{CASES}.churns")
    assert missing.code == 2
    assert "there is no jemalloc library where --image=" in missing.stderr
    library = find_library("jemalloc")
    if library is None:
        give_up("this machine has no jemalloc to give to the image: install libjemalloc2")
    with tempfile.TemporaryDirectory() as place:  # seen by the trial as its data
        Path(place).chmod(0o755)
        shutil.copy(library, place)
        words = (f"--root_data_dir={place}", f"--env=LD_LIBRARY_PATH={place}")
        done = world.run(
            "--format=json", image, "--allocator=jemalloc", *words, methods=f"{CASES}.churns"
        )
        assert done.code == 0, done.stderr
        found = done.summaries()[0]["perfrun"]["allocator"]
        assert (found["asked"], found["name"]) == ("jemalloc", "jemalloc")
        assert found["library"].startswith(place)


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_a_fault_in_a_container_gets_the_outcome_that_it_has_outside(
    row: Row, world: World, image: str
) -> None:
    body = "\n".join(f"        {line}" for line in row.body.splitlines())
    world.write(f"{SOURCE}\n    def fault(self):\n{body}\n")
    methods = f"{CASES}.first,{CASES}.fault,{CASES}.last"
    done = world.run("--format=json", "--quiet", image, methods=methods)
    assert done.code == 1
    first, middle, last = done.summaries()
    assert [outcome(each)[0] for each in (first, last)] == ["passed", "passed"]
    found = middle["perfrun"]["outcome"]
    assert (found["status"], found["phase"]) == (row.status, row.phase)
    assert re.fullmatch(row.reason, found["reason"])
    assert (found["exit_code"], found["signal"]) == (row.exit_code, row.signal)
    if row.signal in ("SIGSEGV", "SIGABRT"):
        assert "in fault" in found["stack"]


def test_closed_descriptors_and_children_left_behind_are_no_trouble(
    world: World, image: str
) -> None:
    names = ("closes_everything", "leaves_children", "crashes_with_a_fork_of_itself")
    methods = ",".join(f"{CASES}.{name}" for name in names)
    done = world.run("--format=json", "--quiet", image, methods=methods)
    assert done.statuses == ["passed", "passed", "exited"]
    strays = done.summaries()[1]["perfrun"]["outcome"]["stray_processes"]
    assert [stray.partition(" (")[0] for stray in strays] == ["sleep 600", "sleep 601"]
    # The fork held the pipe of multiprocessing's resource tracker, which is not named.
    (fork,) = done.summaries()[2]["perfrun"]["outcome"]["stray_processes"]
    assert "python" in fork
    assert "multiprocessing" not in fork


@both_engines
def test_a_deadline_ends_a_container_with_a_dump(world: World, image: str) -> None:
    hanging = ("hangs", "hangs_stubbornly")
    methods = ",".join(f"{CASES}.{name}" for name in (*hanging, "last"))
    done = world.run("--format=json", "--quiet", "--timeout=8", image, methods=methods)
    assert done.statuses == ["timed_out", "timed_out", "passed"]
    for method, summary in zip(hanging, done.summaries(), strict=False):
        assert outcome(summary)[1] == "not finished after 8 s, during method"
        assert f"in {method}" in summary["perfrun"]["outcome"]["stack"]
    assert world.left_running() == []


def test_a_workspace_whose_path_means_something_to_the_engine_is_a_folder(
    world: World, image: str
) -> None:
    folder = world.folder / "a,readonly:ro,source=x"
    words = [image, f"--workspace={folder}", "--format=json"]
    done = world.run(*words, methods=NOOP)
    assert done.statuses == ["passed"], done.stderr
    assert Path(done.results[0]["summary"]).is_relative_to(folder)


@both_engines
def test_memory_is_measured_of_the_whole_container(world: World, image: str) -> None:
    done = world.run("--format=json", "--quiet", image, methods=f"{CASES}.holds")
    (summary,) = done.summaries()
    assert summary["perfrun"]["usage"]["sampling_rate_hz"] > 0
    memory = summary["perfrun"]["memory"]
    process, tree, cgroup = memory["process_rss"], memory["tree_pss"], memory["cgroup"]
    assert 300 * 2**20 < process["bytes"] < 330 * 2**20
    truth = process["bytes"] + 2 * 50 * 2**20
    assert tree["bytes"] == pytest.approx(truth, rel=0.03)
    counted = summary["perfrun"]["cpu"]["trial"]
    assert all(isinstance(value, int | float) for value in counted.values()), counted
    if cgroup["peak"]["bytes"] is None:  # a rootless engine on cgroup v1 has none to give
        assert cgroup["peak"]["reason"]
        return
    # The program's own files were read before by others, and are charged to them.
    assert 400 * 2**20 < cgroup["peak"]["bytes"] < 1.03 * truth
    assert cgroup["peak"]["exactness"] == "exact"
    assert cgroup["anon_bytes"] + cgroup["file_bytes"] <= cgroup["peak"]["bytes"]
    assert cgroup["anon_bytes"] > 0.9 * 400 * 2**20
    assert cgroup["seen_bytes"] > 0.9 * cgroup["peak"]["bytes"]


def hanging(world: World) -> Path:
    """The folder of the trial that hangs, once it does."""
    wait_until(lambda: [p for p in logs(world) if "hanging" in p.read_text()])
    return logs(world)[-1].parent


def logs(world: World) -> list[Path]:
    return sorted(world.workspace.glob("output/*/stdout.log"))


def hang(world: World, *words: str, method: str = "hangs") -> subprocess.Popen[bytes]:
    methods = f"{CASES}.first,{CASES}.{method},{CASES}.last"
    return world.start("--format=json", "--quiet", *words, methods=methods)


def running(world: World, site: Site) -> str:
    """The container of the world's run."""
    (journal,) = world.workspace.glob("runs/*.jsonl")
    return site.user.docker(
        "ps", "-q", "--no-trunc", "--filter", f"label=perfrun.run_id={journal.stem}"
    )


def test_a_container_that_is_killed_from_outside_is_said_to_be(
    world: World, image: str, site: Site
) -> None:
    process = hang(world, image)
    hanging(world)
    site.user.docker("kill", running(world, site))
    done = finish(process)
    assert done.statuses == ["passed", "crashed", "passed"], done.stderr
    reason = outcome(done.summaries()[1])[1]
    assert reason == "the container was killed, and not by perfrun during method"


def test_a_container_that_is_stopped_from_outside_leaves_its_stack(
    world: World, image: str, site: Site
) -> None:
    process = hang(world, image)
    hanging(world)
    site.user.docker("stop", running(world, site))
    done = finish(process)
    assert done.statuses == ["passed", "crashed", "passed"], done.stderr
    middle = done.summaries()[1]
    assert outcome(middle)[1] == "the container was stopped from outside during method"
    assert "in hangs" in middle["perfrun"]["outcome"]["stack"]


@both_engines
def test_ctrl_c_ends_the_trial_and_its_container(world: World, image: str) -> None:
    process = hang(world, image, method="hangs_stubbornly")
    hanging(world)
    process.send_signal(2)
    done = finish(process)
    assert (done.code, done.statuses) == (130, ["passed", "interrupted"])


@both_engines
def test_when_perfrun_is_killed_its_container_ends_and_the_next_run_removes_it(
    world: World, image: str, site: Site
) -> None:
    process = hang(world, image, method="hangs_stubbornly")
    folder = hanging(world)
    left = running(world, site)
    foreign = site.user.docker(
        "create", "--label", "perfrun.run_id=other", "--label", "perfrun.harness.pid=1",
        image.removeprefix("--image="), "true",
    )  # fmt: skip
    process.kill()
    process.communicate()
    wait_until(lambda: site.user.docker("ps", "-q", "--no-trunc", "--filter", f"id={left}") == "")
    assert (folder / "perfrun" / "exit.json").exists()
    try:
        done = world.run("--format=json", image, methods=NOOP)
        assert done.statuses == ["passed"]
        # Another run that has begun meanwhile may have been the one to remove it.
        assert left not in containers(site)
        assert foreign in containers(site)
    finally:
        site.user.docker("rm", foreign)


def test_the_container_of_a_living_perfrun_is_left_alone(
    world: World, image: str, site: Site
) -> None:
    process = hang(world, image)
    hanging(world)
    left = running(world, site)
    words = ["--format=json", image, f"--workspace={world.folder / 'other'}"]
    assert world.run(*words, methods=NOOP).statuses == ["passed"]
    assert running(world, site) == left
    process.send_signal(2)
    finish(process)


def test_an_image_that_is_removed_between_two_trials_fails_the_second(
    tmp_path: Path, base_image: str
) -> None:
    name = "perfrun-test/removed"
    source = f"FROM {base_image}\nLABEL unique={os.getpid()}\n"
    build = ["docker", "build", "-q", "-t", name, "-"]
    subprocess.run(build, input=source, text=True, check=True, capture_output=True)
    launcher = ContainerLauncher(
        Containment(image=name), tmp_path / "site-packages", str(tmp_path / "data"), "test", print
    )
    subprocess.run(["docker", "image", "rm", "-f", name], check=True, capture_output=True)
    order = {"action": "run"}
    with pytest.raises(OSError, match="the image perfrun-test/removed has been removed"):
        launcher.start(order, tmp_path, tmp_path)


REFUSALS = {
    "an image that cannot be had": (
        ["--image=127.0.0.1:9/none:1"],
        (
            r"perfrun: --image=127\.0\.0\.1:9/none:1: the engine cannot reach the registry "
            r"127\.0\.0\.1:9 \(connection refused\); .*"
        ),
    ),
    "a digest that is another's": (
        ["--image={image}@sha256:" + "0" * 64],
        r"perfrun: --image=.*@sha256:0+: .*",
    ),
    "an interpreter that is not there": (
        ["--image={image}", "--image_python=/no/python"],
        r"perfrun: --image_python=/no/python: is not in the image .*",
    ),
    "a program that is no interpreter": (
        ["--image={image}", "--image_python=/bin/cat"],
        r"perfrun: --image=.*: does not work as an interpreter .*; name a Python 3.8 or newer",
    ),
    "a network that is not there": (
        ["--image={image}", "--trial_network=no-such-net"],
        r"perfrun: --trial_network=no-such-net: the engine has no such network; .*",
    ),
    "processors that are not there": (
        ["--image={image}", "--cpuset=4090"],
        r"perfrun: .*Requested CPUs are not available.*",
    ),
}


@pytest.mark.parametrize(("words", "line"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_work_is_one_line_before_anything_runs(
    words: list[str], line: str, world: World, base_image: str
) -> None:
    done = world.run(*(word.format(image=base_image) for word in words), methods=NOOP)
    assert done.code == 2
    assert re.fullmatch(line, done.stderr.strip().splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr
    assert world.summary_files() == []


def test_an_image_without_python_is_refused_with_what_to_do(world: World, tmp_path: Path) -> None:
    name = "perfrun-test/no-python"
    subprocess.run(
        ["sh", "-c", f"tar -c --files-from=/dev/null | docker import - {name}"],
        check=True, capture_output=True,
    )  # fmt: skip
    try:
        done = world.run(f"--image={name}", methods=NOOP)
        assert done.code == 2
        assert "no python3 or python in it; name an interpreter" in done.stderr
    finally:
        subprocess.run(["docker", "image", "rm", name], check=True, capture_output=True)


@pytest.fixture
def vendors_image(site: Site) -> Iterator[str]:
    """An image as others make them: a user, an entry point, a folder and volumes of its own."""
    name, maker = "perfrun-test/vendor", f"perfrun-test-vendor-{os.getpid()}"
    fill = "mkdir -m 777 /kept && echo baked in > /kept/file"
    site.user.docker("run", "--name", maker, site.base_image, "sh", "-c", fill)
    changes = (
        'VOLUME ["/kept", "/tmp"]', 'ENTRYPOINT ["/bin/false"]', "USER 999:999", "WORKDIR /kept",
        "ENV VENDOR=theirs",
    )  # fmt: skip
    words = [word for change in changes for word in ("--change", change)]
    site.user.docker("commit", *words, maker, name)
    site.user.docker("rm", maker)
    yield name
    site.user.docker("image", "rm", name)


@both_engines
def test_a_vendors_image_runs_and_its_volumes_are_there_to_be_read(
    world: World, vendors_image: str, site: Site
) -> None:
    world.write("""
        class Cases(Benchmark):
            def looks(self):
                with open("/tmp/mine", "w") as file:
                    file.write(os.environ["VENDOR"])
                print(open("/kept/file").read(), flush=True)
                open("/kept/file", "w")
    """)
    done = world.run(f"--image={vendors_image}", "--format=json", methods=f"{CASES}.looks")
    assert done.statuses == ["failed"], done.stderr
    assert "Read-only file system: '/kept/file'" in outcome(done.summaries()[0])[1]
    log = Path(done.results[0]["summary"]).with_name("stdout.log")
    assert log.read_text() == "baked in\n\n"
    assert site.user.docker("volume", "ls", "-q", "--filter", "label=perfrun.run_id") == ""


def test_an_engine_that_is_not_there_or_not_here_is_refused(world: World, image: str) -> None:
    done = world.run(image, methods=NOOP, DOCKER_HOST="unix:///no/such.sock")
    assert (done.code, len(done.stderr.splitlines())) == (2, 1)
    assert "the container engine does not answer" in done.stderr
    done = world.run(image, methods=NOOP, DOCKER_HOST="tcp://192.0.2.1:2375")
    assert (done.code, len(done.stderr.splitlines())) == (2, 1)
    assert "which is not on this machine" in done.stderr


@only_rootless
def test_the_engine_of_the_current_context_is_used(
    place: Path, rootless: Site, context_user: Caller, base_image: str
) -> None:
    worlds = launched_world(place, replace(rootless, user=context_user), SOURCE)
    world = next(worlds)
    done = world.run("--format=json", f"--image={base_image}", methods=NOOP)
    assert done.statuses == ["passed"], done.stderr
    assert container_of(done.summaries()[0])["rootless"] is True
    done = world.run(f"--image={base_image}", methods=NOOP, DOCKER_CONTEXT="default")
    assert done.code == 2  # this user may not use the machine's own engine


def test_filters_lists_and_flag_checks_work_in_the_image(world: World, image: str) -> None:
    done = world.run("--format=json", image, methods=f"{CASES}.filter:(fi|la)")
    assert [result["name"].rpartition(".")[2] for result in done.results] == ["first", "last"]
    listed = world.run("list", "pkg", image, "--format=json")
    names = [method["name"] for method in json.loads(listed.stdout)["methods"]]
    assert f"{CASES}.reports" in names
    # The base image has no absl: it is the image that is asked, not this host.
    done = world.run(image, "--", "--batch_size=3", methods=f"{CASES}.first")
    assert done.code == 2
    assert "no absl-py" in done.stderr


def test_a_package_that_is_only_in_the_image_is_listed(
    world: World, base_image: str, tmp_path: Path
) -> None:
    name = "perfrun-test/with-package"
    package = tmp_path / "context" / "only_inside"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "bench.py").write_text(
        "from perfrun import Benchmark\nclass Inside(Benchmark):\n    def quick(self): pass\n"
    )
    target = "/usr/local/lib/python3.11/dist-packages/only_inside"
    dockerfile = f"FROM {base_image}\nCOPY only_inside {target}\nENV PYTHONPATH={target}/..\n"
    (tmp_path / "context" / "Dockerfile").write_text(dockerfile)
    build = ["docker", "build", "-q", "-t", name, str(tmp_path / "context")]
    subprocess.run(build, check=True, capture_output=True)
    try:
        listed = world.run("list", "only_inside", f"--image={name}", "--format=json")
        names = [method["name"] for method in json.loads(listed.stdout)["methods"]]
        assert names == ["only_inside.bench.Inside.quick"], listed.stderr
        done = world.run("--format=json", f"--image={name}", methods=names[0])
        assert done.statuses == ["passed"], done.stderr
    finally:
        subprocess.run(["docker", "image", "rm", name], check=True, capture_output=True)


def test_a_full_output_folder_is_the_trials_failure_and_no_result_is_lost(
    root: Caller, image: str, tmp_path: Path, engine: str
) -> None:
    world = World(tmp_path)
    fill = """
    def fills(self):
        self.report_benchmark(wall_time=1.5)
        with open(os.path.join(self.output_dir, "filler"), "wb") as file:
            while True:
                file.write(b"x" * 65536)
"""
    world.write(SOURCE + fill)
    world.workspace.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(world.workspace)]
    subprocess.run(mount, check=True)
    try:
        methods = f"{CASES}.fills,{CASES}.last"
        done = world.run("--format=json", "--quiet", image, methods=methods)
        assert done.statuses[0] == "failed", done.stderr
        summary = done.summaries()[0]
        assert "No space left on device" in outcome(summary)[1]
        assert summary["perfrun"]["reports"][0]["wall_time"] == 1.5
        assert len(done.results) == 2
    finally:
        subprocess.run(["umount", "--lazy", str(world.workspace)], check=True)


def test_a_trial_that_fills_the_disk_is_ended_while_there_is_room_for_others(
    root: Caller, image: str, tmp_path: Path, engine: str
) -> None:
    world = World(tmp_path)
    fill = """
    def fills(self):
        self.report_benchmark(wall_time=1.5)
        for number in range(10**6):
            with open(os.path.join(self.output_dir, str(number)), "wb") as file:
                file.write(b"x" * (4 << 20))
            if number > 95:  # it is nearly half full: no faster than who is to see it
                time.sleep(0.1)
"""
    world.write(SOURCE + fill)
    world.workspace.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=800m", "none", str(world.workspace)]
    subprocess.run(mount, check=True)
    try:
        methods = f"{CASES}.fills,{CASES}.last"
        done = world.run("--format=json", "--quiet", image, methods=methods)
        assert done.statuses == ["failed", "passed"], done.stderr
        summary = done.summaries()[0]
        reason = r"ended during method: its output folder has grown to 0\.[345] GiB and left .*"
        assert re.fullmatch(reason, outcome(summary)[1])
        assert summary["perfrun"]["reports"][0]["wall_time"] == 1.5
    finally:
        subprocess.run(["umount", "--lazy", str(world.workspace)], check=True)


def test_uploads_run_in_the_image_after_the_summary_is_written(world: World, image: str) -> None:
    world.write(
        """
        def send(summary):
            names = os.listdir("/sys/class/net")
            assert summary["benchmark_result"]["succeeded"] and len(names) > 1, names
        """,
        module="uploads",
    )
    words = ["--format=json", image, "--result_upload_methods=pkg.uploads.send"]
    done = world.run(*words, methods=f"{CASES}.first")
    (summary,) = done.summaries()
    assert summary["perfrun"]["uploads"] == [{"method": "pkg.uploads.send", "error": None}]


def test_an_interrupted_run_goes_on_with_resume(world: World, image: str) -> None:
    process = hang(world, image)
    hanging(world)
    process.send_signal(2)
    assert finish(process).statuses == ["passed", "interrupted"]
    world.write(SOURCE.replace("time.sleep(3600)", "pass"))
    methods = f"{CASES}.first,{CASES}.hangs,{CASES}.last"
    done = world.run("--format=json", "--quiet", "--resume", image, methods=methods)
    assert done.statuses == ["passed"] * 3


def test_what_root_runs_is_roots(root: Caller, image: str, tmp_path: Path, engine: str) -> None:
    world = World(tmp_path)
    world.write(SOURCE)
    done = world.run("--format=json", image, methods=f"{CASES}.reports")
    assert done.statuses == ["passed"], done.stderr
    assert root.owns(Path(done.results[0]["summary"]).parent)

"""The image that setup.py builds: what is in it, what a rebuild costs, whose its results are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from actors import PASSIVE, Caller, docker, give, make_repository, read_summary, results
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

NOOP = "--benchmark_methods=benchmarks.python.calibration.Calibration.noop"
CUDA = re.compile(r"nvidia|cuda|triton", re.IGNORECASE)


def layers(image: str) -> list[str]:
    found = json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", image))
    assert isinstance(found, list)
    return found


def run_in_container(caller: Caller, image: str, workspace: Path, *words: str) -> list[str]:
    mount = f"type=bind,source={workspace},target=/workspace"
    return ["docker", "run", "--rm", "--init", "--mount", mount, *words, image]


@pytest.mark.torch
def test_torch_runs_the_shipped_efficientnet(
    torch_image: str, user: Caller, workspace: Path, base_image: str
) -> None:
    done = user.run(
        *run_in_container(user, torch_image, workspace),
        "--benchmark_methods=benchmarks.torch.efficientnet.EfficientNetB0.inference",
        PASSIVE,
        "--format=json",
        cwd=workspace,
    )

    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    assert result["status"] == "passed"
    summary = read_summary(result, workspace)
    assert summary["ml_framework_info"]["name"] == "torch"
    setup = summary["setup_info"]
    assert (setup["framework"], setup["base_image"], setup["device"]) == (
        "torch",
        base_image,
        "cpu",
    )
    installed = setup["distributions"]["framework"]
    assert installed["torch"] == summary["ml_framework_info"]["version"]
    assert not [name for name in installed if CUDA.match(name)]
    assert "GitPython" in setup["distributions"]["perfrun"]
    assert "GitPython" not in installed
    assert user.owns(workspace)


@pytest.mark.tensorflow
def test_tensorflow_runs_the_shipped_efficientnet(
    tensorflow_image: str, user: Caller, workspace: Path
) -> None:
    done = user.run(
        *run_in_container(user, tensorflow_image, workspace),
        "--benchmark_methods=benchmarks.tensorflow.efficientnet.EfficientNetB0.inference",
        "--format=json",
        cwd=workspace,
    )

    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    assert result["status"] == "passed"
    summary = read_summary(result, workspace)
    assert summary["ml_framework_info"]["name"] == "tensorflow"
    installed = summary["setup_info"]["distributions"]["framework"]
    assert not [name for name in installed if CUDA.match(name)]
    # Both of --extra_pip_specs: PerfZero glued the two together.
    assert summary["setup_info"]["extra_pip_specs"] == "iniconfig>=2;pluggy>=1,<2"
    assert {"iniconfig", "pluggy"} <= installed.keys()
    assert user.owns(workspace)


def test_the_labels_of_an_image_say_what_it_was_built_from(
    tensorflow_image: str, base_image: str
) -> None:
    labels = json.loads(
        docker("image", "inspect", "--format", "{{json .Config.Labels}}", tensorflow_image)
    )

    assert labels["perfrun.framework"] == "tensorflow"
    assert labels["perfrun.base_image"] == base_image
    assert labels["perfrun.extra_pip_specs"] == "iniconfig>=2;pluggy>=1,<2"
    bill = docker("run", "--rm", "--entrypoint", "cat", tensorflow_image, labels["perfrun.sbom"])
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    found = {(one["properties"][0]["value"], one["name"]) for one in json.loads(bill)["components"]}
    assert {("framework", "iniconfig"), ("perfrun", "psutil"), ("system", "libc6")} <= found


def test_a_second_build_does_nothing_again_and_makes_the_same_image(
    torch_image: str, checkout: Path, user: Caller, base_image: str
) -> None:
    before = docker("image", "inspect", "--format", "{{.Id}}", torch_image)

    done = user.setup_py(checkout, f"--docker_tag={torch_image}", f"--base_image={base_image}")

    assert done.returncode == 0, done.stderr
    steps = re.findall(r"(?m)^#(\d+) \[ *\d+/\d+\] (?:RUN|COPY)", done.stderr)
    assert len(steps) > 5
    assert {step for step in steps if f"#{step} CACHED\n" in done.stderr} == set(steps)
    line = rf"built {torch_image} \({before[:19]}, \d\.\d\d GB\) in \d+ s\n"
    assert re.fullmatch(line, done.stdout)
    assert docker("image", "inspect", "--format", "{{.Id}}", torch_image) == before


def test_a_change_in_the_code_keeps_the_framework_and_the_libraries(
    torch_image: str, checkout: Path, user: Caller, base_image: str
) -> None:
    tag = f"{torch_image}:changed"
    changed = checkout / "perfrun" / "errors.py"
    original = changed.read_bytes()
    changed.write_bytes(original + b"# changed by a test\n")
    try:
        done = user.setup_py(checkout, f"--docker_tag={tag}", f"--base_image={base_image}")
    finally:
        changed.write_bytes(original)

    assert done.returncode == 0, done.stderr
    before, after = layers(torch_image), layers(tag)
    docker("image", "rm", tag)
    assert after != before
    assert after[:-3] == before[:-3], "only the code, its compiled files and the record may be new"


def test_a_user_the_image_does_not_know_can_run_it(
    torch_image: str, root: Caller, place: Path
) -> None:
    somebody = Caller(uid=1234, gid=1234, groups=(), home=place)
    workspace = place / "work space of 1234"
    workspace.mkdir(mode=0o700)
    give(workspace, somebody)

    done = root.run(
        *run_in_container(root, torch_image, workspace, "--user", "1234:1234"),
        NOOP,
        "--format=json",
        cwd=place,
    )

    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    assert result["status"] == "passed"
    assert somebody.owns(workspace)


def test_an_image_runs_without_any_mount(torch_image: str, user: Caller, place: Path) -> None:
    for words in ([], ["--user", "1234:1234"], ["--env", "PERFRUN_UID=77"]):
        done = user.run(
            "docker", "run", "--rm", *words, torch_image, NOOP, "--format=json", cwd=place
        )

        assert done.returncode == 0, done.stderr
        assert [result["status"] for result in results(done.stdout)] == ["passed"]


def test_a_mounted_repository_of_another_owner_is_cloned_at_its_hash(
    torch_image: str, user: Caller, root: Caller, workspace: Path, place: Path
) -> None:
    repository = place / "their repository"
    commit = make_repository(repository, root)

    done = user.run(
        *run_in_container(user, torch_image, workspace, "-v", f"{repository}:/repos/theirs:ro"),
        f"--git_repos=file:///repos/theirs;main;{commit}",
        "--python_path=theirs",
        "--benchmark_methods=theirs.benchmarks.Theirs.quick",
        "--format=json",
        cwd=place,
    )

    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    summary = read_summary(result, workspace)
    assert summary["benchmark_info"]["site_package_info"]["theirs"]["hash"] == commit
    assert summary["benchmark_result"]["wall_time"] == 0.25
    assert user.owns(workspace)


def test_a_workspace_that_root_has_filled_is_refused_in_one_line(
    torch_image: str, root: Caller, place: Path
) -> None:
    workspace = place / "work space of root"
    workspace.mkdir()
    (workspace / "results of last week").mkdir()

    done = root.run(
        *run_in_container(root, torch_image, workspace, "--env", "PERFRUN_UID=4321"),
        NOOP,
        cwd=place,
    )

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "sudo chown -R 4321:4321 workspace" in done.stderr
    assert workspace.stat().st_uid == 0


def test_a_user_that_is_no_number_is_refused_in_one_line(
    torch_image: str, user: Caller, place: Path
) -> None:
    done = user.run(
        "docker", "run", "--rm", "--env", "PERFRUN_UID=alice", torch_image, NOOP, cwd=place
    )

    assert done.returncode == 2
    assert done.stderr == (
        "perfrun: PERFRUN_UID and PERFRUN_GID must be numbers, as `id -u` and `id -g` print them\n"
    )


def test_a_failed_build_ends_with_one_clear_line(
    checkout: Path, user: Caller, base_image: str
) -> None:
    done = user.setup_py(
        checkout,
        "--docker_tag=perfrun-test/none",
        f"--base_image={base_image}",
        "--framework_pip_spec=torch==0.0.0.no.such.release",
    )

    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("perfrun: image perfrun-test/none was not built: found no cpu build of ")
    assert "torch==0.0.0.no.such.release" in last


def test_an_engine_that_does_not_run_is_named_as_the_reason(checkout: Path, user: Caller) -> None:
    done = user.setup_py(checkout, DOCKER_HOST="unix:///nonexistent/docker.sock")

    assert done.returncode == 2
    assert done.stderr.startswith("perfrun: the container engine does not answer (")
    assert done.stderr.count("\n") == 1


def test_somebody_who_may_not_use_the_engine_learns_how_to(
    checkout: Path, stranger: Caller, user: Caller
) -> None:
    done = stranger.setup_py(checkout)

    assert done.returncode == 2
    assert done.stderr.startswith("perfrun: you may not use the container engine; join the group")
    assert done.stderr.count("\n") == 1

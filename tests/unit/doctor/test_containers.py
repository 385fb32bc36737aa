"""The checks of engine, Compose and GPUs, by the answers of `docker` and the kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import LAPTOP, built

from perfrun.doctor import containers, software
from perfrun.doctor.check import Presence
from perfrun.doctor.containers import DockerAnswer, ask_docker
from perfrun.probes.accelerators import Accelerators
from perfrun.probes.sysfs import Sysfs
from perfrun.summary.document import Environment

FOUND, MISSING, UNKNOWN = Presence.FOUND, Presence.MISSING, Presence.UNKNOWN
NOBODY = DockerAnswer(has_client=False, info={})
ROOTLESS = {"ServerVersion": "27.1", "SecurityOptions": ["name=seccomp", "name=rootless"]}
USER = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers"


def fake_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a command `docker` on the path, and nothing else but the shell's own."""
    command = folder / "bin" / "docker"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))


def test_an_engine_is_asked_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps(ROOTLESS)
    fake_docker(tmp_path, monkeypatch, f"[ $1 = info ] && echo '{answer}' || echo v2.40.3")
    said = ask_docker()
    assert (said.info, said.compose, said.is_rootless) == (ROOTLESS, "v2.40.3", True)
    tree = built(tmp_path, LAPTOP)
    assert containers.engine(tree, said).value == "Docker 27.1, rootless"
    assert containers.compose(tree, said).value == "2.40.3"


def test_without_docker_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = containers.engine(built(tmp_path, LAPTOP), ask_docker())
    assert (found.presence, found.value) == (MISSING, "no command `docker`")
    assert found.mend == "sudo apt-get install docker.io"


@pytest.mark.parametrize(
    ("complaint", "value", "mend"),
    [
        (
            "permission denied while trying to connect to unix:///var/run/docker.sock",
            "this user may not use it",
            "usermod -aG docker",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
            "Cannot connect",
            "sudo systemctl start docker",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///run/user/1000/docker.sock.",
            "Cannot connect",
            "systemctl --user start docker",
        ),
        ("", "docker info said nothing", "start docker"),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_what_stands_between_the_user_and_the_engine_is_said(
    complaint: str,
    value: str,
    mend: str,
    inside: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Old clients print errors and fail; newer ones put them into the document."""
    errors = json.dumps({"ServerErrors": [complaint] if complaint else []})
    script = f"echo '{errors}'" if inside else f"echo '{complaint}' >&2; exit 1"
    fake_docker(tmp_path, monkeypatch, script)
    found = containers.engine(built(tmp_path, LAPTOP), ask_docker())
    assert found.presence is MISSING
    assert value in (found.value or "")
    assert mend in (found.mend or "")


def test_an_engine_that_hangs_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, monkeypatch, "exec /bin/sleep 60")
    monkeypatch.setattr(containers, "TIMEOUT_S", 0.2)
    found = containers.engine(built(tmp_path, LAPTOP), ask_docker())
    assert (found.presence, found.value) == (MISSING, "no answer in 0.2 s")


@pytest.mark.parametrize("script", ["echo nonsense", "echo '[1]'", "printf '\\377'", "exit 3"])
def test_a_docker_that_answers_nonsense_is_no_engine(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, monkeypatch, script)
    assert containers.engine(built(tmp_path, LAPTOP), ask_docker()).presence is MISSING


def test_a_docker_that_cannot_be_executed_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, monkeypatch, "")
    (tmp_path / "bin" / "docker").write_bytes(b"\x7fELF not really")
    assert containers.engine(built(tmp_path, LAPTOP), ask_docker()).presence is MISSING


def test_the_first_compose_does_not_do(tmp_path: Path) -> None:
    tree = built(tmp_path, LAPTOP)
    old = containers.compose(tree, DockerAnswer(has_client=True, info={}, compose="1.29.2"))
    assert (old.presence, old.mend) == (MISSING, "sudo apt-get install docker-compose-plugin")


@pytest.mark.parametrize(
    ("user", "rootless", "files", "expected", "value"),
    [
        (0, False, {}, FOUND, "root: all controllers"),
        (1000, True, {}, UNKNOWN, None),
        (1000, True, {USER: "memory pids"}, MISSING, "memory pids (not cpu cpuset)"),
        (1000, True, {USER: ""}, MISSING, "none (not cpu cpuset memory pids)"),
        (1000, True, {USER: "cpuset cpu io memory pids"}, FOUND, "cpuset cpu io memory pids"),
        (
            1000,
            True,
            {"/sys/fs/cgroup/cgroup.controllers": None, "/sys/fs/cgroup/memory/tasks": ""},
            MISSING,
            "version 1 delegates nothing",
        ),
    ],
)
def test_delegation_is_read_from_the_users_own_service(
    user: int,
    rootless: bool,
    files: dict[str, str | None],
    expected: Presence,
    value: str | None,
    tmp_path: Path,
) -> None:
    tree = built(tmp_path, {**LAPTOP, **files})
    found = containers.delegation(tree, rootless, user=user)
    assert (found.presence, found.value) == (expected, value)
    given = user == 1000 and USER in files
    assert ("delegate.conf" in (found.mend or "")) is (given and expected is MISSING)


def two(model: str = "NVIDIA H200") -> Accelerators:
    return Accelerators(
        model=model,
        count=2,
        driver_version="570.1",
        models=(model, model),
        memory_bytes=(None, None),
    )


def test_gpus_are_counted_by_model(tmp_path: Path) -> None:
    tree = built(tmp_path, LAPTOP)
    found, _ = containers.device_checks(tree, NOBODY, two())
    assert (found.presence, found.value) == (FOUND, "2 x NVIDIA H200, driver 570.1")


def test_a_device_without_a_driver_is_seen(tmp_path: Path) -> None:
    pci = "/sys/bus/pci/devices/0000:01:00.0"
    tree = built(tmp_path, {**LAPTOP, f"{pci}/vendor": "0x10de\n", f"{pci}/class": "0x030200\n"})
    found, _ = containers.device_checks(tree, NOBODY, None)
    assert (found.presence, found.mend) == (MISSING, "sudo apt-get install nvidia-driver")
    assert "without a working driver" in (found.value or "")


CDI = "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n"


@pytest.mark.parametrize(
    ("files", "info", "expected", "value", "mend"),
    [
        ({}, {"ServerVersion": "1"}, MISSING, "no GPU to give", None),
        (
            {"/dev/nvidia0": ""},
            {"ServerVersion": "1"},
            MISSING,
            "the NVIDIA Container Toolkit is not installed",
            "sudo apt-get install nvidia-container-toolkit",
        ),
        ({"/dev/nvidia0": ""}, {}, MISSING, "no container engine answers", None),
        (
            {"/dev/nvidia0": "", "/etc/cdi/nvidia.yaml": CDI},
            {"ServerVersion": "28", "CDISpecDirs": ["/etc/cdi"]},
            FOUND,
            "cdi",
            None,
        ),
        (
            {"/dev/nvidia0": ""},
            {"ServerVersion": "28", "Runtimes": {"runc": {}, "nvidia": {}}},
            FOUND,
            "nvidia runtime",
            None,
        ),
    ],
)
def test_containers_get_gpus_by_cdi_or_by_the_runtime(
    files: dict[str, str],
    info: dict[str, Any],
    expected: Presence,
    value: str,
    mend: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tree = built(tmp_path, {**LAPTOP, **files})
    _, found = containers.device_checks(tree, DockerAnswer(has_client=True, info=info), None)
    assert (found.presence, found.value, found.mend) == (expected, value, mend)


def test_a_toolkit_that_is_there_is_only_to_be_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, monkeypatch, "")
    (tmp_path / "bin" / "docker").rename(tmp_path / "bin" / "nvidia-ctk")
    said = DockerAnswer(has_client=True, info={"ServerVersion": "28", "CDISpecDirs": ["/etc/cdi"]})
    tree = built(tmp_path, {**LAPTOP, "/dev/nvidia0": ""})
    _, found = containers.device_checks(tree, said, None)
    assert found.mend == "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


def test_git_is_found_with_its_version_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert software.git(Sysfs()).presence is FOUND
    monkeypatch.setenv("PATH", str(tmp_path))
    found = software.git(built(tmp_path, LAPTOP))
    assert (found.presence, found.mend) == (MISSING, "sudo apt-get install git")


def test_the_frameworks_of_the_environment_are_named() -> None:
    installed = {"torch": "2.13.0", "numpy": "2.0", "jax": "0.4"}
    found = Environment(python={"version": "3.11.7"}, distributions=installed)
    assert software.python(found, None).value == "3.11.7, torch 2.13.0, jax 0.4"
    assert software.python(Environment(python={"version": "3.8.1"}), None).presence is FOUND
    assert software.python(None, "does not start").presence is MISSING


def test_the_image_of_the_trials_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = DockerAnswer(has_client=True, info=ROOTLESS)
    script = """
        case $5 in
            ours) echo sha256:0123456789abcdef0123;;
            *gone) echo "Error: No such image: gone" >&2; exit 1;;
            *) echo "Cannot connect to the Docker daemon" >&2; exit 1;;
        esac
    """
    fake_docker(tmp_path, monkeypatch, script)
    found = [containers.image_check(name, there) for name in ("ours", "gone", "no answer")]
    assert [each.presence for each in found] == [FOUND, MISSING, UNKNOWN]
    assert [each.value for each in found] == [
        "sha256:0123456789ab",
        "Error: No such image: gone",
        "Cannot connect to the Docker daemon",
    ]
    assert [each.mend for each in found] == [None, "docker pull gone", None]
    assert containers.image_check("ours", NOBODY).presence is UNKNOWN
    assert (
        containers.image_check("perfrun/gone", there).mend
        == "python3 setup.py --docker_tag perfrun/gone"
    )

"""Check the container engine, Compose, cgroup delegation, GPUs, and GPUs in containers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfrun.doctor.check import Check, install_command, presence
from perfrun.doctor.software import TIMEOUT_S
from perfrun.doctor.system import cgroup_version
from perfrun.image.engine import find_rootless_socket, parse_document
from perfrun.image.gpus import GpuSupport, read_gpu_support
from perfrun.probes.accelerators import Accelerators
from perfrun.probes.commands import command_output
from perfrun.probes.sysfs import Sysfs

_PACKAGES = {"*": "docker", "debian": "docker.io", "ubuntu": "docker.io", "fedora": "moby-engine"}
_DELEGATED = ("cpu", "cpuset", "memory", "pids")
_DELEGATE = (
    "sudo mkdir -p /etc/systemd/system/user@.service.d && "
    "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | "
    "sudo tee /etc/systemd/system/user@.service.d/delegate.conf && "
    "sudo systemctl daemon-reload  # then log in again"
)
_NVIDIA = "0x10de"


@dataclass(frozen=True, kw_only=True)
class DockerAnswer:
    """The answers of `docker`; `info` is empty when no engine answered."""

    has_client: bool
    info: Mapping[str, Any]
    errors: str = ""
    compose: str | None = None  # version

    @property
    def is_rootless(self) -> bool:
        """True when the engine runs as an ordinary user."""
        options = self.info.get("SecurityOptions") or ()
        return any(str(option).startswith("name=rootless") for option in options)


def ask_docker() -> DockerAnswer:
    """Ask the engine and Compose for their versions, for at most 20 s each."""
    if shutil.which("docker") is None:
        return DockerAnswer(has_client=False, info={})
    out, errors = _docker("info", "--format", "{{json .}}")
    info = parse_document(out)
    if not info.get("ServerVersion"):
        if "host" in info and "version" in info:
            errors = "the command `docker` is Podman's; perfrun needs Docker's own"
        errors = "\n".join(info.get("ServerErrors") or ()) or errors
        info = {}
    compose, _ = _docker("compose", "version", "--short")
    return DockerAnswer(has_client=True, info=info, errors=errors, compose=compose.strip() or None)


def _docker(*words: str) -> tuple[str, str]:
    """Return the output of `docker` (empty when it failed) and its errors."""
    status, out, errors = command_output("docker", *words, most_s=TIMEOUT_S)
    return (out if status == 0 or words[0] == "info" else ""), errors


def engine_checks(sysfs: Sysfs, answer: DockerAnswer) -> list[Check]:
    """Check engine, Compose, and the control groups that a rootless engine may use."""
    return [engine(sysfs, answer), compose(sysfs, answer), delegation(sysfs, answer.is_rootless)]


def engine(sysfs: Sysfs, answer: DockerAnswer) -> Check:
    """Check for a container engine that this user may use."""
    kind = "rootless" if answer.is_rootless else "rootful"
    mend: str | None = None
    if answer.info:
        value = f"Docker {answer.info['ServerVersion']}, {kind}"
    else:
        value, mend = _no_engine(sysfs, answer)
    return Check(
        name="engine",
        wanted="container engine",
        presence=presence(bool(answer.info)),
        value=value,
        why="--image, Compose and the framework images need it; local runs do not",
        mend=mend,
    )


def _no_engine(sysfs: Sysfs, answer: DockerAnswer) -> tuple[str, str | None]:
    if not answer.has_client:
        return "no command `docker`", install_command(sysfs, _PACKAGES)
    if "permission denied" in answer.errors.lower():
        return "this user may not use it", "sudo usermod -aG docker $USER  # then log in again"
    lines = answer.errors.strip().splitlines() or ["docker info said nothing"]
    socket = find_rootless_socket()
    mend: str | None = "sudo systemctl start docker"
    if "/run/user/" in answer.errors:
        mend = "systemctl --user start docker"
    elif "Podman" in answer.errors:
        mend = install_command(sysfs, _PACKAGES)
    elif socket is not None:
        mend = f"export DOCKER_HOST=unix://{socket}"
    return lines[-1].strip(), mend


def image_check(name: str, answer: DockerAnswer) -> Check:
    """Check that the engine has the image of the trials."""
    fits: bool | None = None
    value = None
    is_ours = name.startswith("perfrun/")  # no registry has it
    getting = "python3 setup.py --docker_tag" if is_ours else "docker pull"
    if answer.info:
        found, errors = _docker("image", "inspect", "--format", "{{.Id}}", name)
        # Any other error, such as that of an engine that has just ended, leaves it unknown.
        fits = True if found else (False if "o such image" in errors else None)
        value = found.strip()[:19] or (errors.strip().splitlines() or ["no answer"])[-1]
    return Check(
        name="image",
        wanted=f"image {name}",
        presence=presence(fits),
        value=value,
        why="trials run in it; a run pulls it if it can, and ends at once if it cannot",
        mend=f"{getting} {shlex.quote(name)}" if fits is False else None,
    )


def compose(sysfs: Sysfs, answer: DockerAnswer) -> Check:
    """Check that `docker compose` works in version 2 or later."""
    version = (answer.compose or "").lstrip("v")
    fits = bool(version) and not version.startswith("1.")
    packages = {
        "*": "docker-compose",
        "debian": "docker-compose-plugin",
        "ubuntu": "docker-compose-v2",
        "alpine": "docker-cli-compose",
    }
    return Check(
        name="compose",
        wanted="Compose version 2",
        presence=presence(fits),
        value=version or "no plugin `docker compose`",
        why="`docker compose run perfrun ...` needs nothing else on the host",
        mend=None if fits else install_command(sysfs, packages),
    )


def delegation(sysfs: Sysfs, rootless: bool, user: int | None = None) -> Check:
    """Check that this user may use the cgroup controllers that containers need."""
    uid = os.geteuid() if user is None else user
    version = cgroup_version(sysfs)
    mend: str | None = None
    fits: bool | None
    value: str | None
    if uid == 0 and not rootless:
        fits, value = (True if version else None), "root: all controllers"
    elif version != 2:
        fits = None if version is None else False
        value = None if version is None else "version 1 delegates nothing"
    else:
        service = f"/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service"
        text = sysfs.text(f"{service}/cgroup.controllers")
        given = (text or "").split()
        lacking = [name for name in _DELEGATED if name not in given]
        fits = None if text is None else not lacking
        value = None if text is None else " ".join(given) or "none"
        if lacking and text is not None:
            value = f"{value} (not {' '.join(lacking)})"
            mend = _DELEGATE
    return Check(
        name="cgroup_delegation",
        wanted="cgroup delegation",
        presence=presence(fits),
        value=value,
        why="a rootless engine needs them to limit memory and CPU and to read peaks",
        mend=mend,
    )


def device_checks(sysfs: Sysfs, answer: DockerAnswer, devices: Accelerators | None) -> list[Check]:
    """Check for GPUs, and for a way to give them to containers."""
    support = read_gpu_support(answer.info or None, Path(sysfs.root or "/"))
    return [gpu(sysfs, support, devices), toolkit(sysfs, support)]


def gpu(sysfs: Sysfs, support: GpuSupport, devices: Accelerators | None) -> Check:
    """Check for a GPU with a working driver."""
    mend = None
    if devices is not None:
        models = sorted(set(devices.models))
        counts = [f"{devices.models.count(model)} x {model}" for model in models]
        value = f"{', '.join(counts)}, driver {devices.driver_version}"
    elif support.vendor is not None:
        value = f"{support.vendor.value.upper()}: {', '.join(support.device_files)}"
    elif _has_nvidia_hardware(sysfs):
        value = "an NVIDIA device without a working driver"
        mend = install_command(
            sysfs, {"debian": "nvidia-driver", "ubuntu": "nvidia-driver-570-server"}
        )
    else:
        value = "no device" if sysfs.names("/sys/bus/pci/devices") else "no device, or no driver"
    return Check(
        name="gpu",
        wanted="GPU",
        presence=presence(devices is not None or support.vendor is not None),
        value=value,
        why="some benchmarks need one",
        mend=mend,
    )


def _has_nvidia_hardware(sysfs: Sysfs) -> bool:
    folder = "/sys/bus/pci/devices"
    return any(
        sysfs.text(f"{folder}/{name}/vendor") == _NVIDIA
        and (sysfs.text(f"{folder}/{name}/class") or "").startswith("0x03")
        for name in sysfs.names(folder)
    )


def toolkit(sysfs: Sysfs, support: GpuSupport) -> Check:
    """Check for a way to give GPUs to containers of this engine."""
    mend = None
    if support.access is not None:
        value = support.access.value
    elif support.vendor is None:
        value = "no GPU to give"
    else:
        value, mend = _no_access(sysfs, support)
    return Check(
        name="gpu_toolkit",
        wanted="GPU in containers",
        presence=presence(support.access is not None),
        value=value,
        why="without it a container sees no GPU; rootless engines need CDI",
        mend=mend,
    )


def _no_access(sysfs: Sysfs, support: GpuSupport) -> tuple[str, str | None]:
    """Return what is missing, and the command for it out of the sentence that says so."""
    why = support.why_not or "no way into a container is known"
    command = re.search(r"`(sudo [^`]*)`", why)
    if command:
        return why.partition(";")[0], command[1]
    if not support.has_toolkit and "Toolkit" in why:
        return why.partition(";")[0], install_command(sysfs, {"*": "nvidia-container-toolkit"})
    return why, None

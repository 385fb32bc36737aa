"""Container engine, Compose and cgroup delegation, as far as `docker` and the kernel tell."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfrun.checks.check import Check, presence
from perfrun.checks.distribution import install_command
from perfrun.checks.sysfs import Sysfs
from perfrun.checks.system import cgroup_version
from perfrun.image.engine import find_rootless_socket, parse_document

TIMEOUT_S = 20.0  # one that takes longer, on a busy machine too, will not start containers either
_PACKAGES = {"*": "docker", "debian": "docker.io", "ubuntu": "docker.io", "fedora": "moby-engine"}
_DELEGATED = ("cpu", "cpuset", "memory", "pids")
_DELEGATE = (
    "sudo mkdir -p /etc/systemd/system/user@.service.d && "
    "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | "
    "sudo tee /etc/systemd/system/user@.service.d/delegate.conf && "
    "sudo systemctl daemon-reload  # then log in again"
)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What `docker` answered. `info` is empty when no engine did."""

    has_client: bool
    info: Mapping[str, Any]
    complaint: str = ""
    compose: str | None = None  # version

    @property
    def is_rootless(self) -> bool:
        """Whether the engine runs as an ordinary user."""
        options = self.info.get("SecurityOptions") or ()
        return any(str(option).startswith("name=rootless") for option in options)


def ask_docker() -> Said:
    """Ask the engine what it is, and Compose which it is. Takes at most `TIMEOUT_S` each."""
    if shutil.which("docker") is None:
        return Said(has_client=False, info={})
    out, complaint = _docker("info", "--format", "{{json .}}")
    info = parse_document(out)
    if not info.get("ServerVersion"):
        if "host" in info and "version" in info:
            complaint = "the command `docker` is Podman's; perfrun needs Docker's own"
        complaint = "\n".join(info.get("ServerErrors") or ()) or complaint
        info = {}
    compose, _ = _docker("compose", "version", "--short")
    return Said(has_client=True, info=info, complaint=complaint, compose=compose.strip() or None)


def _docker(*words: str) -> tuple[str, str]:
    """What `docker` printed, and what it complained of; nothing printed when it failed."""
    try:
        done = subprocess.run(
            ["docker", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer in {TIMEOUT_S:g} s"
    except OSError as error:
        return "", f"docker cannot be started: {error.strerror}"
    return (done.stdout if done.returncode == 0 or words[0] == "info" else ""), done.stderr


def engine_checks(sysfs: Sysfs, said: Said) -> list[Check]:
    """Engine, Compose, and the control groups that a rootless engine may use."""
    return [engine(sysfs, said), compose(sysfs, said), delegation(sysfs, said.is_rootless)]


def engine(sysfs: Sysfs, said: Said) -> Check:
    """Whether there is a container engine that this user can work with."""
    kind = "rootless" if said.is_rootless else "rootful"
    mend: str | None = None
    if said.info:
        value = f"Docker {said.info['ServerVersion']}, {kind}"
    else:
        value, mend = _no_engine(sysfs, said)
    return Check(
        name="engine",
        wanted="container engine",
        presence=presence(bool(said.info)),
        value=value,
        why="--image, Compose and the framework images need it; local runs do not",
        mend=mend,
    )


def _no_engine(sysfs: Sysfs, said: Said) -> tuple[str, str | None]:
    if not said.has_client:
        return "no command `docker`", install_command(sysfs, _PACKAGES)
    if "permission denied" in said.complaint.lower():
        return "this user may not use it", "sudo usermod -aG docker $USER  # then log in again"
    lines = said.complaint.strip().splitlines() or ["docker info said nothing"]
    socket = find_rootless_socket()
    mend: str | None = "sudo systemctl start docker"
    if "/run/user/" in said.complaint:
        mend = "systemctl --user start docker"
    elif "Podman" in said.complaint:
        mend = install_command(sysfs, _PACKAGES)
    elif socket is not None:
        mend = f"export DOCKER_HOST=unix://{socket}"
    return lines[-1].strip(), mend


def image(name: str, said: Said) -> Check:
    """Whether the engine has the image that the trials are to run in."""
    fits: bool | None = None
    value = None
    is_ours = name.startswith("perfrun/")  # which no registry has
    getting = "python3 setup.py --docker_tag" if is_ours else "docker pull"
    if said.info:
        found, complaint = _docker("image", "inspect", "--format", "{{.Id}}", name)
        # Any other complaint, as of an engine that has just gone, is no answer.
        fits = True if found else (False if "o such image" in complaint else None)
        value = found.strip()[:19] or (complaint.strip().splitlines() or ["no answer"])[-1]
    return Check(
        name="image",
        wanted=f"image {name}",
        presence=presence(fits),
        value=value,
        why="trials run in it; a run pulls it if it can, and ends at once if it cannot",
        mend=f"{getting} {shlex.quote(name)}" if fits is False else None,
    )


def compose(sysfs: Sysfs, said: Said) -> Check:
    """Whether `docker compose` works, version 2 or later."""
    version = (said.compose or "").lstrip("v")
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
        why="`docker compose run perfrun ...` is the run that needs nothing else on the host",
        mend=None if fits else install_command(sysfs, packages),
    )


def delegation(sysfs: Sysfs, rootless: bool, user: int | None = None) -> Check:
    """Which controllers this user may use for containers of their own."""
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
        why="a rootless engine can limit memory and CPU, and read peaks, only where they are given",
        mend=mend,
    )

"""The container engine of this machine: whether there is one, of what kind, and how it builds.

Runs on a bare host under the root script `setup.py`: standard library only, Python >= 3.8.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import Enum
from typing import Any

from perfrun.errors import PerfrunError

# The last release of the `docker` command with a BuildKit client of its own; then came buildx.
LAST_CLIENT_WITH_BUILDKIT = 20


class EngineError(PerfrunError):
    """There is no container engine here that this user can work with."""

    exit_code = 2


class Builder(Enum):
    """What `docker build` does on this machine."""

    BUILDX = "buildx"
    """BuildKit through the buildx plugin."""
    BUILT_IN = "built-in"
    """BuildKit in the client itself, which has to be asked for it."""
    CLASSIC = "classic"
    """The builder in the daemon. Its cache is its own: Compose, which has BuildKit, shares none."""


@dataclass(frozen=True)
class Engine:
    """The engine that the command `docker` talks to."""

    version: str
    is_rootless: bool
    builder: Builder


def find_engine() -> Engine:
    """Asks the engine what it is; EngineError says what is missing and how to get it."""
    if shutil.which("docker") is None:
        raise EngineError(
            "no container engine: there is no command `docker` here; install Docker "
            "(on Debian and Ubuntu: `sudo apt-get install docker.io`), "
            "or run without a container: `make run`"
        )
    answer = query("info", "--format", "{{json .}}")
    return parse_info(answer.stdout, answer.stderr, find_builder())


def parse_info(document: str, stderr: str, builder: Builder) -> Engine:
    """The engine from what `docker info` says; a client alone reports no server version."""
    info: dict[str, Any] = json.loads(document or "{}")
    if not info.get("ServerVersion"):
        # Told inside the document by some releases, which then end with status 0.
        raise EngineError(explain_refusal("\n".join(info.get("ServerErrors") or ()) or stderr))
    return Engine(
        version=info["ServerVersion"],
        is_rootless=any(
            option.startswith("name=rootless") for option in info.get("SecurityOptions") or ()
        ),
        builder=builder,
    )


def explain_refusal(complaint: str) -> str:
    """What stands between this user and the engine, and what to do about it, in one line."""
    if "permission denied" in complaint:
        return (
            "you may not use the container engine; join the group `docker` "
            "(`sudo usermod -aG docker $USER`, then log in again) or set up rootless Docker"
        )
    last_words = (complaint.strip().splitlines() or ["docker info said nothing"])[-1].strip()
    return (
        f"the container engine does not answer ({last_words}); start it, "
        "e.g. `sudo systemctl start docker`"
    )


def find_builder() -> Builder:
    """Asks the command `docker` which builder it has; needs no running engine."""
    has_buildx = query("buildx", "version").returncode == 0
    return choose_builder(has_buildx, query("version", "--format", "{{.Client.Version}}").stdout)


def choose_builder(has_buildx: bool, client_version: str) -> Builder:
    """The best builder of a client, by whether the plugin is there and by its version."""
    major = re.match(r"\d+", client_version)
    if has_buildx:
        return Builder.BUILDX
    if major and int(major[0]) <= LAST_CLIENT_WITH_BUILDKIT:
        return Builder.BUILT_IN
    return Builder.CLASSIC


def describe_image(tag: str) -> str:
    """Id and size of an image that is there, for people."""
    answer = query("image", "inspect", "--format", "{{.Id}} {{.Size}}", tag).stdout.split()
    return f"{answer[0][:19]}, {int(answer[1]) / 1e9:.2f} GB" if answer else "id unknown"


def query(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `docker` with these arguments and hands back all that it said."""
    return subprocess.run(("docker", *arguments), capture_output=True, text=True, check=False)

"""The container engine of this machine: its kind, its builder, and its errors in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Tuple

from perfrun.errors import PerfrunError

ANSWER_LIMIT_S = 120.0  # of one question to the engine
# The last release of the `docker` command with a BuildKit client of its own; then came buildx.
LAST_CLIENT_WITH_BUILDKIT = 20
# By the ID or ID_LIKE of os-release(5). Each installs the distribution's own engine.
INSTALLATION = {
    "debian": "sudo apt-get install docker.io",
    "ubuntu": "sudo apt-get install docker.io docker-compose-v2 docker-buildx",
    "fedora": "sudo dnf install moby-engine docker-compose docker-buildx",
    "arch": "sudo pacman -S docker docker-compose docker-buildx",
    "alpine": "sudo apk add docker docker-cli-compose docker-cli-buildx",
    "opensuse": "sudo zypper install docker docker-compose docker-buildx",
    "suse": "sudo zypper install docker docker-compose docker-buildx",
}
# Errors of a fetch. Engines pass on the text of Go's network library and of the registry, with urls
# and addresses of name servers.
DEFAULT_REGISTRY = "docker.io"
_HOST = re.compile(r"https?://([^/\s\"]+)")
# Text of a failed connection: reason. The first text that is found counts.
_UNREACHABLE = {
    "proxyconnect": "its proxy does not answer",
    "no such host": "no such host",
    "server misbehaving": "the name server fails",
    "Temporary failure in name resolution": "the name server does not answer",
    "connection refused": "connection refused",
    "network is unreachable": "network is unreachable",
    "no route to host": "no route to host",
    "connection reset by peer": "connection reset by peer",
    "i/o timeout": "no answer in time",
    "TLS handshake timeout": "no answer in time",
    "Client.Timeout exceeded": "no answer in time",
    "context deadline exceeded": "no answer in time",
    "server gave HTTP response to HTTPS client": "it speaks HTTP, not HTTPS",
    "503 Service Unavailable": "503 Service Unavailable",
    ": EOF": "it hung up",
}
_ABSENT = ("manifest unknown", "manifest for ", ": not found", "no matching manifest")
_DENIED = ("unauthorized", "authentication required", "may require", "Forbidden")
# "permission denied" is an error of this machine; registries write `denied` otherwise.
_IS_DENIED = re.compile(r"(?<!permission )\bdenied\b", re.IGNORECASE)
# Errors of writing to this machine's disk are no fault of the registry.
_UNPACKING = re.compile(
    r"(?:register|extract|apply|adding)\w* layer|processing tar|failed to (?:extract|unpack)"
    r"|content digest",
    re.IGNORECASE,
)


class EngineError(PerfrunError):
    """There is no container engine that this user can use."""

    exit_code = 2


@dataclass(frozen=True)
class Engine:
    """The engine that the command `docker` talks to."""

    version: str
    is_rootless: bool
    info: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The document of `docker info`, whole."""

    @property
    def kind(self) -> str:
        return "rootless" if self.is_rootless else "rootful"


def find_engine() -> Engine:
    """Return the engine; EngineError says what is missing and how to install it."""
    if shutil.which("docker") is None:
        how = installation_command(read_os_release())
        raise EngineError(
            f"no container engine: there is no command `docker` here; install Docker ({how}), "
            "or run without a container: `make run`"
        )
    answer = query("info", "--format", "{{json .}}")
    return parse_info(answer.stdout, answer.stderr)


def parse_info(document: str, stderr: str) -> Engine:
    """Return the engine that `docker info` describes; without a server it has no version."""
    info = parse_document(document)
    if "host" in info and "version" in info and not info.get("ServerVersion"):
        raise EngineError(
            "the command `docker` is Podman's here; perfrun needs Docker's own "
            "(rootful or rootless)"
        )
    if not info.get("ServerVersion"):
        # Some releases put the errors into the document and end with status 0.
        raise EngineError(explain_refusal("\n".join(info.get("ServerErrors") or ()) or stderr))
    return Engine(
        version=info["ServerVersion"],
        is_rootless=any(
            option.startswith("name=rootless") for option in info.get("SecurityOptions") or ()
        ),
        info=info,
    )


def parse_document(text: str) -> dict[str, Any]:
    """Return a JSON object that `docker` printed; {} for anything else."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def explain_refusal(complaint: str) -> str:
    """Return why this user cannot use the engine, and what to do, in one line."""
    if "permission denied" in complaint:
        return (
            "you may not use the container engine; join the group `docker` "
            "(`sudo usermod -aG docker $USER`, then log in again) or set up rootless Docker"
        )
    last_words = (complaint.strip().splitlines() or ["docker info said nothing"])[-1].strip()
    socket = find_rootless_socket()
    if socket is not None:
        return (
            f"the container engine does not answer ({last_words}); "
            f"there is a rootless one: `export DOCKER_HOST=unix://{socket}`"
        )
    return (
        f"the container engine does not answer ({last_words}); start it, "
        "e.g. `sudo systemctl start docker`"
    )


def find_rootless_socket() -> Path | None:
    """Return the socket of this user's rootless engine unless DOCKER_HOST names it already."""
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}", "docker.sock")
    is_named = os.environ.get("DOCKER_HOST", "") == f"unix://{path}"
    return path if path.is_socket() and not is_named else None


def read_os_release(root: Path = Path("/")) -> dict[str, str]:
    """Return the fields of os-release(5); {} on a system without it."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            text = (root / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}
    return {}


def installation_command(os_release: Mapping[str, str]) -> str:
    """Return the command that installs Docker with Compose here, or a page that tells it."""
    families = [os_release.get("ID", ""), *os_release.get("ID_LIKE", "").split()]
    for family in families:
        if family in INSTALLATION:
            return f"on {os_release.get('NAME', family)}: `{INSTALLATION[family]}`"
    return "see docs.docker.com/engine/install"


def find_builder() -> Tuple[str, ...]:
    """Return the first words of a build by BuildKit: the first `docker` on the path that has it.

    No engine need run. Releases up to 20.10 have BuildKit built in, later ones as plugin buildx.
    """
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = (shutil.which("docker", path=folder) for folder in folders if folder)
    for number, client in enumerate(dict.fromkeys(filter(None, found))):
        words = ("DOCKER_BUILDKIT=1", client if number else "docker", "build")
        if _ask(client, "buildx", "version").returncode == 0:
            return (*words, "--load")  # or some of its drivers do not give the engine the image
        version = _ask(client, "version", "--format", "{{.Client.Version}}").stdout
        major = version.partition(".")[0]
        if major.isdecimal() and int(major) <= LAST_CLIENT_WITH_BUILDKIT:
            return words
    raise missing_builder(read_os_release())


def missing_builder(os_release: Mapping[str, str]) -> EngineError:
    """Return the error for a client with the classic builder alone, which has no mounts."""
    is_debian = {"debian", "ubuntu"} & {os_release.get("ID", ""), os_release.get("ID_LIKE", "")}
    how = (
        "`sudo apt-get install docker-buildx`" if is_debian else "the package docker-buildx-plugin"
    )
    return EngineError(
        "this Docker client has no BuildKit, which the Dockerfile needs: "
        f"install the buildx plugin ({how})"
    )


def describe_image(tag: str) -> str:
    """Return id and size of an image for people."""
    answer = query("image", "inspect", "--format", "{{.Id}} {{.Size}}", tag).stdout.split()
    return f"{answer[0][:19]}, {int(answer[1]) / 1e9:.2f} GB" if answer else "id unknown"


def query(*arguments: str, limit_s: float = ANSWER_LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run `docker` with these arguments; return its status and output."""
    return _ask("docker", *arguments, limit_s=limit_s)


def _ask(*argv: str, limit_s: float = ANSWER_LIMIT_S) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        text = f"{' '.join(argv[:2])}: no answer within {limit_s:g} s"
        return subprocess.CompletedProcess(argv, 1, stdout="", stderr=text)


def registry_of(image: str) -> str:
    """Return the registry in an image's name: its first part, if that is a host."""
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return first if is_host else DEFAULT_REGISTRY


def explain_fetch(complaint: str, image: str) -> str:
    """Return why an image could not be fetched, and what helps, in one line.

    An unknown error stays as the engine writes it.
    """
    said = " ".join(complaint.split())
    if _UNPACKING.search(said):
        return said[:500]
    asked = _HOST.search(said)
    host = asked[1] if asked else registry_of(image)
    if "x509" in said or "certificate" in said:
        return (
            f"the engine does not trust the certificate of the registry {host}; put the "
            f"authority's into /etc/docker/certs.d/{host}/ca.crt"
        )
    if "toomanyrequests" in said or "rate limit" in said:
        return f"the registry {host} gives no more images for now; {_login(image)}, or wait"
    reason = next((told for words, told in _UNREACHABLE.items() if words in said), None)
    if reason:
        return (
            f"the engine cannot reach the registry {host} ({reason}); mend its network or proxy, "
            "or bring the image with `docker load`"
        )
    if any(words in said for words in _DENIED) or _IS_DENIED.search(said):
        return (
            f"the registry {host} has no such image or wants a login; check the name, "
            f"or {_login(image)}"
        )
    if any(words in said for words in _ABSENT):
        return (
            f"the registry {host} has no such image, or none for this machine; check name and tag"
        )
    return said[:500]


def _login(image: str) -> str:
    registry = registry_of(image)
    return "`docker login`" if registry == DEFAULT_REGISTRY else f"`docker login {registry}`"

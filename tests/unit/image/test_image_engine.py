"""The engine as `docker` describes it, and its errors in one line."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from perfrun.image.engine import (
    EngineError,
    explain_fetch,
    explain_refusal,
    find_builder,
    installation_command,
    missing_builder,
    parse_info,
    read_os_release,
    registry_of,
)

# The parts that are read, as Docker 20.10 and 28 print them.
ROOTFUL = {
    "ServerVersion": "20.10.24+dfsg1",
    "SecurityOptions": ["name=seccomp,profile=default"],
}
ROOTLESS = {
    "ServerVersion": "28.2.2",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"],
}
DEAD = "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"
FORBIDDEN = (
    "permission denied while trying to connect to the Docker daemon socket at "
    'unix:///var/run/docker.sock: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.50/info": '
    "dial unix /var/run/docker.sock: connect: permission denied"
)


def test_a_rootless_engine_is_told_from_a_rootful_one() -> None:
    rootful = parse_info(json.dumps(ROOTFUL), "")
    rootless = parse_info(json.dumps(ROOTLESS), "")

    assert (rootful.version, rootful.is_rootless) == ("20.10.24+dfsg1", False)
    assert (rootless.version, rootless.is_rootless) == ("28.2.2", True)


def test_an_engine_without_security_options_is_rootful() -> None:
    document = json.dumps({"ServerVersion": "1", "SecurityOptions": None})

    assert parse_info(document, "").is_rootless is False


@pytest.mark.parametrize(
    ("document", "stderr"),
    [
        (json.dumps({"ServerVersion": "", "ServerErrors": [DEAD], "ClientInfo": {}}), ""),
        (json.dumps({"ID": "", "ServerErrors": [DEAD]}), "errors pretty printing info"),
        ("", f"{DEAD}\n"),
    ],
)
def test_a_client_without_an_engine_is_recognised(document: str, stderr: str) -> None:
    with pytest.raises(EngineError) as caught:
        parse_info(document, stderr)

    assert DEAD in str(caught.value)
    assert "start it" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_forbidden_socket_is_not_taken_for_a_dead_engine() -> None:
    words = explain_refusal(FORBIDDEN)

    assert words.startswith("you may not use the container engine")
    assert "usermod -aG docker" in words


def test_an_engine_that_says_nothing_is_still_one_line() -> None:
    assert "docker info said nothing" in explain_refusal("\n")
    assert "\n" not in explain_refusal("one\ntwo\n")


def make_client(folder: Path, version: str, has_buildx: bool) -> str:
    """A folder for the path with a command `docker` that says of itself what clients do."""
    folder.mkdir()
    client = folder / "docker"
    client.write_text(
        f'#!/bin/sh\ncase "$1" in buildx) exit {int(not has_buildx)};; *) echo "{version}";; esac\n'
    )
    client.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("has_buildx", "client_version", "words"),
    [
        (True, "20.10.24", "docker build --load"),
        (True, "", "docker build --load"),
        (False, "20.10.24+dfsg1", "docker build"),
        (False, "23.0.0", ""),
        (False, "28.2.2", ""),
        (False, "", ""),
    ],
)
def test_how_a_build_begins_follows_from_the_client(
    has_buildx: bool,
    client_version: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", make_client(tmp_path / "bin", client_version, has_buildx))

    if words:
        assert " ".join(find_builder()) == f"DOCKER_BUILDKIT=1 {words}"
        return
    with pytest.raises(EngineError, match="has no BuildKit, which the Dockerfile needs") as caught:
        find_builder()
    assert "docker-buildx" in str(caught.value)
    assert caught.value.exit_code == 2


def test_of_several_clients_the_first_that_has_buildkit_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = make_client(tmp_path / "one", "28.2.2", has_buildx=False)
    older = make_client(tmp_path / "two", "20.10.24", has_buildx=False)
    newer = make_client(tmp_path / "three", "28.2.2", has_buildx=True)
    monkeypatch.setenv("PATH", f"{without}::/nonexistent:{older}:{newer}")

    assert find_builder() == ("DOCKER_BUILDKIT=1", f"{older}/docker", "build")


def test_podman_under_the_name_docker_is_told_from_a_dead_engine() -> None:
    document = json.dumps({"host": {}, "store": {}, "version": {"Version": "5.0"}})

    with pytest.raises(EngineError, match="is Podman's here"):
        parse_info(document, "")


def test_words_where_a_document_should_be_are_a_dead_engine() -> None:
    with pytest.raises(EngineError, match="does not answer"):
        parse_info("not json", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('NAME="Debian GNU/Linux"\nID=debian\n', "on Debian GNU/Linux: `sudo apt-get install"),
        ("NAME='Linux Mint'\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", "docker-compose-v2"),
        ("ID=fedora\n", "dnf install moby-engine"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper install docker"),
        ("ID=plan9\n", "docs.docker.com/engine/install"),
        ("", "docs.docker.com/engine/install"),
    ],
)
def test_what_to_install_follows_from_the_distribution(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(text, encoding="utf-8")

    assert words in installation_command(read_os_release(tmp_path))


def test_a_system_without_os_release_has_no_fields(tmp_path: Path) -> None:
    assert read_os_release(tmp_path) == {}


@pytest.mark.parametrize(
    ("os_release", "words"),
    [
        ("ID=debian\n", "apt-get install docker-buildx"),
        ("ID=x\nID_LIKE=ubuntu\n", "apt-get install docker-buildx"),
        ("ID=fedora\n", "docker-buildx-plugin"),
        ("", "docker-buildx-plugin"),
    ],
)
def test_a_client_without_buildkit_learns_what_to_install(
    tmp_path: Path, os_release: str, words: str
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(os_release, encoding="utf-8")

    assert words in str(missing_builder(read_os_release(tmp_path)))


def test_a_rootless_engine_that_nobody_named_is_pointed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert "systemctl start docker" in explain_refusal(DEAD)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        assert f"`export DOCKER_HOST=unix://{tmp_path}/docker.sock`" in explain_refusal(DEAD)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        assert "systemctl start docker" in explain_refusal(DEAD)


# As Docker 20.10 to 28 print them.
COMPLAINTS = [
    (
        (
            'Get "https://hub.example/v2/": dial tcp: lookup hub.example on '
            "127.0.0.53:53: no such host"
        ),
        "python:3.11",
        "the engine cannot reach the registry hub.example (no such host); mend its ",
    ),
    (
        'Get "http://127.0.0.1:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused',
        "127.0.0.1:9/x:1",
        "the engine cannot reach the registry 127.0.0.1:9 (connection refused); mend its ",
    ),
    (
        (
            'Get "https://hub.example/v2/": proxyconnect tcp: dial tcp 10.0.0.1:3128: '
            "connect: connection refused"
        ),
        "python",
        "the engine cannot reach the registry hub.example (its proxy does not answer); ",
    ),
    (
        (
            'Get "https://r.example/v2/": net/http: request canceled while waiting for connection '
            "(Client.Timeout exceeded while awaiting headers)"
        ),
        "r.example/a/b",
        "the engine cannot reach the registry r.example (no answer in time); mend its ",
    ),
    (
        (
            'Get "https://r.example/v2/": tls: failed to verify certificate: x509: certificate '
            "signed by unknown authority"
        ),
        "r.example/x",
        "the engine does not trust the certificate of the registry r.example; put ",
    ),
    (
        (
            "pull access denied for perfrn/torch, repository does not exist or may require "
            "'docker login': denied: requested access to the resource is denied"
        ),
        "perfrn/torch",
        (
            "the registry docker.io has no such image or wants a login; check the name, or "
            "`docker login`"
        ),
    ),
    (
        "Head https://r.example/v2/a/b/manifests/latest: unauthorized",
        "r.example/a/b",
        (
            "the registry r.example has no such image or wants a login; check the name, or "
            "`docker login r.example`"
        ),
    ),
    (
        "manifest for python:3.99 not found: manifest unknown: manifest unknown",
        "python:3.99",
        "the registry docker.io has no such image, or none for this machine; check name and tag",
    ),
    (
        "toomanyrequests: You have reached your pull rate limit. You may increase the limit",
        "python",
        "the registry docker.io gives no more images for now; `docker login`, or wait",
    ),
    (
        "Error response from daemon: denied",
        "ghcr.io/a/b",
        "the registry ghcr.io has no such image or wants a login; check the name, or ",
    ),
    (
        'denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource',
        "eu.example/a/b",
        "the registry eu.example has no such image or wants a login; check the name, or ",
    ),
    (
        'failed to resolve reference "docker.io/library/x:9": docker.io/library/x:9: not found',
        "x:9",
        "the registry docker.io has no such image, or none for this machine; check name and tag",
    ),
    (
        'Get "https://r.example/v2/": EOF',
        "r.example/x",
        "the engine cannot reach the registry r.example (it hung up); mend its ",
    ),
    ("no space left on\ndevice", "python", "no space left on device"),
]
OF_THIS_MACHINE = [
    "failed to register layer: lchown /etc/gshadow: permission denied",
    "failed to register layer: ApplyLayer exit status 1 stdout: stderr: unexpected EOF",
    "failed to register layer: exec: /usr/sbin/xz: no such file: not found",
    "failed to register layer: Error processing tar file(exit status 1): unauthorized: EOF",
    'failed to extract layer sha256:0: failed to mount "/x": access denied',
    'writing blob: adding layer with blob "sha256:0": processing tar file(x): connection refused',
    "failed to unpack image on snapshotter overlayfs: content digest sha256:0: not found",
    'error getting credentials - err: exec: "x": executable file not found in $PATH',
    "dial unix /var/run/docker.sock: connect: permission denied",
    "open /var/lib/docker/tmp/GetImageBlob1: Permission denied",
]


@pytest.mark.parametrize("complaint", OF_THIS_MACHINE)
def test_a_fault_of_this_machine_is_in_the_words_of_the_engine(complaint: str) -> None:
    assert explain_fetch(f"{complaint}\n", "python:3.11") == complaint
    assert explain_fetch(complaint + " x" * 500, "python:3.11") == (complaint + " x" * 500)[:500]


@pytest.mark.parametrize(
    ("complaint", "image", "line"), COMPLAINTS, ids=[line for *_, line in COMPLAINTS]
)
def test_why_an_image_could_not_be_fetched_is_a_line_that_helps(
    complaint: str, image: str, line: str
) -> None:
    said = explain_fetch(complaint, image)
    assert said.startswith(line)
    assert "\n" not in said
    assert "dial tcp" not in said


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("python:3.11", "docker.io"),
        ("perfrun/torch", "docker.io"),
        ("localhost/x", "localhost"),
        ("host:5000/x:1", "host:5000"),
        ("r.example/a/b@sha256:0", "r.example"),
    ],
)
def test_the_registry_is_the_first_part_of_a_name_if_that_is_a_host(
    image: str, registry: str
) -> None:
    assert registry_of(image) == registry

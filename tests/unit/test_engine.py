"""What `docker` says about itself, and what perfrun makes of it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from perfrun.engine import (
    Builder,
    EngineError,
    choose_builder,
    explain_refusal,
    installation_command,
    missing_builder,
    parse_info,
    read_os_release,
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
    rootful = parse_info(json.dumps(ROOTFUL), "", Builder.CLASSIC)
    rootless = parse_info(json.dumps(ROOTLESS), "", Builder.BUILDX)

    assert (rootful.version, rootful.is_rootless) == ("20.10.24+dfsg1", False)
    assert (rootless.version, rootless.is_rootless) == ("28.2.2", True)
    assert (rootful.builder, rootless.builder) == (Builder.CLASSIC, Builder.BUILDX)


def test_an_engine_without_security_options_is_rootful() -> None:
    document = json.dumps({"ServerVersion": "1", "SecurityOptions": None})

    assert parse_info(document, "", Builder.CLASSIC).is_rootless is False


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
        parse_info(document, stderr, Builder.CLASSIC)

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


@pytest.mark.parametrize(
    ("has_buildx", "client_version", "has_compose", "builder"),
    [
        (True, "20.10.24", True, Builder.BUILDX),
        (True, "", False, Builder.BUILDX),
        (False, "20.10.24+dfsg1\n", True, Builder.BUILT_IN),
        (False, "23.0.0", True, Builder.COMPOSE),
        (False, "28.2.2", False, Builder.CLASSIC),
        (False, "", False, Builder.CLASSIC),
    ],
)
def test_the_builder_follows_from_the_client(
    has_buildx: bool, client_version: str, has_compose: bool, builder: Builder
) -> None:
    assert choose_builder(has_buildx, client_version, has_compose) is builder


def test_podman_under_the_name_docker_is_told_from_a_dead_engine() -> None:
    document = json.dumps({"host": {}, "store": {}, "version": {"Version": "5.0"}})

    with pytest.raises(EngineError, match="is Podman's here"):
        parse_info(document, "", Builder.CLASSIC)


def test_words_where_a_document_should_be_are_a_dead_engine() -> None:
    with pytest.raises(EngineError, match="does not answer"):
        parse_info("not json", "", Builder.CLASSIC)


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


def test_a_client_without_buildkit_learns_what_to_install() -> None:
    assert "apt-get install docker-buildx" in str(missing_builder({"ID": "debian"}))
    assert "docker-buildx-plugin" in str(missing_builder({}))


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

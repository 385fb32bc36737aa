"""What `docker` says about itself, and what perfrun makes of it."""

from __future__ import annotations

import json

import pytest

from perfrun.engine import Builder, EngineError, choose_builder, explain_refusal, parse_info

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
    ("has_buildx", "client_version", "builder"),
    [
        (True, "20.10.24", Builder.BUILDX),
        (True, "", Builder.BUILDX),
        (False, "20.10.24+dfsg1\n", Builder.BUILT_IN),
        (False, "23.0.0", Builder.CLASSIC),
        (False, "28.2.2", Builder.CLASSIC),
        (False, "", Builder.CLASSIC),
    ],
)
def test_the_builder_follows_from_the_client(
    has_buildx: bool, client_version: str, builder: Builder
) -> None:
    assert choose_builder(has_buildx, client_version) is builder

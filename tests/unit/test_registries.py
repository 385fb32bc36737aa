"""What engines say of an image that they could not fetch, and what perfrun makes of it."""

from __future__ import annotations

import pytest

from perfrun.registries import explain_fetch, registry_of

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

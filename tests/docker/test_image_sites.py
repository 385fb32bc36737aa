"""setup.py at a site of its own: local wheels, no network, locks, certificates, saved images."""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from actors import Caller, copy_checkout, docker_free, give, read_summary, results
from wheels import make_wheel

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1800)]

IMAGE = "perfrun-test/site"
NOOP = "--benchmark_methods=benchmarks.python.calibration.Calibration.noop"
# What pip needs to install perfrun in place, besides perfrun's own requirements.
BUILD_TOOLS = ("hatchling", "editables", "pathspec", "pluggy", "packaging", "trove-classifiers")
# The checkout is another user's.
GIT = (
    *("git", "-c", "safe.directory=*"),
    *("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"),
)
# Serves a repository over https as localhost, and asks for it as a benchmark and perfrun would.
CLIENTS = """
import functools, http.server, ssl, subprocess, sys, threading, urllib.request
folder = "/tmp/served"
subprocess.run(["git", "init", "-q", "--bare", folder + "/x.git"], check=True)
subprocess.run(["git", "-C", folder + "/x.git", "update-server-info"], check=True)
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
server = http.server.ThreadingHTTPServer(("localhost", 8443), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/certificates/server.pem", "/certificates/server.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = "https://localhost:8443/x.git/HEAD"
assert b"ref:" in urllib.request.urlopen(url).read()
import requests
assert "ref:" in requests.get(url).text
subprocess.run(["git", "ls-remote", "https://localhost:8443/x.git"], check=True)
pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--index-url"]
told = subprocess.run(
    [*pip, "https://localhost:8443/simple", "nothing"], capture_output=True, text=True, cwd="/tmp"
).stderr
assert "No matching distribution" in told and "SSL" not in told, told
print("all trust the site")
"""


@pytest.fixture(scope="module")
def folder(place: Path) -> Path:
    path = place / 'site\'s own "files"'
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def wheels(folder: Path) -> Path:
    """A folder of wheels that no index has."""
    path = folder / "my wheels"
    make_wheel(path, "tiny-framework", "1.5", ("tiny-friend",))
    make_wheel(path, "tiny-friend", "1.0")
    make_wheel(path, "tiny-friend", "2.0")
    make_wheel(path, "tiny-extra", "3.0")
    return path


@pytest.fixture(scope="module")
def certificates(folder: Path) -> Path:
    """A certificate authority of the site, and a server's certificate for localhost from it."""
    path = folder / "certificates"
    path.mkdir()
    new = ("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-batch")
    (path / "names").write_text("subjectAltName=DNS:localhost\n")
    (path / "ca.conf").write_text(
        "[req]\ndistinguished_name=dn\nx509_extensions=ext\nprompt=no\n[dn]\nCN=Site of the tests\n"
        "[ext]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
        "subjectKeyIdentifier=hash\n"
    )
    ca = ("-x509", "-config", "ca.conf", "-keyout", "ca.key", "-out", "ca.pem", "-days", "30")
    request = ("-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    sign = ("-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    for argv in (
        (*new, *ca),
        (*new, *request),
        ("openssl", "x509", *sign, "-extfile", "names", "-days", "30", "-out", "server.pem"),
    ):
        subprocess.run(argv, cwd=path, check=True, capture_output=True)
    return path


@pytest.fixture
def sources(folder: Path, user: Caller) -> tuple[Path, str]:
    """The user's checkout with its commit: a git repository."""
    path = folder / "check out with git"
    if not path.exists():
        copy_checkout(path, user)
        docker_free(*GIT, "init", "-q", "-b", "main", ".", cwd=path)
        docker_free(*GIT, "remote", "add", "origin", "https://me:pw@host.invalid/p.git", cwd=path)
        docker_free(*GIT, "add", ".", cwd=path)
        docker_free(*GIT, "commit", "-q", "-m", "All", cwd=path)
        give(path, user)
    return path, docker_free(*GIT, "rev-parse", "HEAD", cwd=path).strip()


@pytest.fixture
def site_image(
    sources: tuple[Path, str], wheels: Path, certificates: Path, user: Caller, base_image: str
) -> str:
    """An image from local wheels, with the site's certificates; built once, then from the cache."""
    done = user.setup_py(sources[0], *site_flags(wheels, certificates, base_image))
    assert done.returncode == 0, done.stdout + done.stderr
    return IMAGE


def site_flags(wheels: Path, certificates: Path, base_image: str) -> tuple[str, ...]:
    return (
        *("--framework=tensorflow", "--framework_pip_spec=tiny-framework"),
        f"--extra_pip_specs=file://{wheels}/tiny_extra-3.0-py3-none-any.whl; tiny-friend;",
        *(f"--find_links={wheels}", f"--ca_certificate={certificates}/ca.pem"),
        *(f"--base_image={base_image}", f"--docker_tag={IMAGE}"),
    )


def image_info(user: Caller, image: str) -> dict[str, Any]:
    info = json.loads(
        user.docker("run", "--rm", "--entrypoint", "cat", image, "/opt/perfrun/image.json")
    )
    assert isinstance(info, dict)
    return info


def labels(user: Caller, image: str) -> dict[str, str]:
    found = json.loads(
        user.docker("image", "inspect", "--format", "{{json .Config.Labels}}", image)
    )
    assert isinstance(found, dict)
    return found


def test_local_wheels_are_installed_and_nothing_of_them_stays(
    site_image: str, user: Caller
) -> None:
    installed = image_info(user, site_image)["distributions"]["framework"]

    assert {name: installed[name] for name in installed if name.startswith("tiny")} == {
        "tiny-extra": "3.0",
        "tiny-framework": "1.5",
        "tiny-friend": "2.0",
    }
    search = ("find", "/", "-xdev", "-name", "tiny*.whl")
    assert user.docker("run", "--rm", "--entrypoint", search[0], site_image, *search[1:]) == ""


def test_the_label_is_the_lock_and_both_are_in_every_summary(
    site_image: str, sources: tuple[Path, str], user: Caller, workspace: Path
) -> None:
    mount = f"type=bind,source={workspace},target=/workspace"
    done = user.run(
        *("docker", "run", "--rm", "--init", "--mount", mount, site_image, NOOP, "--format=json"),
        cwd=workspace,
    )

    assert done.returncode == 0, done.stderr
    (result,) = results(done.stdout)
    summary = read_summary(result, workspace)
    info = image_info(user, site_image)
    assert json.loads(labels(user, site_image)["perfrun.lock"]) == info == summary["setup_info"]
    assert summary["benchmark_info"]["harness_info"] == {
        "url": "https://***@host.invalid/p.git",
        "branch": "main",
        "hash": sources[1],
    }
    assert labels(user, site_image)["perfrun.harness_hash"] == sources[1]


def test_a_new_commit_reinstalls_nothing(
    site_image: str,
    sources: tuple[Path, str],
    wheels: Path,
    certificates: Path,
    user: Caller,
    base_image: str,
) -> None:
    docker_free(*GIT, "commit", "-q", "--allow-empty", "-m", "More", cwd=sources[0])
    commit = docker_free(*GIT, "rev-parse", "HEAD", cwd=sources[0]).strip()
    show = ("image", "inspect", "--format", "{{json .RootFS.Layers}}", site_image)
    before = json.loads(user.docker(*show))

    done = user.setup_py(sources[0], *site_flags(wheels, certificates, base_image))

    assert done.returncode == 0, done.stderr
    assert image_info(user, site_image)["harness_info"]["hash"] == commit != sources[1]
    after = json.loads(user.docker(*show))
    assert after[:-1] == before[:-1]


def test_pip_git_and_requests_trust_the_sites_certificates(
    site_image: str, certificates: Path, user: Caller
) -> None:
    mount = f"{certificates}:/certificates:ro"
    python = ("--entrypoint", "/opt/perfrun/bin/python", site_image, "-c", CLIENTS)

    said = user.docker("run", "--rm", "--network", "none", "--volume", mount, *python)

    assert said.endswith("all trust the site")


def test_an_image_is_built_again_from_its_lock_without_any_network(
    site_image: str, sources: tuple[Path, str], wheels: Path, user: Caller, base_image: str
) -> None:
    # An older image than this site would build today: tiny-friend has moved on since.
    info = image_info(user, site_image)
    info["distributions"]["framework"]["tiny-friend"] = "1.0"
    info["extra_pip_specs"] = "tiny-extra;tiny-friend"
    lock = wheels.parent / "lock.json"
    lock.write_text(json.dumps(info))
    offline = wheels.parent / "all the wheels"
    if not offline.exists():
        offline.mkdir()
        give(offline, user)
        download(user, site_image, info["distributions"]["perfrun"], offline)
    tag = "perfrun-test/offline"

    done = user.setup_py(
        sources[0],
        *("--offline", f"--lock={lock}", f"--docker_tag={tag}"),
        *(f"--find_links={wheels}", f"--find_links={offline}"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    built = image_info(user, tag)
    assert built["distributions"] == info["distributions"]
    assert (built["framework"], built["base_image"]) == ("tensorflow", base_image)
    user.docker("image", "rm", tag)


def download(user: Caller, image: str, distributions: dict[str, str], folder: Path) -> None:
    """The wheels of perfrun's libraries, by the pip settings of the base image."""
    own = ("pip", "setuptools", "perfrun")
    specs = [f"{name}=={version}" for name, version in distributions.items() if name not in own]
    mount = f"{folder}:/wheels"
    run = ("run", "--rm", "--user", f"{user.uid}:{user.gid}", "--volume", mount, "--env=HOME=/tmp")
    pip = ("-m", "pip", "download", "--quiet", "--dest", "/wheels", *specs, *BUILD_TOOLS)
    entry = ("--entrypoint", "/opt/perfrun/bin/python", image)
    user.docker(*run, *entry, *pip)


def test_a_lock_that_cannot_be_kept_is_one_line(
    sources: tuple[Path, str], wheels: Path, site_image: str, user: Caller
) -> None:
    info = image_info(user, site_image)
    info["distributions"]["framework"]["tiny-friend"] = "7.0"
    info["extra_pip_specs"] = None
    lock = wheels.parent / "impossible.json"
    lock.write_text(json.dumps(info))

    done = user.setup_py(
        sources[0],
        *("--offline", f"--lock={lock}", "--docker_tag=perfrun-test/none"),
        f"--find_links={wheels}",
    )

    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("perfrun: image perfrun-test/none was not built: found no cpu build of")
    assert "tiny-framework" in last


def test_a_python_that_the_base_lacks_is_one_line(
    checkout: Path, user: Caller, base_image: str
) -> None:
    done = user.setup_py(checkout, f"--base_image={base_image}", "--python_version=3.8")

    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert "the base image has no Python 3.8 that can make environments" in last
    assert "--base_image=python:3.8-slim-bookworm" in last


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """The site's files over http."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("way", ["path", "file", "http"])
def test_a_saved_image_is_loaded_and_named(
    way: str, folder: Path, checkout: Path, user: Caller, base_image: str, server: str
) -> None:
    saved = folder / "saved image.tar.gz"
    tag, name = "perfrun-test/loaded", "perfrun-test/saved:1"
    places = {"path": str(saved), "file": saved.as_uri(), "http": f"{server}/saved%20image.tar.gz"}
    user.docker("tag", base_image, name)
    try:
        if not saved.exists():
            script = f"docker save {name} | gzip -1"
            with saved.open("wb") as file:
                subprocess.run(
                    ["sh", "-c", script], stdout=file, check=True, env=user.environment()
                )

        done = user.setup_py(checkout, f"--dockerfile_path={places[way]}", f"--docker_tag={tag}")

        assert (done.returncode, done.stdout) == (0, f"loaded {name} as {tag}\n"), done.stderr
        ids = user.docker("image", "inspect", "--format", "{{.Id}}", name, tag).split()
        assert ids[0] == ids[1]
        assert not list((checkout / "workspace").glob(".image-*"))
    finally:
        subprocess.run(["docker", "image", "rm", tag, name], env=user.environment(), check=False)


def test_a_file_that_is_no_image_is_one_line(folder: Path, checkout: Path, user: Caller) -> None:
    (folder / "nothing.tar.gz").write_bytes(b"nothing")

    done = user.setup_py(checkout, f"--dockerfile_path={folder}/nothing.tar.gz")

    assert (done.returncode, done.stdout) == (1, "")
    assert "was not loaded: " in done.stderr.splitlines()[-1]


def test_what_a_dry_run_prints_builds_the_same_image(
    site_image: str,
    sources: tuple[Path, str],
    wheels: Path,
    certificates: Path,
    user: Caller,
    base_image: str,
) -> None:
    before = user.docker("image", "inspect", "--format", "{{.Id}}", site_image)
    done = user.setup_py(sources[0], *site_flags(wheels, certificates, base_image), "--dry_run")
    assert (done.returncode, done.stderr) == (0, "")

    pasted = user.run("sh", "-c", done.stdout, cwd=user.home)

    assert pasted.returncode == 0, pasted.stderr
    assert user.docker("image", "inspect", "--format", "{{.Id}}", site_image) == before


def test_compose_runs_what_setup_py_has_built_without_being_told(
    site_image: str, sources: tuple[Path, str], user: Caller
) -> None:
    plain = replace(user, settings={})  # variables would go before what .env says

    shown = plain.compose(sources[0], "--profile", "tensorflow", "config", "--images")

    assert shown.returncode == 0, shown.stderr
    assert IMAGE in shown.stdout.split()


@pytest.mark.parametrize("kind", ["gpu", "cdi", "rocm"])
def test_the_gpu_files_go_with_the_compose_file(kind: str, checkout: Path, user: Caller) -> None:
    files = ("-f", "docker-compose.yml", "-f", f"docker-compose.{kind}.yml")
    done = user.compose(checkout, *files, "--profile", "*", "config", "--format", "json")

    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    server = services.pop("postgres")  # runs no trials
    assert "devices" not in server
    assert set(services) == {"perfrun", "torch", "tensorflow", "jax", "nightly"}
    for service in services.values():
        assert service["init"] is True
        assert not service.get("privileged")
        assert service["cap_drop"] == ["ALL"]
        assert not [volume for volume in service["volumes"] if "docker.sock" in volume["target"]]
        if kind == "rocm":
            assert [device["target"] for device in service["devices"]] == ["/dev/kfd", "/dev/dri"]
        else:
            (device,) = service["deploy"]["resources"]["reservations"]["devices"]
            assert device["driver"] == {"gpu": "nvidia", "cdi": "cdi"}[kind]
